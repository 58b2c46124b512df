//! Weights and a lock, for caches that count entries and are made for one thread.
//!
//! Such a cache reports no weight. So each entry is weighed when it enters and when it leaves, and
//! the sum is kept beside the cache, under one lock.
//!
//! A change must ensure that every way but `with` in which an entry leaves subtracts its weight,
//! and that evicted values are dropped without the lock.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lowwater::ByteSize;

use crate::Evict;

/// A cache of one thread that can remove its oldest entry, for [`Weighed`].
pub trait OldestFirst: Send + 'static {
    /// The type of the keys, which are weighed together with the values.
    type Key;
    /// The type of the values.
    type Value;

    /// Inserts an entry, as the youngest. Returns the entry that it replaced, or that the cache
    /// evicted for it.
    fn push(&mut self, key: Self::Key, value: Self::Value) -> Option<(Self::Key, Self::Value)>;

    /// Removes and returns the oldest entry; `None` if the cache is empty.
    fn pop_oldest(&mut self) -> Option<(Self::Key, Self::Value)>;
}

/// The weigher of a [`Weighed`].
type Weigher<K, V> = Box<dyn Fn(&K, &V) -> ByteSize + Send + Sync>;

/// A cache of one thread, with a lock, and with a weight for each entry.
///
/// The weigher must return the same bytes for an entry when it leaves as when it was inserted.
///
/// ```
/// # #[cfg(feature = "lru")]
/// # {
/// use lowwater::{ByteSize, Runtime};
/// use lowwater_adapters::{adapt, Weighed};
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
/// let lru = Weighed::new(lru::LruCache::<u64, String>::unbounded(), |_, text: &String| text.capacity() + 64);
/// let names = adapt(&runtime, "names", lru)?;
///
/// names.update(|names| names.insert(1, "one".to_string()));
/// assert_eq!(names.with(|lru| lru.get(&1).cloned()).as_deref(), Some("one"));
/// names.update(|names| names.remove_with(|lru| lru.pop_entry(&1)));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The weigher has the types of the cache's keys and values, so a type that holds a `Weighed<C>`
/// repeats the bound `C: OldestFirst`.
pub struct Weighed<C: OldestFirst> {
    state: Mutex<WeighedState<C>>,
    weigher: Weigher<C::Key, C::Value>,
}

struct WeighedState<C> {
    cache: C,
    /// The sum of the weights of the entries, and of those that are leaving.
    weight: ByteSize,
    /// The number of entries; wrong after changes by `with`.
    entries: usize,
    /// Entries that were taken out, and whose weight is yet to be subtracted.
    leaving: u32,
}

impl<C> WeighedState<C> {
    /// Counts an entry that was taken out, if there is one.
    fn leaves<E>(&mut self, old: Option<E>) -> Option<E> {
        if old.is_some() {
            self.entries = self.entries.saturating_sub(1);
            self.leaving += 1;
        }
        old
    }
}

/// An entry that is leaving; [`WeighedState::leaving`] counts it.
struct Leaving<'a, C>(&'a Mutex<WeighedState<C>>);

impl<C> Drop for Leaving<'_, C> {
    fn drop(&mut self) {
        lock(self.0).leaving -= 1;
    }
}

