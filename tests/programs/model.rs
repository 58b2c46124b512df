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

use crate::token::{fail, Tag};

/// The possible versions of a key.
#[derive(Clone, Debug, Default)]
struct Known {
    versions: Vec<u32>,
    may_be_absent: bool,
}

/// The possible versions of all keys, by the number of the cache and the key.
#[derive(Debug, Default)]
pub struct Model {
    known: HashMap<(u32, u32), Known>,
    ignored: HashSet<u32>,
    /// Whether entries may be evicted at any time.
    pub is_lossy: bool,
}

impl Model {
    /// Stops checking a cache for ever.
    pub fn ignore(&mut self, cache: u32) {
        self.ignored.insert(cache);
    }

    /// Checks the result of a lookup of `key`, and narrows its possible versions to that result.
    pub fn seen(&mut self, cache: u32, key: u32, found: Option<u32>, how: &str) {
        let is_lossy = self.is_lossy;
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
                *known = Known { versions: vec![version], may_be_absent: false };
            }
            Some(version) => {
                fail(&format!("{how} of key {key} in cache {cache} found version {version}, expected {known:?}"))
            }
            None if known.may_be_absent || is_lossy => drop(self.known.remove(&(cache, key))),
            None => fail(&format!("{how} of key {key} in cache {cache} found nothing, expected {known:?}")),
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

    /// Records that a load has inserted a version, where the key was absent or due for a reload.
    pub fn reloaded(&mut self, tag: Tag) {
        self.put(tag);
    }

    /// Records that a version was inserted.
    pub fn put(&mut self, Tag { home, key, version }: Tag) {
        self.known.insert((home, key), Known { versions: vec![version], may_be_absent: false });
    }

    /// Records that a version may have been inserted.
    pub fn maybe_put(&mut self, Tag { home, key, version }: Tag) {
        let known = self.known.entry((home, key)).or_insert(Known { versions: Vec::new(), may_be_absent: true });
        known.versions.push(version);
        known.may_be_absent = true;
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
        let is_known =
            !self.is_lossy && !self.ignored.contains(&cache) && of_cache().all(|(_, known)| !known.may_be_absent);
        is_known.then(|| of_cache().count())
    }
}
