//! The correct results of caches while one thread uses them; with more threads the model is not
//! used.
//!
//! The model has the versions that each key may have. A lookup must return one of them, or nothing
//! if the key may be absent or entries may be evicted. A key that is not in the model must be
//! absent.
//!
//! A change must ensure that the model permits each correct result: a step with an uncertain result
//! adds a version (`maybe_put`) or permits absence (`maybe_removed`).

use std::collections::{HashMap, HashSet};

use lowwater::cache::Origin;

use crate::step::{CacheChoices, Life};
use crate::time::{CacheTimes, End};
use crate::token::{fail, Tag};

/// The possible versions of a key.
#[derive(Clone, Debug)]
struct Known {
    versions: Vec<u32>,
    may_be_absent: bool,
    end: End,
}

/// The possible versions of all keys, by the number of the cache and the key.
#[derive(Debug, Default)]
pub struct Model {
    known: HashMap<(u32, u32), Known>,
    ignored: HashSet<u32>,
    times: HashMap<u32, CacheTimes>,
    /// The removals of each key by calls that have found it.
    removals: HashMap<(u32, u32), u32>,
    /// The time of the program's manual clock in milliseconds; 0 without one.
    pub now: u64,
    /// Whether entries may be evicted at any time.
    pub is_lossy: bool,
}

impl Model {
    /// Stops checking a cache for ever.
    pub fn ignore(&mut self, cache: u32) {
        self.ignored.insert(cache);
    }

    /// Notes the times of a new cache.
    pub fn built(&mut self, cache: u32, choices: &CacheChoices) {
        self.times.insert(cache, CacheTimes::of(choices));
    }

    fn stale(&self, cache: u32) -> u64 {
        self.times.get(&cache).map_or(0, |times| times.stale)
    }

    /// Checks the result of a lookup of `key`, and narrows its possible versions to that result.
    pub fn seen(&mut self, cache: u32, key: u32, found: Option<u32>, how: &str) {
        let may_be_stale = matches!(how, "insert" | "compute" | "remove" | "refresh" | "load");
        let (is_lossy, now) = (self.is_lossy, self.now);
        let stale = if may_be_stale { self.stale(cache) } else { 0 };
        if self.ignored.contains(&cache) {
            return;
        }
        let Some(known) = self.known.get_mut(&(cache, key)) else {
            if let Some(version) = found {
                fail(&format!("{how} of key {key} in cache {cache} found version {version}, where nothing was put"));
            }
            return;
        };
        match found {
            Some(version) if known.versions.contains(&version) => {
                // A lossy model may be ahead in time: a callback advances the clock on any thread.
                if !is_lossy && known.end.until.saturating_add(stale) <= now {
                    fail(&format!("{how} of key {key} in cache {cache} found {known:?}, which has expired at {now}"));
                }
                known.end.used(now, matches!(how, "get" | "get_many"));
                known.versions = vec![version];
                known.may_be_absent = false;
            }
            Some(version) => {
                fail(&format!("{how} of key {key} in cache {cache} found version {version}, expected {known:?}"))
            }
            None if known.end.from <= now => {
                // A stale entry may still be there, for another kind of lookup.
                known.may_be_absent = true;
                if known.end.until.saturating_add(self.stale(cache)) <= now {
                    self.known.remove(&(cache, key));
                }
            }
            None if known.may_be_absent || is_lossy => drop(self.known.remove(&(cache, key))),
            None => fail(&format!("{how} of key {key} in cache {cache} found nothing, expected {known:?} at {now}")),
        }
    }

    /// Checks whether a value that was found may be stale, or fresh. Before [`seen`](Self::seen).
    pub fn seen_stale(&self, cache: u32, key: u32, is_stale: bool) {
        let Some(known) = self.known.get(&(cache, key)).filter(|_| !self.ignored.contains(&cache)) else { return };
        let is_wrong = if is_stale { self.now < known.end.from } else { known.end.until <= self.now };
        if is_wrong && !self.is_lossy {
            fail(&format!("key {key} in cache {cache} has stale = {is_stale} at {}: {known:?}", self.now));
        }
    }

    /// Checks that a key that was found may be there.
    pub fn has(&mut self, cache: u32, key: u32, how: &str) {
        if !self.ignored.contains(&cache) && !self.known.contains_key(&(cache, key)) {
            fail(&format!("{how} of key {key} in cache {cache} found a value, where nothing was put"));
        }
    }

    /// Returns whether the key certainly has this version, if it is present.
    pub fn has_version(&self, Tag { home, key, version }: Tag) -> bool {
        self.known.get(&(home, key)).is_some_and(|known| known.versions == [version])
    }

