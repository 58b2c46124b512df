//! Lookups: get, peek, touch, remove.
//!
//! The fast path of the crate: `get` is written so that a hit runs few instructions and everything
//! rare is in another function, not inlined. `ci/instructions.sh` counts the instructions; a change
//! that adds some must have a reason. A change must also ensure that a removal is finished, which
//! runs user code, after the guard is dropped.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use equivalent::Equivalent;
use lowwater_rcu::{pin, try_pin, Guard};
use lowwater_store::index::{Held, HeldProbe};

use super::core::Found;
use super::handle::Cache;
use super::record::Record;
use super::removal::RemovalCause;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns a clone of the value of `key`, if it is present and has not expired. The entry
    /// counts as used.
    ///
    /// Takes no lock, and writes no memory that other readers write, except for the first few uses
    /// of an entry, and for the counters of the first 256 events of a cache and of hits beyond 16
    /// live threads. Locks are taken only by the first lookup of a thread in any cache, which
    /// registers the thread, and to move an entry in LRU order, to change its deadline, and to
    /// remove an expired entry. For many lookups, or for a reference instead of a clone, see
    /// [`pin`](Self::pin).
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // The fewer instructions a lookup has, the more lookups a processor overlaps while each
        // waits for its cache lines. So only the common case is inlined here.
        let Some(guard) = try_pin() else { return self.get_undecided(key, None) };
        let core = &*self.inner.core;
        let hash = core.hash(key);
        match core.index.probe_held(hash, guard, |record| key.equivalent(&record.key)) {
            HeldProbe::Found(record) if core.is_plain(&record) && core.counters.hit() => {
                record.mark_used();
                Some(record.value.clone())
            }
            HeldProbe::Found(record) => self.get_expiring(key, record),
            HeldProbe::Absent(guard) => self.record_miss(guard),
            HeldProbe::Undecided(guard) => self.get_undecided(key, Some(guard)),
        }
    }

    /// [`get`](Self::get), for a found record with a deadline, in a cache that acts on uses (LRU
    /// order, computed deadlines), or on a thread without counters of its own.
    #[cold]
    #[inline(never)]
    fn get_expiring<Q>(&self, key: &Q, record: Held<'_, Record<K, V>>) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &*self.inner.core;
        if core.is_expired(&record) {
            return self.get_undecided(key, Some(record.into_guard()));
        }
        core.note_use(&record, core.hash(key), &pin());
        core.counters.looked_up(true);
        Some(record.value.clone())
    }

    /// [`get`](Self::get), for an absent key.
    #[inline(never)]
    fn record_miss(&self, guard: Guard) -> Option<V> {
        drop(guard);
        self.inner.core.counters.looked_up(false);
        None
    }

    /// [`get`](Self::get), if the first probe does not decide, if the record has expired, or
    /// (without a guard) if the thread must do more to enter the read side.
    #[cold]
    #[inline(never)]
    fn get_undecided<Q>(&self, key: &Q, guard: Option<Guard>) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &*self.inner.core;
        let (hash, guard) = (core.hash(key), guard.unwrap_or_else(pin));
        let record = core.index.get_undecided(hash, &guard, |record| key.equivalent(&record.key));
        let value = match core.found(record, hash, key, &guard) {
            Found::Live(record) => {
                core.note_use(record, hash, &guard);
                Some(record.value.clone())
            }
            Found::Nothing => None,
            Found::Expired(removal) => {
                // Finished without the guard, as it runs user code.
                drop(guard);
                drop(removal);
                None
            }
        };
        core.counters.looked_up(value.is_some());
        value
    }

    /// Returns the value as [`get`](Self::get) does, and counts a hit, but no miss: for a caller
    /// that calls [`get`](Self::get) next.
    pub(super) fn get_hit<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.get_uncounted(key).inspect(|_| self.inner.core.counters.looked_up(true))
    }

    /// Returns the value as [`get`](Self::get) does, and counts a use, but neither a hit nor a
    /// miss.
    pub(super) fn get_uncounted<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, |record, hash, guard| {
            self.inner.core.note_use(record, hash, guard);
            record.value.clone()
        })
    }

    /// Returns a clone of the value of `key`, without counting a use, a hit or a miss.
    pub fn peek<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, |record, _, _| record.value.clone())
    }

    /// Returns whether the cache has an entry under `key` that has not expired. Counts neither a
    /// use nor a hit or miss.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, |_, _, _| ()).is_some()
    }

    /// Removes the entry of `key` and returns a clone of its value. An entry that has expired is
    /// removed as well, but `None` is returned.
    ///
    /// Also stops a load in flight of the key, such as
    /// [`get_or_insert_with`](Self::get_or_insert_with) or a [`Refresh`](super::Refresh): its value
    /// goes to the callers that wait for it already, and is not inserted. The load of another key
    /// of the same hash is stopped as well, also by an insert. A load that begins after this call
    /// waits for no earlier one. Not stopped is a load that runs alone: by
    /// [`get_or_load_many`](Self::get_or_load_many), inside of a load of the same key or of a
    /// cycle, or while another key of the same hash is loaded.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.inner.core;
        // Declared first, so that it is dropped after the guard, also if the value's clone panics.
        let removal;
        let (hash, guard) = (core.hash(key), pin());
        core.inflight.stop(hash);
        let mut is_live = true;
        let record;
        (record, removal) = core.unlink(
            hash,
            &guard,
            |record| key.equivalent(&record.key),
            |record| {
                is_live = !core.is_expired(record);
                if is_live {
                    RemovalCause::Explicit
                } else {
                    core.cause_of_expired(record)
                }
            },
        )?;
        let value = is_live.then(|| record.value.clone());
        drop(guard);
        drop(removal);
        value
    }

    /// Sets the time to live of `key`, with the precision of
    /// [`CacheBuilder::time_to_live`](super::CacheBuilder::time_to_live); `None`: no deadline. The
    /// entry counts as used. Returns false if the key is absent. The new time replaces an idle time
    /// of the entry, and uses do not extend it.
    pub fn touch<Q>(&self, key: &Q, time_to_live: Option<Duration>) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.inner.core;
        let is_it = |there: &Record<K, V>| key.equivalent(&there.key);
        self.find(key, |_, hash, guard| core.touch(hash, guard, time_to_live, is_it)) == Some(true)
    }

    /// Calls `f` with the live record of `key`, its hash and the guard. A record that has expired
    /// gives `None`; it is unlinked, unless it is kept as stale (`stale_while_revalidate`).
    #[inline]
    pub(super) fn find<Q, R>(&self, key: &Q, f: impl FnOnce(&Record<K, V>, u64, &Guard) -> R) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.inner.core;
        let (hash, guard) = (core.hash(key), pin());
        match core.find(hash, key, &guard) {
            Found::Live(record) => Some(f(record, hash, &guard)),
            Found::Nothing => None,
            Found::Expired(removal) => {
                drop(guard);
                drop(removal);
                None
            }
        }
    }
}
