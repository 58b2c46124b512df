//! The correct results of a cache, while one thread uses it.
//!
//! A key has a set of versions that it may have; a lookup must return one of them, or nothing if
//! entries may be evicted. With more than one thread the model is not used.

use std::collections::{HashMap, HashSet};

use crate::token::{fail, Tag};

/// The possible versions of a key.
#[derive(Clone, Debug, Default)]
struct Known {
    versions: Vec<u32>,
    may_be_absent: bool,
}

/// The versions of all caches that ever existed, by cache and key.
#[derive(Debug, Default)]
pub struct Model {
    known: HashMap<(u32, u32), Known>,
    ignored: HashSet<u32>,
    /// Whether entries may be evicted at any time.
    pub is_lossy: bool,
}

impl Model {
    /// Stops checking a cache.
    pub fn ignore(&mut self, cache: u32) {
        self.ignored.insert(cache);
    }

    /// Checks the result of a lookup of `key`.
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

    /// The keys of a cache that must exist, or none if that is not known.
    pub fn must_have(&self, cache: u32) -> Option<usize> {
        let of_cache = || self.known.iter().filter(|((home, _), _)| *home == cache);
        let is_known =
            !self.is_lossy && !self.ignored.contains(&cache) && of_cache().all(|(_, known)| !known.may_be_absent);
        is_known.then(|| of_cache().count())
    }
}
