//! Read-through by a reference to the key: a hit clones no key.
//!
//! Most calls hit, and an owned key may need an allocation, so the key is cloned only after a
//! lookup without a hit. That lookup ([`get_hit`](Cache::get_hit)) counts no miss: the load that
//! follows looks the key up again, and counts it. A change must ensure that a miss is counted once.

use std::borrow::ToOwned;
#[cfg(feature = "async")]
use std::future::Future;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use crate::cache::handle::Cache;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// As [`get_or_insert_with`](Self::get_or_insert_with), by a reference to the key, which is
    /// cloned only if it is absent.
    ///
    /// ```
    /// use lowwater::{Cache, Runtime, ByteSize};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let lengths = Cache::<String, usize>::builder(&runtime).weigher(|word, _| word.capacity()).build()?;
    /// for word in ["a", "word", "a", "a"] {
    ///     assert_eq!(lengths.get_or_insert_with_ref(word, || word.len()), word.len());
    /// }
    /// assert_eq!((lengths.stats().hits, lengths.stats().misses), (2, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "get_with_by_ref")]
    pub fn get_or_insert_with_ref<Q>(&self, key: &Q, load: impl FnOnce() -> V) -> V
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        match self.get_hit(key) {
            Some(value) => value,
            None => self.get_or_insert_with(key.to_owned(), load),
        }
    }

    /// As [`try_get_or_insert_with`](Self::try_get_or_insert_with), by a reference to the key,
    /// which is cloned only if it is absent.
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a call that waits for this load calls its
    /// own `load`.
    #[doc(alias = "try_get_with_by_ref")]
    pub fn try_get_or_insert_with_ref<Q, E>(&self, key: &Q, load: impl FnOnce() -> Result<V, E>) -> Result<V, E>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        match self.get_hit(key) {
            Some(value) => Ok(value),
            None => self.try_get_or_insert_with(key.to_owned(), load),
        }
    }

    /// The async form of [`get_or_insert_with_ref`](Self::get_or_insert_with_ref).
    #[cfg(feature = "async")]
    pub async fn get_or_insert_with_ref_async<Q>(&self, key: &Q, load: impl Future<Output = V>) -> V
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        match self.get_hit(key) {
            Some(value) => value,
            None => self.get_or_insert_with_async(key.to_owned(), load).await,
        }
    }

    /// The async form of [`try_get_or_insert_with_ref`](Self::try_get_or_insert_with_ref).
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a call that waits for this load runs its
    /// own.
    #[cfg(feature = "async")]
    pub async fn try_get_or_insert_with_ref_async<Q, E>(
        &self,
        key: &Q,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        match self.get_hit(key) {
            Some(value) => Ok(value),
            None => self.try_get_or_insert_with_async(key.to_owned(), load).await,
        }
    }
}
