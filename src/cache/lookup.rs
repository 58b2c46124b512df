//! Lookups: get, peek, touch, remove.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use equivalent::Equivalent;
use lowwater_rcu::{pin, Guard};
use lowwater_store::index::FirstProbe;

use super::core::Found;
use super::expiry::clock::Ttl;
use super::handle::Cache;
use super::record::Record;
use super::removal::RemovalCause;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// The value of `key`, if it is there and has not expired. The entry counts as used.
    ///
    /// No lock is taken, and nothing is written that other readers write, but for the first few uses of an entry. To ask for many,
    /// or to look at a value without cloning it, [`pin`](Self::pin).
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // How many lookups a processor has under way, each waiting for its lines, is a matter of how few instructions one has. So here is
        // what is mostly to be done, and all else elsewhere.
        let core = &*self.inner.core;
        let guard = pin();
        let hash = core.hash(key);
        match core.index.probe_first(hash, &guard, |record| key.equivalent(&record.key)) {
            FirstProbe::Found(record) if core.is_plain(record) && core.counters.hit() => {
                record.mark_used();
                return Some(record.value.clone());
            }
            FirstProbe::Found(record) => {
                if let Some(value) = self.get_expiring(record, hash) {
                    return Some(value);
                }
            }
            FirstProbe::Absent => return self.record_miss(guard),
            FirstProbe::Overflowed => {}
        }
        self.get_overflowed(key, guard)
    }

    /// [`get`](Self::get), where this record was found, and its deadline or the order are to be looked at; none if it has expired.
    #[cold]
    fn get_expiring(&self, record: &Record<K, V>, hash: u64) -> Option<V> {
        let core = &self.inner.core;
        if core.is_expired(record) {
            return None;
        }
        core.note_use(record, hash, &pin());
        core.counters.looked_up(true);
        Some(record.value.clone())
    }

    /// [`get`](Self::get), where the key is absent.
    #[inline(never)]
    fn record_miss(&self, guard: Guard) -> Option<V> {
        drop(guard);
        self.inner.core.counters.looked_up(false);
        None
    }

    /// [`get`](Self::get), where the key is not in its home bucket, and may be in a following one.
    #[cold]
    fn get_overflowed<Q>(&self, key: &Q, guard: Guard) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // Nobody's drop is to be called inside.
        drop(guard);
        let core = &self.inner.core;
        let value = self.find(key, |record, hash, guard| {
            core.note_use(record, hash, guard);
            record.value.clone()
        });
        core.counters.looked_up(value.is_some());
        value
    }

    /// [`get`](Self::get), that counts a hit and no miss: for a caller that goes on to [`get`](Self::get).
    pub(super) fn get_hit<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.inner.core;
        let value = self.find(key, |record, hash, guard| {
            core.note_use(record, hash, guard);
            record.value.clone()
        });
        value.inspect(|_| core.counters.looked_up(true))
    }

    /// The value of `key`, without counting it as used, or as a hit or a miss.
    pub fn peek<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, |record, _, _| record.value.clone())
    }

    /// Is `key` there? Does not count as use.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, |_, _, _| ()).is_some()
    }

    /// Takes `key` out and returns its value.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.inner.core;
        let (hash, guard) = (core.hash(key), pin());
        let mut cause = RemovalCause::Explicit;
        let (record, removal) = core.unlink(
            hash,
            &guard,
            |record| key.equivalent(&record.key),
            |record| {
                if core.is_expired(record) {
                    cause = RemovalCause::Expired;
                }
                cause
            },
        )?;
        let value = (cause == RemovalCause::Explicit).then(|| record.value.clone());
        drop(guard);
        drop(removal);
        value
    }

    /// Gives `key` a new time to live, none for ever; the entry counts as used. False if it is not there. An idle time that it had is
    /// over: the new one counts, however often it is used.
    pub fn touch<Q>(&self, key: &Q, time_to_live: Option<Duration>) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.inner.core;
        let expires = core.clock.deadline_of(time_to_live.map_or(Ttl::Forever, Ttl::Fixed));
        let touched = self.find(key, |_, hash, guard| {
            let is_it = |there: &Record<K, V>| key.equivalent(&there.key) && !core.is_expired(there);
            core.index.with(hash, guard, is_it, |there| {
                there.set_deadline(expires);
                there.mark_used();
                core.queues.promote(there);
            })
        });
        self.inner.register_deadline(expires);
        touched.flatten().is_some()
    }

    /// Calls `f` with the live record of `key`, its hash and the guard. An expired record is unlinked.
    #[inline]
    fn find<Q, R>(&self, key: &Q, f: impl FnOnce(&Record<K, V>, u64, &Guard) -> R) -> Option<R>
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
