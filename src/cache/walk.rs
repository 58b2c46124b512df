//! Walks over all entries, one part of the index at a time: iteration, visits, `clear` and
//! `retain`.
//!
//! A walk holds no lock between parts and needs no memory for its position, so entries may change
//! meanwhile: an entry that stays is visited exactly once. A removal that does not find its entry
//! by hash uses the walk's position, so that entries with misbehaving keys are reached as well.
//!
//! A change must ensure that user code runs without a lock, and that removals are finished, which
//! calls the listener, after the guard is dropped.

use std::hash::{BuildHasher, Hash};

use hashbrown::DefaultHashBuilder;
use lowwater_rcu::pin;
use lowwater_store::index::Cursor;

use super::handle::Cache;
use super::pinned::Pinned;
use super::record::Record;
use super::removal::RemovalCause;

/// An iterator over the entries of a cache, from [`Pinned::iter`].
pub struct Iter<'p, K, V, S = DefaultHashBuilder> {
    pinned: &'p Pinned<'p, K, V, S>,
    cursor: Cursor,
    /// The remaining records of the part that was visited last.
    part: std::vec::IntoIter<&'p Record<K, V>>,
}

/// The position of a walk by [`Cache::visit`].
#[derive(Clone, Debug, Default)]
pub struct Visit(Cursor);

impl Visit {
    /// Returns the position at the beginning.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether all entries were visited.
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }
}

impl<K, V, S> Pinned<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns an iterator over all live entries, in no order. Does not count as a use.
    ///
    /// An entry that is present throughout is visited once; one that is inserted, removed or
    /// replaced meanwhile may be visited or not. Takes no lock. Allocates memory for some hundreds
    /// of pointers, and aborts the process if there is none. No removed entry of any cache is freed
    /// while this thread is pinned, so use [`Cache::visit`] for long walks.
    pub fn iter(&self) -> Iter<'_, K, V, S> {
        Iter { pinned: self, cursor: Cursor::new(), part: Vec::new().into_iter() }
    }
}

impl<'p, K, V, S> Iterator for Iter<'p, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = (&'p K, &'p V);

    fn next(&mut self) -> Option<Self::Item> {
        let core = &self.pinned.cache.inner.core;
        loop {
            if let Some(record) = self.part.find_map(|record| core.live(record, &self.pinned.guard)) {
                return Some((&record.key, &record.value));
            }
            if self.cursor.is_done() {
                return None;
            }
            let mut part = Vec::new();
            core.index.visit(&mut self.cursor, &self.pinned.guard, |record| part.push(record));
            self.part = part.into_iter();
        }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Calls `f` for the live entries of the next part, some hundreds however many there are, and
    /// advances `at`. Does not count as a use.
    ///
    /// An entry that is present throughout a whole walk is visited once; one that is inserted,
    /// removed or replaced meanwhile may be visited or not. Takes no lock; `f` may use the cache.
    /// The thread is pinned for one part only.
    ///
    /// ```
    /// use lowwater::{cache::Visit, ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build()?;
    /// (0..1000).for_each(|n| drop(cache.insert(n, n)));
    ///
    /// let (mut at, mut sum) = (Visit::new(), 0);
    /// while !at.is_done() {
    ///     cache.visit(&mut at, |_, value| sum += value);
    ///     // Here others could be served.
    /// }
    /// assert_eq!(sum, 499_500);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn visit(&self, at: &mut Visit, mut f: impl FnMut(&K, &V)) {
        let core = &self.inner.core;
        let guard = pin();
        core.index.visit(&mut at.0, &guard, |record| {
            if let Some(record) = core.live(record, &guard) {
                f(&record.key, &record.value);
            }
        });
    }

    /// Removes every entry for which `keep` returns false, as [`remove`](Self::remove) would.
    /// Expired entries are removed without a call of `keep`. A load in flight of a key that has no
    /// entry is not stopped, as `keep` cannot be asked about its value.
    ///
    /// Consistent as [`visit`](Self::visit) is. Locks one segment of the index at a time, for one
    /// entry; `keep` runs without a lock. O(entries).
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let core = &self.inner.core;
        let mut at = Cursor::new();
        while !at.is_done() {
            // Declared first, so that it is dropped after the guard, also if the key's own code
            // panics.
            let mut gone = Vec::new();
            let (guard, mut unwanted, here) = (pin(), Vec::new(), at.clone());
            let mut why = |record: &Record<K, V>| match core.is_expired(record) {
                true => Some(core.cause_of_expired(record)),
                false => (!keep(&record.key, &record.value)).then_some(RemovalCause::Explicit),
            };
            core.index.visit(&mut at, &guard, |record| unwanted.extend(why(record).map(|cause| (record, cause))));
            for (mut record, mut cause) in unwanted {
                loop {
                    let wanted = |there: &Record<K, V>| cause == RemovalCause::Explicit || core.is_expired(there);
                    let is_wanted = wanted(record);
                    // An expiry stops no load.
                    if is_wanted && record.is_indexed() && (cause == RemovalCause::Explicit || !core.is_gone(record)) {
                        core.stop_load_of(&record.key);
                    }
                    let taken = is_wanted.then(|| core.unlink_at(&here, &guard, record, wanted, cause)).flatten();
                    if let Some((_, removal)) = taken {
                        gone.extend(removal);
                        break;
                    }
                    // Another thread has unlinked the record; or a use has extended the deadline of
                    // an expired record, or compaction has put a copy in its place: then `keep` is
                    // called (again).
                    let is_indexed = record.is_indexed();
                    if is_indexed && wanted(record) {
                        // Its segment was split during the search, and its key's hash has changed.
                        continue;
                    }
                    let there = if is_indexed { Some(record) } else { core.copy_of(record, &guard) };
                    let Some(there) = there else { break };
                    let Some(again) = why(there) else { break };
                    (record, cause) = (there, again);
                }
            }
        }
        self.collect();
        core.shrink_ghosts();
    }
}

impl<K, V, S> std::fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
