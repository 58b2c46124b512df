//! Loads of one tenant's entries by a reference to the key, which is cloned only on a miss.
//!
//! A change must ensure that a hit clones neither the key nor the group's handle, and that a miss
//! is counted once.

#[cfg(feature = "async")]
use std::future::Future;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::TenantView;

impl<K, V, S> TenantView<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// See [`Cache::get_or_insert_with_ref`](crate::Cache::get_or_insert_with_ref). A new entry is
    /// charged to the tenant.
    pub fn get_or_insert_with_ref<Q>(&self, key: &Q, load: impl FnOnce() -> V) -> V
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        self.hit(key).unwrap_or_else(|| self.entry(key.to_owned()).or_insert_with(load))
    }

    /// See [`Cache::try_get_or_insert_with_ref`](crate::Cache::try_get_or_insert_with_ref). A new
    /// entry is charged to the tenant.
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a follower calls its own `load`.
    pub fn try_get_or_insert_with_ref<Q, E>(&self, key: &Q, load: impl FnOnce() -> Result<V, E>) -> Result<V, E>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        self.hit(key).map_or_else(|| self.entry(key.to_owned()).or_try_insert_with(load), Ok)
    }

    /// The async form of [`get_or_insert_with_ref`](Self::get_or_insert_with_ref).
    #[cfg(feature = "async")]
    pub async fn get_or_insert_with_ref_async<Q>(&self, key: &Q, load: impl Future<Output = V>) -> V
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        match self.hit(key) {
            Some(value) => value,
            None => self.entry(key.to_owned()).or_insert_with_async(load).await,
        }
    }

    /// The async form of [`try_get_or_insert_with_ref`](Self::try_get_or_insert_with_ref).
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a follower runs its own load.
    #[cfg(feature = "async")]
    pub async fn try_get_or_insert_with_ref_async<Q, E>(
        &self,
        key: &Q,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        match self.hit(key) {
            Some(value) => Ok(value),
            None => self.entry(key.to_owned()).or_try_insert_with_async(load).await,
        }
    }
}
