//! A read-side section over many lookups, which return references instead of clones.
//!
//! References are valid for as long as the guard, so a pinned thread holds back the memory of all
//! entries that are removed meanwhile: for short use only. A change must ensure that these lookups
//! count and mark uses as those of `lookup.rs` do.

use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;
use hashbrown::DefaultHashBuilder;
use lowwater_rcu::{pin, Guard};
use lowwater_store::index::FirstProbe;

use super::core::Found;
use super::handle::Cache;

/// A read-side section of this thread on a cache, from [`Cache::pin`]. Values found in it can be
/// borrowed until it is dropped.
///
/// Keep it short: the memory of entries that leave any cache meanwhile is freed only after it.
/// Entries do leave meanwhile, though: a borrowed value may have been evicted or replaced, and is
/// the value that was present at the lookup.
///
/// A `Pinned` in a thread-local variable is a reader until the variable is destroyed. A `Pinned`
/// that is leaked is a reader for ever, even when its thread has ended: from then on the memory of
/// entries that leave any cache is not freed, and inserts are refused once too much of it waits.
///
/// ```
/// use lowwater::{ByteSize, Cache, Runtime};
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
/// let cache = Cache::<u64, String>::builder(&runtime).weigher(|_, text| text.capacity()).build()?;
/// cache.insert(1, "one".into())?;
/// cache.insert(2, "two".into())?;
///
/// let pinned = cache.pin();
/// let lengths: usize = [1, 2, 3].iter().filter_map(|key| pinned.get(key)).map(String::len).sum();
/// assert_eq!(lengths, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pinned<'a, K, V, S = DefaultHashBuilder> {
    pub(super) cache: &'a Cache<K, V, S>,
    pub(super) guard: Guard,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Pins this thread, for many lookups and for references to values instead of clones.
    ///
    /// Must not be called by a signal handler. After a `fork`, the child must not use a cache, as
    /// the runtime's threads do not exist there and may have held locks: see [`lowwater_rcu::pin`].
    #[inline]
    pub fn pin(&self) -> Pinned<'_, K, V, S> {
        Pinned { cache: self, guard: pin() }
    }
}

impl<K, V, S> Pinned<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns a reference to the value of `key`, otherwise as [`Cache::get`].
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // The same fast path as in `Cache::get`.
        let core = &*self.cache.inner.core;
        let hash = core.hash(key);
        match core.index.probe_first(hash, &self.guard, |record| key.equivalent(&record.key)) {
            FirstProbe::Found(record) if core.is_plain(record) => {
                record.mark_used();
                core.counters.looked_up(true);
                Some(&record.value)
            }
            FirstProbe::Absent => {
                core.counters.looked_up(false);
                None
            }
            FirstProbe::Found(_) | FirstProbe::Undecided => self.get_undecided(key, hash),
        }
    }

    /// The rest of [`get`](Self::get): for a key that one probe does not decide, and for a record
    /// that is not plain (it has a deadline, or a use does more than mark it).
    #[inline(never)]
    fn get_undecided<Q>(&self, key: &Q, hash: u64) -> Option<&V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.cache.inner.core;
        let value = match core.find(hash, key, &self.guard) {
            Found::Live(record) => {
                core.note_use(record, hash, &self.guard);
                Some(&record.value)
            }
            Found::Expired(_) | Found::Nothing => None,
        };
        core.counters.looked_up(value.is_some());
        value
    }

    /// Returns a reference to the value of `key`, otherwise as [`Cache::peek`].
    pub fn peek<Q>(&self, key: &Q) -> Option<&V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.cache.inner.core;
        match core.find(core.hash(key), key, &self.guard) {
            Found::Live(record) => Some(&record.value),
            Found::Expired(_) | Found::Nothing => None,
        }
    }
}

impl<K, V, S> std::fmt::Debug for Pinned<'_, K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pinned").field("cache", self.cache).finish_non_exhaustive()
    }
}