    fn end_of(&self, cache: u32, life: Life) -> End {
        End::of(life, self.times.get(&cache), self.now)
    }

    /// Records that a load has inserted a version, where the key was absent or due for a reload.
    pub fn loaded(&mut self, tag: Tag) {
        let ahead = self.times.get(&tag.home).map_or(0, |times| times.ahead);
        if let Some(known) = self.known.get(&(tag.home, tag.key)).filter(|_| !self.ignored.contains(&tag.home)) {
            // A time of its own, of any length, is reloaded from the beginning.
            let is_due = known.end.from <= self.now.saturating_add(ahead);
            if !known.may_be_absent && !self.is_lossy && !is_due {
                fail(&format!("a load has inserted {tag:?} at {}, where {known:?} was", self.now));
            }
        }
        self.put(tag, Life::Default);
    }

    /// Records that a version was inserted.
    pub fn put(&mut self, tag: Tag, life: Life) {
        let end = self.end_of(tag.home, life);
        let known = Known { versions: vec![tag.version], may_be_absent: false, end };
        self.known.insert((tag.home, tag.key), known);
    }

    /// Records that a version was inserted by a computation, which may keep the old one's end.
    pub fn computed(&mut self, tag: Tag, life: Life) {
        let before = self.known.get(&(tag.home, tag.key)).map(|known| known.end);
        self.put(tag, life);
        if let (Some(before), Some(known)) = (before, self.known.get_mut(&(tag.home, tag.key))) {
            known.end = known.end.or(before);
        }
    }

    /// Records that a version may have been inserted.
    pub fn maybe_put(&mut self, tag: Tag) {
        let none = Known { versions: Vec::new(), may_be_absent: true, end: End::NEVER };
        let known = self.known.entry((tag.home, tag.key)).or_insert(none);
        known.versions.push(tag.version);
        known.may_be_absent = true;
        known.end.until = u64::MAX;
    }

    /// Records that a key was touched.
    pub fn touched(&mut self, cache: u32, key: u32, life: Life) {
        let end = self.end_of(cache, life);
        if let Some(known) = self.known.get_mut(&(cache, key)) {
            known.end = end;
        }
    }

    /// Records that a call has found a key and removed it.
    pub fn removed_by_call(&mut self, cache: u32, key: u32) {
        *self.removals.entry((cache, key)).or_default() += 1;
    }

    pub fn removals(&self, cache: u32, key: u32) -> u32 {
        self.removals.get(&(cache, key)).copied().unwrap_or(0)
    }

    /// Compares the end of a reload with the model. `old` is the version that was found before, and
    /// `removals` the removals at that time.
    pub fn reloaded(&mut self, tag: Tag, origin: Option<&Origin>, old: u32, removals: u32) {
        let known = self.known.get(&(tag.home, tag.key));
        let is_certain = known.is_some_and(|known| !known.may_be_absent && known.end.from > self.now) && !self.is_lossy;
        let is_younger = is_certain && known.is_some_and(|known| !known.versions.contains(&old));
        let was_removed = self.removals(tag.home, tag.key) != removals;
        match origin {
            _ if self.ignored.contains(&tag.home) => {}
            Some(Origin::Loaded) if is_younger || was_removed => {
                fail(&format!("a reload has inserted {tag:?} though {old} was removed or replaced: {known:?}"));
            }
            Some(Origin::Loaded) => self.put(tag, Life::Default),
            Some(Origin::Rejected(_)) if self.is_lossy => {}
            Some(Origin::Outrun)
                if is_certain && !was_removed && known.is_some_and(|known| known.versions == [old]) =>
            {
                fail(&format!("a reload of {tag:?} was outrun, though {old} is still there: {known:?}"));
            }
            Some(Origin::Outrun) => {}
            Some(origin) => fail(&format!("the origin of a reload of {tag:?} is {origin:?}")),
            None => self.maybe_put(tag),
        }
    }

    pub fn removed(&mut self, cache: u32, key: u32) {
        self.known.remove(&(cache, key));
    }

    pub fn maybe_removed(&mut self, cache: u32, key: u32) {
        if let Some(known) = self.known.get_mut(&(cache, key)) {
            known.may_be_absent = true;
        }
    }

    /// Returns the number of keys that a cache must have; `None` if that is not known.
    pub fn must_have(&self, cache: u32) -> Option<usize> {
        let of_cache = || self.known.iter().filter(|((home, _), _)| *home == cache);
        let is_known = !self.is_lossy
            && !self.ignored.contains(&cache)
            && of_cache().all(|(_, known)| !known.may_be_absent && known.end.from > self.now);
        is_known.then(|| of_cache().count())
    }
}
