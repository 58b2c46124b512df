//! Going over everything, a little at a time.

use std::hash::{BuildHasher, Hash};

use lowwater_rcu::pin;
use lowwater_store::index::Cursor;

use super::handle::Cache;
use super::pinned::Pinned;
use super::record::Record;
use super::removal::RemovalCause;

/// The entries of a cache: from [`Pinned::iter`].
pub struct Iter<'p, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    pinned: &'p Pinned<'p, K, V, S>,
    cursor: Cursor,
    /// Those of the part that was visited last.
    part: std::vec::IntoIter<&'p Record<K, V>>,
}

/// How far [`Cache::visit`] has come.
#[derive(Clone, Debug, Default)]
pub struct Visit(Cursor);

impl Visit {
    /// At the beginning.
    pub fn new() -> Self {
        Self::default()
    }

    /// Was everything seen?
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
    /// All live entries, in no order. None counts as used.
    ///
    /// An entry that is there throughout is seen once; one that comes, goes or is replaced meanwhile may be seen or not. No lock is
    /// taken, and memory for some hundreds of pointers, without which the process ends. As nothing that leaves is freed while this thread is pinned, [`Cache::visit`] is better where it takes long.
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
            if let Some(record) = self.part.find(|record| !core.is_expired(record)) {
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
    /// Shows the live entries of the next part to `f`, and moves `at` on: some hundreds, however many there are. None counts as used.
    ///
    /// An entry that is there throughout a whole walk is seen once; one that comes, goes or is replaced meanwhile may be seen or not.
    /// No lock is taken; `f` may use the cache. The thread is pinned for one part only.
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
            if !core.is_expired(record) {
                f(&record.key, &record.value);
            }
        });
    }

    /// Takes everything out. The listener is told of each entry. Locks the place of one entry at a time, and gives their memory back to
    /// the system.
    pub fn clear(&self) {
        self.retain(|_, _| false);
        self.inner.core.queues.forget_ghosts();
    }

    /// Takes out every entry that `keep` does not want, as [`remove`](Self::remove) would. Expired ones go without being asked about.
    ///
    /// Consistent as [`visit`](Self::visit) is. Locks the place of one entry at a time; `keep` runs without a lock. O(entries).
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let core = &self.inner.core;
        let mut at = Cursor::new();
        while !at.is_done() {
            // Dropped after the guard, also when the key's own code panics.
            let mut gone = Vec::new();
            let (guard, mut unwanted, here) = (pin(), Vec::new(), at.clone());
            let mut why = |record: &Record<K, V>| match core.is_expired(record) {
                true => Some(RemovalCause::Expired),
                false => (!keep(&record.key, &record.value)).then_some(RemovalCause::Explicit),
            };
            core.index.visit(&mut at, &guard, |record| unwanted.extend(why(record).map(|cause| (record, cause))));
            for (mut record, mut cause) in unwanted {
                loop {
                    if let Some((_, removal)) = core.unlink_at(&here, &guard, record, |_| true, cause) {
                        gone.extend(removal);
                        break;
                    }
                    // Another thread has unlinked the record; but a copy may have taken its place.
                    let hash = record.was_moved().then(|| core.hash_again(&record.key)).flatten();
                    let moved = hash.and_then(|hash| core.index.get(hash, &guard, |there| there.key == record.key));
                    let Some(there) = moved else { break };
                    let Some(again) = why(there) else { break };
                    (record, cause) = (there, again);
                }
            }
        }
        self.collect();
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> std::fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
