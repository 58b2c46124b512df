//! Lookups and loads of many keys in one call.
//!
//! A source that answers many keys at once, such as a database, is asked once for all absent keys.
//!
//! A change must ensure that the absent keys are loaded by one call, each of them once.

use std::collections::HashMap;
#[cfg(feature = "async")]
use std::future::Future;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::filled::{Filled, Origin};
use crate::cache::entry::Entry;
use crate::cache::handle::Cache;

/// A lookup of many keys: the values that were found, and the absent keys, each of them once.
pub(in crate::cache) struct ManyLookup<K, V> {
    pub(in crate::cache) absent: Vec<K>,
    /// For each key in the caller's order: its value, or its index in `absent`.
    places: Vec<Result<V, usize>>,
}

impl<K: Eq, V: Clone> ManyLookup<K, V> {
    /// Looks all keys up by `find`. `hash` serves to recognize repeated keys.
    pub(in crate::cache) fn new(
        keys: impl IntoIterator<Item = K>,
        mut find: impl FnMut(&K) -> Option<V>,
        hash: impl Fn(&K) -> u64,
    ) -> Self {
        let mut numbers: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut absent: Vec<K> = Vec::new();
        let mut place = |key: K| {
            if let Some(value) = find(&key) {
                return Ok(value);
            }
            let same_hash = numbers.entry(hash(&key)).or_default();
            let known = same_hash.iter().copied().find(|number| absent[*number] == key);
            Err(known.unwrap_or_else(|| {
                same_hash.push(absent.len());
                absent.push(key);
                absent.len() - 1
            }))
        };
        let places = keys.into_iter().map(&mut place).collect();
        Self { absent, places }
    }

    /// Passes each absent key and its loaded value to `keep`, and returns all values in the order
    /// of the keys.
    pub(in crate::cache) fn finish(self, loaded: Vec<V>, mut keep: impl FnMut(K, V) -> Origin) -> Vec<Filled<V>> {
        let (expected, got) = (self.absent.len(), loaded.len());
        assert!(expected == got, "the load of {expected} keys returned {got} values");
        let keep = |(key, value): (K, V)| Filled { origin: keep(key, value.clone()), value };
        let filled: Vec<_> = self.absent.into_iter().zip(loaded).map(keep).collect();
        let found = |value| Filled { value, origin: Origin::Cached };
        self.places.into_iter().map(|place| place.map_or_else(|number| filled[number].clone(), found)).collect()
    }
}

/// Returns the values alone.
pub(in crate::cache) fn values_of<V>(filled: Vec<Filled<V>>) -> Vec<V> {
    filled.into_iter().map(|filled| filled.value).collect()
}

