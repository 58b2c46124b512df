//! Lookups and loads of many keys in one call.
//!
//! A source that answers many keys at once, such as a database, is asked once for all absent keys.
//!
//! A change must ensure that the absent keys are loaded by one call, each of them once.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use crate::cache::handle::Cache;
use crate::cache::insert::Expect;

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
        // Not inside one read-side section: an expired key runs the removal listener.
        keys.into_iter().map(|key| self.get(key)).collect()
    }

    /// Returns the values of many keys, in their order. `load` is called once with all keys that
    /// are absent, each of them once, and returns their values in that order, which are inserted.
    /// It is not called if all keys are present.
    ///
    /// The load is not shared with other callers: two that miss the same keys at the same time both
    /// load them, and the first insert of a key stays. A value that the cache rejects is returned
    /// all the same.
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
        let keys: Vec<K> = keys.into_iter().collect();
        let found = self.get_many(&keys);
        // The place of each key's value: in `found`, or the number of its load.
        let mut missing: Vec<K> = Vec::new();
        let mut places = Vec::with_capacity(keys.len());
        {
            let mut numbers: HashMap<u64, Vec<usize>> = HashMap::new();
            for (key, value) in keys.into_iter().zip(found) {
                places.push(match value {
                    Some(value) => Ok(value),
                    None => {
                        let same_hash = numbers.entry(self.inner.core.hash(&key)).or_default();
                        let known = same_hash.iter().copied().find(|number| missing[*number] == key);
                        Err(known.unwrap_or_else(|| {
                            same_hash.push(missing.len());
                            missing.push(key);
                            missing.len() - 1
                        }))
                    }
                });
            }
        }
        let loaded = if missing.is_empty() { Vec::new() } else { load(&missing)? };
        let (expected, got) = (missing.len(), loaded.len());
        assert!(expected == got, "the load of {expected} keys returned {got} values");
        for (key, value) in missing.into_iter().zip(&loaded) {
            self.inner.core.counters.loaded();
            let hash = self.inner.core.hash(&key);
            let entry = self.entry(key);
            // A value that was inserted meanwhile is younger, and stays.
            let _kept =
                self.insert_record(entry.key, value.clone(), hash, (entry.payer, entry.ttl), &Expect::Vacant, None);
        }
        Ok(places.into_iter().map(|place| place.unwrap_or_else(|number| loaded[number].clone())).collect())
    }
}
