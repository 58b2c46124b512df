//! Lookups and loads of many keys of one tenant in one call.
//!
//! As `cache/load/many.rs`: a source that answers many keys at once is asked once for all absent
//! keys.
//!
//! A change must ensure that one call loads the absent keys, each of them once, and that their
//! entries are charged to the tenant.

#[cfg(feature = "async")]
use std::future::Future;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::TenantView;
use crate::cache::load::filled::Filled;
use crate::cache::load::many::{values_of, ManyLookup};

impl<K, V, S> TenantView<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// See [`Cache::get_many`](crate::Cache::get_many).
    pub fn get_many<'q, Q>(&self, keys: impl IntoIterator<Item = &'q Q>) -> Vec<Option<V>>
    where
        Q: Hash + Equivalent<K> + ?Sized + 'q,
    {
        keys.into_iter().map(|key| self.get(key)).collect()
    }

    /// See [`Cache::get_or_load_many`](crate::Cache::get_or_load_many). New entries are charged to
    /// the tenant.
    ///
    /// ```
    /// use lowwater::cache::TenantKey;
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let rows = Cache::<TenantKey<u64>, String>::builder(&runtime).weigher(|_, row| row.capacity()).build()?;
    /// let shop = runtime.group("shop")?;
    /// let query = |ids: &[u64]| Ok::<_, std::io::Error>(ids.iter().map(|id| format!("row {id}")).collect());
    /// assert_eq!(rows.tenant(&shop)?.get_or_load_many([1, 2], query)?, ["row 1", "row 2"]);
    /// assert_eq!(rows.len_of(&shop), 2);
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

    /// See [`Cache::get_or_fill_many`](crate::Cache::get_or_fill_many). New entries are charged to
    /// the tenant.
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
        let many = self.look_up_many(keys);
        let loaded = if many.absent.is_empty() { Vec::new() } else { load(&many.absent)? };
        Ok(self.finish_many(many, loaded))
    }

    /// The async form of [`get_or_load_many`](Self::get_or_load_many).
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

    /// The async form of [`get_or_fill_many`](Self::get_or_fill_many).
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
        let many = self.look_up_many(keys);
        let loaded = if many.absent.is_empty() { Vec::new() } else { load(many.absent.clone()).await? };
        Ok(self.finish_many(many, loaded))
    }

    fn look_up_many(&self, keys: impl IntoIterator<Item = K>) -> ManyLookup<K, V> {
        let hash = |key: &K| self.cache.inner.core.hash(&self.key_ref(key));
        ManyLookup::new(keys, |key| self.get(key), hash)
    }

    fn finish_many(&self, many: ManyLookup<K, V>, loaded: Vec<V>) -> Vec<Filled<V>> {
        many.finish(loaded, |key, value| self.entry(key).keep_loaded(value))
    }
}