impl<K, V, S> Entry<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Inserts a value that was loaded for this entry, unless another one was inserted meanwhile.
    pub(in crate::cache) fn keep_loaded(self, value: V) -> Origin {
        let Self { cache, key, payer, ttl, .. } = self;
        let hash = cache.inner.core.hash(&key);
        cache.inner.core.counters.loaded();
        cache.keep_loaded(key, value, hash, (payer, ttl), None)
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the values of many keys, in their order: as [`get`](Self::get) for each of them. Not
    /// a snapshot: entries may change between the lookups.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let names = Cache::<u64, String>::builder(&runtime).weigher(|_, name| name.capacity()).build()?;
    /// names.insert(2, "two".into())?;
    /// assert_eq!(names.get_many([1, 2].iter()), [None, Some("two".to_string())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "get_all")]
    pub fn get_many<'q, Q>(&self, keys: impl IntoIterator<Item = &'q Q>) -> Vec<Option<V>>
    where
        Q: Hash + Equivalent<K> + ?Sized + 'q,
    {
        // Not inside one read-side section: the lookup of an expired entry runs the removal
        // listener.
        keys.into_iter().map(|key| self.get(key)).collect()
    }

    /// Returns the values of many keys, in their order. `load` is called once with all keys that
    /// are absent, each of them once, and returns their values in that order, which are inserted.
    /// If all keys are present, `load` is not called.
    ///
    /// The load is not shared with other callers: two that miss the same keys at the same time both
    /// load them, and the first insert of a key stays. A [`remove`](Self::remove) during the load
    /// does not stop it. A value that the cache rejects is returned
    /// all the same; [`get_or_fill_many`](Self::get_or_fill_many) also returns the reason.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let rows = Cache::<u64, String>::builder(&runtime).weigher(|_, row| row.capacity()).build()?;
    /// rows.insert(2, "cached".into())?;
    ///
    /// // One query for all rows that are missing.
    /// let query = |ids: &[u64]| Ok::<_, std::io::Error>(ids.iter().map(|id| format!("row {id}")).collect());
    /// assert_eq!(rows.get_or_load_many([1, 2, 3, 1], query)?, ["row 1", "cached", "row 3", "row 1"]);
    /// assert_eq!(rows.get(&3).as_deref(), Some("row 3"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted.
    ///
    /// # Panics
    ///
    /// If `load` returns fewer or more values than it got keys.
    pub fn get_or_load_many<E>(
        &self,
        keys: impl IntoIterator<Item = K>,
        load: impl FnOnce(&[K]) -> Result<Vec<V>, E>,
    ) -> Result<Vec<V>, E> {
        self.get_or_fill_many(keys, load).map(values_of)
    }

    /// As [`get_or_load_many`](Self::get_or_load_many), and also returns for each value where it
    /// came from: a caller sees which values the cache has rejected, and why.
    ///
    /// ```
    /// use lowwater::cache::{Origin, RejectReason};
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::kib(64)).build()?;
    /// let pages = Cache::<usize, Vec<u8>>::builder(&runtime).weigher(|_, page| page.capacity()).build()?;
    /// pages.insert(1, vec![0])?;
    /// let load = |sizes: &[usize]| Ok::<_, std::io::Error>(sizes.iter().map(|size| vec![0; *size]).collect());
    /// let filled = pages.get_or_fill_many([1, 2, 1 << 20], load)?;
    /// assert_eq!((&filled[0].origin, &filled[1].origin), (&Origin::Cached, &Origin::Loaded));
    /// assert!(matches!(filled[2].origin, Origin::Rejected(RejectReason::TooLarge { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted.
    ///
    /// # Panics
    ///
    /// If `load` returns fewer or more values than it got keys.
    pub fn get_or_fill_many<E>(
        &self,
        keys: impl IntoIterator<Item = K>,
        load: impl FnOnce(&[K]) -> Result<Vec<V>, E>,
    ) -> Result<Vec<Filled<V>>, E> {
        let many = ManyLookup::new(keys, |key| self.get(key), |key| self.inner.core.hash(key));
        let loaded = if many.absent.is_empty() { Vec::new() } else { load(&many.absent)? };
        Ok(many.finish(loaded, |key, value| self.entry(key).keep_loaded(value)))
    }

    /// The async form of [`get_or_load_many`](Self::get_or_load_many): `load` is called once with
    /// clones of all absent keys, and its future is awaited. If the returned future is dropped
    /// before that of `load` is ready, nothing is inserted.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// async fn query(ids: Vec<u64>) -> std::io::Result<Vec<String>> {
    ///     Ok(ids.iter().map(|id| format!("row {id}")).collect())
    /// }
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let rows = Cache::<u64, String>::builder(&runtime).weigher(|_, row| row.capacity()).build()?;
    /// let executor = tokio::runtime::Builder::new_current_thread().build()?;
    /// let two = executor.block_on(rows.get_or_load_many_async([1, 2], query))?;
    /// assert_eq!(two, ["row 1", "row 2"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted.
    ///
    /// # Panics
    ///
    /// If `load` returns fewer or more values than it got keys.
    #[cfg(feature = "async")]
    pub async fn get_or_load_many_async<E, F>(
        &self,
        keys: impl IntoIterator<Item = K>,
        load: impl FnOnce(Vec<K>) -> F,
    ) -> Result<Vec<V>, E>
    where
        K: Clone,
        F: Future<Output = Result<Vec<V>, E>>,
    {
        self.get_or_fill_many_async(keys, load).await.map(values_of)
    }

    /// The async form of [`get_or_fill_many`](Self::get_or_fill_many); for `load`, see
    /// [`get_or_load_many_async`](Self::get_or_load_many_async).
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted.
    ///
    /// # Panics
    ///
    /// If `load` returns fewer or more values than it got keys.
    #[cfg(feature = "async")]
    pub async fn get_or_fill_many_async<E, F>(
        &self,
        keys: impl IntoIterator<Item = K>,
        load: impl FnOnce(Vec<K>) -> F,
    ) -> Result<Vec<Filled<V>>, E>
    where
        K: Clone,
        F: Future<Output = Result<Vec<V>, E>>,
    {
        let many = ManyLookup::new(keys, |key| self.get(key), |key| self.inner.core.hash(key));
        let loaded = if many.absent.is_empty() { Vec::new() } else { load(many.absent.clone()).await? };
        Ok(many.finish(loaded, |key, value| self.entry(key).keep_loaded(value)))
    }
}
