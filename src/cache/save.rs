//! Saving the entries of a cache and loading them again. The caller chooses the format.
//!
//! A format would tie the crate to a serializer and its users to a version, so a cache shows each
//! entry with its [`Meta`] and takes the same back. A change must ensure that `load` accepts any
//! `Meta`, since it comes from a file, and never replaces a present value.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use lowwater_lru_core::{Memcg, MemcgError};
use lowwater_rcu::{pin, Guard};
use lowwater_store::index::Cursor;

use super::expect::Expect;
use super::expiry::TICK_TIME;
use super::handle::Cache;
use super::insert::NewRecord;
use super::payer::Payer;
use super::policy::queue::Queue;
use super::record::Record;

/// The part of a saved entry besides its key and value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meta {
    /// The path of the entry's group; `/` for the root. Empty for the cache's own group
    /// ([`Cache::group`]), whatever that is: so entries follow limits that the cache gets between
    /// save and load.
    pub group: String,
    /// The time until the entry expires; none if it does not expire.
    pub time_left: Option<Duration>,
    /// The idle time, if a use extends the deadline.
    pub time_to_idle: Option<Duration>,
    /// The time until the entry expires even if it is used, for an entry with an idle time and a
    /// time to live ([`CacheBuilder::time_to_idle`](super::CacheBuilder::time_to_idle)). Loaded
    /// into a cache that does not have both times, the entry expires after this time, used or not.
    pub live_left: Option<Duration>,
    /// The entry's use count, from 0 (unused) to 7. The bit of value 4 means that the entry was on
    /// the main queue, in eviction orders that have one. The two lower bits are the uses since the
    /// last eviction scan, at most 3.
    pub heat: u8,
}

/// The result of [`Cache::load`]. A key that is present keeps its younger value, and an expired
/// entry is not loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// Entries that were inserted.
    pub put: u64,
    /// Entries whose keys were present.
    pub present: u64,
    /// Entries that had expired.
    pub expired: u64,
    /// Entries that were rejected, or whose group cannot be created. The latter are not in
    /// [`CacheStats::rejected`](super::CacheStats::rejected).
    pub refused: u64,
    /// Entries of this cache, loaded or not, that were evicted during the load because memory was
    /// needed.
    pub evicted: u64,
}

impl Loaded {
    /// Returns the number of entries that were refused or evicted.
    pub fn did_not_fit(&self) -> u64 {
        self.refused + self.evicted
    }
}