/// Locks the state, even after a panic under the lock, which leaves at most a wrong weight.
fn lock<C>(state: &Mutex<WeighedState<C>>) -> MutexGuard<'_, WeighedState<C>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C: OldestFirst> Weighed<C> {
    /// Wraps an empty cache. `weigher` returns the bytes of an entry: those that key and value own,
    /// their own size, and the overhead of the cache (some 50 to 100 bytes for a linked map).
    /// Aborts the process if there is no memory for the weigher.
    ///
    /// # Panics
    ///
    /// If the cache has an entry that it can evict: its weight is unknown.
    pub fn new<B: Into<ByteSize>>(
        mut cache: C,
        weigher: impl Fn(&C::Key, &C::Value) -> B + Send + Sync + 'static,
    ) -> Self {
        assert!(cache.pop_oldest().is_none(), "the cache is not empty: its entries have no weight");
        Self {
            state: Mutex::new(WeighedState { cache, weight: ByteSize::ZERO, entries: 0, leaving: 0 }),
            weigher: Box::new(move |key, value| weigher(key, value).into()),
        }
    }

    /// Inserts an entry, as the youngest. Returns the entry that it replaced, or that the cache
    /// evicted for it. Call it in [`Adapted::update`](crate::Adapted::update).
    pub fn insert(&self, key: C::Key, value: C::Value) -> Option<(C::Key, C::Value)> {
        let weight = (self.weigher)(&key, &value);
        let mut state = lock(&self.state);
        let old = state.cache.push(key, value);
        state.weight += weight;
        state.entries += 1;
        let old = state.leaves(old);
        drop(state);
        old.inspect(|old| _ = self.forget(old))
    }

    /// Removes an entry by the cache's own methods: the closure returns the entry that it removed.
    /// The closure runs under the lock and must not charge, as for [`with`](Self::with).
    pub fn remove_with(&self, remove: impl FnOnce(&mut C) -> Option<(C::Key, C::Value)>) -> Option<(C::Key, C::Value)> {
        let mut state = lock(&self.state);
        let old = remove(&mut state.cache);
        let old = state.leaves(old);
        drop(state);
        old.inspect(|old| _ = self.forget(old))
    }

    /// Calls `f` with the cache, under the lock: for lookups. `f` must not insert or remove
    /// entries: they would not be weighed then, and an inserted entry is weighed when it leaves.
    ///
    /// # Deadlocks
    ///
    /// `f` must not charge bytes to the runtime, so it inserts into no other cache, and must not
    /// use this cache by its handle: reclaim takes the lock, and the thread would wait for itself.
    /// See [`Evict::shrink_to`]. Clone what is needed, and charge after the return.
    pub fn with<R>(&self, f: impl FnOnce(&mut C) -> R) -> R {
        f(&mut lock(&self.state).cache)
    }

    /// Subtracts the weight of an entry that was taken out and is counted as leaving, and returns
    /// the weight.
    fn forget(&self, (key, value): &(C::Key, C::Value)) -> ByteSize {
        // Dropped also if the weigher panics.
        let _leaving = Leaving(&self.state);
        let weight = (self.weigher)(key, value);
        lock(&self.state).weight -= weight;
        weight
    }
}

impl<C: OldestFirst> Evict for Weighed<C>
where
    C::Key: Send + Sync + 'static,
    C::Value: Send + Sync + 'static,
{
    fn weight(&self) -> ByteSize {
        lock(&self.state).weight
    }

    /// Evicts what is too heavy now. Entries that are inserted meanwhile, by other threads or by
    /// the drop of evicted values, do not prolong the eviction.
    fn shrink_to(&self, target: ByteSize) {
        let (mut excess, entries) = {
            let state = lock(&self.state);
            (state.weight - target, state.entries)
        };
        // At least one: entries that were inserted by `with` are not counted.
        for _ in 0..entries.max(1) {
            let mut state = lock(&self.state);
            if excess == ByteSize::ZERO || state.weight <= target {
                return;
            }
            let oldest = state.cache.pop_oldest();
            let Some(old) = state.leaves(oldest) else {
                // Entries that were removed by `with` have left their weight behind. Entries that
                // are leaving are yet to subtract theirs.
                state.entries = 0;
                if state.leaving == 0 {
                    state.weight = ByteSize::ZERO;
                }
                return;
            };
            drop(state);
            // The entry is weighed and dropped without the lock.
            excess -= self.forget(&old);
        }
    }
}

impl<C: OldestFirst> fmt::Debug for Weighed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weighed").field("weight", &lock(&self.state).weight).finish_non_exhaustive()
    }
}
