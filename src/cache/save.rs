//! Saving what is in a cache, and loading it again. In what form it is kept is the caller's business.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use lowwater_lru_core::{Memcg, MemcgError};
use lowwater_rcu::pin;
use lowwater_store::index::Cursor;

use super::expiry::TICK_TIME;
use super::handle::Cache;
use super::insert::Expect;
use super::policy::queue::Queue;

/// What belongs to a saved entry besides its key and value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meta {
    /// The path of its group; `/` for the root. Empty for the own group of a cache with limits
    /// ([`CacheBuilder::low`](super::CacheBuilder::low)), and for that of the cache that loads it.
    pub group: String,
    /// The time it has left; none if it does not expire.
    pub time_left: Option<Duration>,
    /// If a use begins that time anew: how long it is then.
    pub time_to_idle: Option<Duration>,
    /// How much it was used, as far as that is known: 0 for what was not, to 7. Four of it mean that it was used enough to be kept
    /// among the proven ones (of the orders that tell them apart), the rest are uses since it was looked at last.
    pub heat: u8,
}

/// What became of loaded entries. A key that is there already keeps its younger value, and an entry whose time is over is not loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// Entries that were put in.
    pub put: u64,
    /// Keys that were there already.
    pub present: u64,
    /// Entries whose time was over.
    pub expired: u64,
    /// Entries that found no room, or whose group cannot be made.
    pub refused: u64,
    /// Entries, of this cache and whoever put them in, that had to leave meanwhile because memory was needed.
    pub evicted: u64,
}

impl Loaded {
    /// How many did not fit.
    pub fn did_not_fit(&self) -> u64 {
        self.refused + self.evicted
    }
}

/// What was put on the main queue, in [`Meta::heat`].
const PROVEN: u8 = 4;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Shows every live entry to `save`, with what [`load`](Self::load) needs to know of it, in no order. None counts as used. Says how many.
    ///
    /// Consistent as [`visit`](Self::visit) is. `save` runs without a lock and may use the cache; while it does, this thread is pinned, for
    /// some hundreds of entries at a time, so it should write to a buffer rather than wait for a disk.
    ///
    /// An entry that the reclaimer has isolated at that moment, to evict or to move it, is on no group's list: the entry is said
    /// to be of the cache's own.
    ///
    /// ```
    /// use lowwater::{cache::Meta, ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let make = || Cache::<u64, String>::builder(&runtime).weigher(|_, text| ByteSize::new(text.capacity() as u64)).build();
    /// let cache = make()?;
    /// cache.entry(1).group(&runtime.group("shop")?).insert("one".into())?;
    ///
    /// let mut saved: Vec<(u64, String, Meta)> = Vec::new();
    /// cache.save(|key, value, meta| {
    ///     saved.push((*key, value.clone(), meta.clone()));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// drop(cache);
    ///
    /// // What was used least first, so that it is the first to go if there is less room now.
    /// saved.sort_by_key(|(.., meta)| meta.heat);
    /// let cache = make()?;
    /// assert_eq!(cache.load(saved).did_not_fit(), 0);
    /// assert_eq!(cache.get(&1).as_deref(), Some("one"));
    /// assert_eq!(cache.len_of(&runtime.group("shop")?), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first one of `save`, which ends it.
    pub fn save<E>(&self, mut save: impl FnMut(&K, &V, &Meta) -> Result<(), E>) -> Result<u64, E> {
        let core = &self.inner.core;
        let (mut at, mut saved) = (Cursor::new(), 0);
        let (mut group, mut meta) = (self.inner.group.clone(), Meta::default());
        meta.group = self.saved_path(&group);
        while !at.is_done() {
            let (guard, mut part) = (pin(), Vec::new());
            core.index.visit(&mut at, &guard, |record| part.push(record));
            let now = core.clock.now();
            for record in part {
                let expires = record.deadline();
                if expires.is_past(now) {
                    continue;
                }
                // One that a walk has is on its way out, or between two lists.
                let owner = core.queues.owner(record).unwrap_or_else(|| self.inner.group.clone());
                if owner != group {
                    meta.group = self.saved_path(&owner);
                    group = owner;
                }
                // It is not over: what is told so may be a little too little.
                meta.time_left = expires.time_left(now).map(|left| left.max(TICK_TIME));
                meta.time_to_idle = expires.time_to_idle();
                meta.heat = record.uses() | if record.queue() == Queue::Main { PROVEN } else { 0 };
                save(&record.key, &record.value, &meta)?;
                saved += 1;
            }
        }
        Ok(saved)
    }

    /// Puts in what [`save`](Self::save) showed, in the order given; groups that are not there are made. Returns what became of the entries.
    ///
    /// Each entry is put in as [`insert`](Self::insert) would, within the same limits and making room in the same way. So where there is less
    /// room than there was, what comes first is the first to leave again: give the oldest first, or what was used least.
    pub fn load(&self, entries: impl IntoIterator<Item = (K, V, Meta)>) -> Loaded {
        let core = &self.inner.core;
        let evictions = core.counters.read().evictions;
        let mut loaded = Loaded::default();
        // Mostly they come in runs of one group.
        let mut last: Option<(String, Memcg)> = None;
        for (key, value, meta) in entries {
            if meta.time_left.is_some_and(|left| left.is_zero()) {
                loaded.expired += 1;
                continue;
            }
            if last.as_ref().is_none_or(|(path, group)| *path != meta.group || !group.is_online()) {
                let Ok(group) = self.loaded_group(&meta.group) else {
                    loaded.refused += 1;
                    continue;
                };
                last = Some((meta.group.clone(), group));
            }
            let Some((_, group)) = &last else { continue };
            match self.load_one(key, value, &meta, group) {
                Some(true) => loaded.put += 1,
                Some(false) => loaded.present += 1,
                None => loaded.refused += 1,
            }
        }
        loaded.evicted = core.counters.read().evictions.saturating_sub(evictions);
        loaded
    }

    /// The path by which a group is saved.
    fn saved_path(&self, group: &Memcg) -> String {
        if self.inner.owns_group && *group == self.inner.group {
            String::new()
        } else {
            group.path()
        }
    }

    /// The group that was saved by this path.
    fn loaded_group(&self, path: &str) -> Result<Memcg, MemcgError> {
        if path.is_empty() {
            return Ok(self.inner.group.nearest_online());
        }
        self.inner.runtime.group(path)
    }

    /// Was it put in, or is the key there? None: there was no room.
    fn load_one(&self, key: K, value: V, meta: &Meta, group: &Memcg) -> Option<bool> {
        let core = &self.inner.core;
        if self.contains_key(&key) {
            return Some(false);
        }
        let hash = core.hash(&key);
        let expires = core.clock.deadline_after(meta.time_left, meta.time_to_idle);
        self.prefetch(hash, group);
        let prepared = self.prepare(key, value, group, expires).ok()?;
        // Nobody has seen it yet.
        prepared.record.set_uses(meta.heat % PROVEN);
        if meta.heat & PROVEN != 0 && core.queues.has_queues() {
            prepared.record.set_queue(Queue::Main);
        }
        let guard = pin();
        let put = self.insert_prepared(prepared, hash, group, &guard, &Expect::Vacant);
        drop(guard);
        match put {
            Ok((_, removal)) => {
                drop(removal);
                Some(true)
            }
            Err(into_rejected) => into_rejected.found_another().then_some(false),
        }
    }
}