/// The bit of [`Meta::heat`] for a record on the main queue. Files that users have saved contain
/// it.
const PROVEN: u8 = 4;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Calls `save` for each live entry with the metadata that [`load`](Self::load) needs, in no
    /// order. Does not count as a use. Returns the number of entries.
    ///
    /// Consistent as [`visit`](Self::visit) is. `save` runs without a lock and may use the cache.
    /// The thread is pinned for some hundreds of entries at a time, so `save` should write to a
    /// buffer rather than wait for a disk.
    ///
    /// An entry that the reclaimer has isolated at that moment, to evict or to move it, is on no
    /// group's list: it is saved with the cache's own group.
    ///
    /// With keys of tenants ([`TenantKey`](super::TenantKey)), save the path of the key's group,
    /// and pass it to `load` as [`Meta::group`]. Skip keys whose group is not online: after a
    /// restart, they would be those of another tenant of that name.
    ///
    /// ```
    /// use lowwater::{cache::Meta, ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let make = || Cache::<u64, String>::builder(&runtime).weigher(|_, text| text.capacity()).build();
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
    /// // The least used first: they are evicted first if less memory is available now.
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
    /// The first error of `save`, which ends the walk.
    pub fn save<E>(&self, mut save: impl FnMut(&K, &V, &Meta) -> Result<(), E>) -> Result<u64, E> {
        let core = &self.inner.core;
        let (mut at, mut saved) = (Cursor::new(), 0);
        let (mut group, mut meta) = (self.inner.group.clone(), Meta::default());
        meta.group = self.saved_path(&group);
        while !at.is_done() {
            let (guard, mut part) = (pin(), Vec::new());
            core.index.visit(&mut at, &guard, |record| part.push(record));
            for record in part {
                let Some((record, owner)) = self.with_owner(record, &guard) else { continue };
                let expires = record.deadline();
                // Read for each record that expires, as `save` may have taken any time.
                let now = (!expires.is_never()).then(|| core.clock.now());
                if now.is_some_and(|now| core.clock.has_expired_at(expires, now)) || core.is_cleared(record) {
                    continue;
                }
                if owner != group {
                    meta.group = self.saved_path(&owner);
                    group = owner;
                }
                // The record has not expired. `time_left` is rounded down, possibly to zero, and
                // `load` would drop the entry then.
                let left = |at| core.clock.time_left(at, now?).map(|left| left.max(TICK_TIME));
                meta.time_left = left(expires);
                meta.live_left = left(core.clock.live_end(record, expires));
                meta.time_to_idle = expires.time_to_idle();
                meta.heat = record.uses() | if record.queue() == Queue::Main { PROVEN } else { 0 };
                save(&record.key, &record.value, &meta)?;
                saved += 1;
            }
        }
        Ok(saved)
    }

    /// Returns a record of a walk and its group; `None` if the record has left the index.
    fn with_owner<'g>(&'g self, mut record: &'g Record<K, V>, guard: &'g Guard) -> Option<(&'g Record<K, V>, Memcg)> {
        let core = &self.inner.core;
        loop {
            match core.queues.owner(record) {
                Some(owner) => return Some((record, owner)),
                // A walk has isolated the record: it is about to be evicted, or between two lists.
                None if record.is_indexed() => return Some((record, self.inner.group.clone())),
                None => {}
            }
            record = core.copy_of(record, guard)?;
        }
    }

    /// Inserts entries that [`save`](Self::save) has shown, in the given order. Missing groups are
    /// created. Returns counts of the results.
    ///
    /// Each entry is inserted as by [`insert`](Self::insert), under the same limits and with the
    /// same evictions. If less memory is available than at the time of the save, the entries
    /// inserted first are the first to be evicted: pass the oldest first, or the least used.
    ///
    /// A panic of `entries` or of the weigher is passed on: the entries inserted before it stay,
    /// and the counts are lost.
    pub fn load(&self, entries: impl IntoIterator<Item = (K, V, Meta)>) -> Loaded {
        let core = &self.inner.core;
        let evictions = core.counters.read().evictions;
        let mut loaded = Loaded::default();
        // Entries usually come in runs of one group.
        let mut last: Option<(String, Memcg)> = None;
        for (key, value, meta) in entries {
            if [meta.time_left, meta.live_left].into_iter().flatten().any(|left| left.is_zero()) {
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

    /// Returns the path under which a group is saved.
    fn saved_path(&self, group: &Memcg) -> String {
        if *group == self.inner.group {
            String::new()
        } else {
            group.path()
        }
    }

    /// Returns the group of a saved path; makes it if it is missing.
    fn loaded_group(&self, path: &str) -> Result<Memcg, MemcgError> {
        if path.is_empty() {
            return Ok(self.inner.group.nearest_online());
        }
        self.inner.runtime.group(path)
    }

    /// Inserts one entry. Returns true if it was inserted, false if the key is present, and none if
    /// the insert was rejected.
    fn load_one(&self, key: K, value: V, meta: &Meta, group: &Memcg) -> Option<bool> {
        let core = &self.inner.core;
        if self.contains_key(&key) {
            return Some(false);
        }
        let hash = core.hash(&key);
        let expires = core.clock.deadline_after(meta.time_left, meta.time_to_idle, meta.live_left);
        self.admit(group).ok()?;
        let target = self.target(group, hash);
        self.prefetch(hash, target, &pin());
        let weighed = self.weigh(&key, &value);
        let mut new = NewRecord::new(self.make(key, value, weighed, expires, group).ok()?, weighed, expires);
        // No other thread has the record yet, so its state can be set without a lock.
        new.record.set_uses(meta.heat % PROVEN);
        if meta.heat & PROVEN != 0 && core.queues.has_queues() {
            new.queue = Some(Queue::Main);
        }
        loop {
            let guard = pin();
            let (back, refusal, _) = match self.try_insert(new, hash, target, &guard, &Expect::Vacant) {
                Ok((_, removal)) => {
                    drop(guard);
                    drop(removal);
                    return Some(true);
                }
                Err(refused) => refused,
            };
            drop(guard);
            match self.pay(back, refusal, target, hash, Payer::named(group), false) {
                Ok((paid, _)) => new = paid,
                Err(rejected) => return rejected.found_another().then_some(false),
            }
        }
    }
}
