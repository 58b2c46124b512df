//! Name spaces: keys that belong to a tenant, and a view of a cache restricted to them.
//!
//! The group that [`Entry::group`](super::Entry::group) names is charged, and is no part of the
//! key. In a [`TenantKey`] the group is a part of the key: a cache of such keys has a view for each
//! tenant, and a cache of other keys has no overhead.
//!
//! A key holds a handle on its group, not the group's id: an id belongs to its group until the last
//! handle is dropped, so a new group never finds the entries of an ended one.
//!
//! A change must ensure that a [`TenantKeyRef`] has the hash of the `TenantKey`s that are equal to
//! it: both derive `Hash`, with the same fields in the same order.

mod by_ref;
mod many;

#[cfg(feature = "async")]
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use equivalent::Equivalent;
use hashbrown::DefaultHashBuilder;
use lowwater_lru_core::{Memcg, MemcgError};

use super::entry::Entry;
use super::error::InsertError;
use super::handle::Cache;
use super::load::refresh::Hit;

/// A key in the name space of one tenant; from [`TenantView::key`].
///
/// Two keys are equal if their groups are the same group and their inner keys are equal. A
/// `TenantKey` is a pointer and the key. The group's memory and its id are kept while a key exists,
/// also after the group has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TenantKey<K> {
    group: Memcg,
    key: K,
}

/// A borrowed [`TenantKey`], for lookups; from [`TenantView::key_ref`].
#[derive(Debug, Hash)]
pub struct TenantKeyRef<'a, Q: ?Sized> {
    group: &'a Memcg,
    key: &'a Q,
}

/// The entries of one tenant in a cache of [`TenantKey`]s: a name space; from [`Cache::tenant`].
///
/// The same key of two tenants is two entries. New entries are charged to the tenant. A view is two
/// references and is made without an allocation. Lookups clone no key, except for the right to
/// reload of [`get_or_refresh`](Self::get_or_refresh).
///
/// ```
/// use lowwater::cache::TenantKey;
/// use lowwater::{ByteSize, Cache, Runtime};
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
/// let pages = Cache::<TenantKey<String>, String>::builder(&runtime)
///     .weigher(|key, page| key.key().capacity() + page.capacity())
///     .build()?;
/// let (shop, blog) = (runtime.group("shop")?, runtime.group("blog")?);
///
/// pages.tenant(&shop)?.insert("/".into(), "<shop>".into())?;
/// assert_eq!(pages.tenant(&blog)?.get("/"), None);
/// pages.tenant(&blog)?.insert("/".into(), "<blog>".into())?;
/// assert_eq!(pages.tenant(&shop)?.get("/").as_deref(), Some("<shop>"));
/// assert_eq!((pages.len_of(&shop), pages.len_of(&blog)), (1, 1));
///
/// // Without a clone of the value:
/// let (pinned, tenant) = (pages.pin(), pages.tenant(&blog)?);
/// assert_eq!(pinned.get(&tenant.key_ref("/")).map(String::len), Some(6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # When the group ends
///
/// After [`Runtime::end_group`](crate::Runtime::end_group) the entries are charged to the parent,
/// and stay in the name space of the ended group: only a caller that still has a handle on the
/// group finds them, and unused they are evicted. Inserts by such a handle are charged to the
/// nearest online ancestor. A new group is another name space, even with the same path. After
/// [`Runtime::drop_group`](crate::Runtime::drop_group) the entries are removed, but a
/// [reload](crate::cache::Refresh) in progress inserts its value, charged to the parent.
///
/// A tenant's name space is emptied at once by `cache.retain(|key, _| key.group() != &group)`.
/// O(entries of the cache).
pub struct TenantView<'a, K, V, S = DefaultHashBuilder> {
    cache: &'a Cache<TenantKey<K>, V, S>,
    group: &'a Memcg,
}

impl<K> TenantKey<K> {
    /// Returns the tenant to which the key belongs. Inserts by a [`TenantView`] are charged to it.
    /// Inserts by [`Cache::insert`] and other methods of the cache are not: see
    /// [`TenantView::key`].
    pub fn group(&self) -> &Memcg {
        &self.group
    }

    /// Returns the key in the tenant's name space.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Drops the group's handle and returns the key.
    pub fn into_key(self) -> K {
        self.key
    }
}

impl<K, Q> Equivalent<TenantKey<K>> for TenantKeyRef<'_, Q>
where
    Q: Equivalent<K> + ?Sized,
{
    #[inline]
    fn equivalent(&self, key: &TenantKey<K>) -> bool {
        *self.group == key.group && self.key.equivalent(&key.key)
    }
}

impl<K, V, S> Cache<TenantKey<K>, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the view of one tenant, whose keys are the tenant's own. O(1), without an allocation
    /// or a lock.
    ///
    /// For keys that all tenants share, use a common group, such as the
    /// [root](crate::Runtime::root).
    ///
    /// # Errors
    ///
    /// [`MemcgError::Foreign`] for a group of another runtime.
    #[inline]
    pub fn tenant<'a>(&'a self, group: &'a Memcg) -> Result<TenantView<'a, K, V, S>, MemcgError> {
        match group.is_in_tree_of(&self.inner.group) {
            true => Ok(TenantView { cache: self, group }),
            false => Err(MemcgError::Foreign),
        }
    }
}

impl<'a, K, V, S> TenantView<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the group of the tenant, to which new entries of this view are charged.
    pub fn group(&self) -> &'a Memcg {
        self.group
    }

    /// Returns the cache, with the keys of all tenants.
    pub fn cache(&self) -> &'a Cache<TenantKey<K>, V, S> {
        self.cache
    }

    /// Returns `key` in the tenant's name space, for methods of the cache that take a key.
    ///
    /// **These methods charge a new entry to the cache's own group**, and [`Cache::load`] charges
    /// the group that [`Meta::group`](super::Meta::group) names, regardless of the group in the
    /// key: then the tenant's limits do not hold for the entry. To charge the tenant, insert
    /// through the view, or name the group: `cache.entry(view.key(7)).group(view.group())`.
    pub fn key(&self, key: K) -> TenantKey<K> {
        TenantKey { group: self.group.clone(), key }
    }

    /// Returns `key` in the tenant's name space, for [`Pinned::get`](super::Pinned::get) and other
    /// lookups of the cache.
    #[inline]
    pub fn key_ref<'q, Q: ?Sized>(&self, key: &'q Q) -> TenantKeyRef<'q, Q>
    where
        'a: 'q,
    {
        TenantKeyRef { group: self.group, key }
    }

    /// See [`Cache::get`].
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.cache.get(&self.key_ref(key))
    }

    /// See [`Cache::peek`].
    pub fn peek<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.cache.peek(&self.key_ref(key))
    }

    /// See [`Cache::get_or_refresh`]. The new value is charged to the group of the old one.
    pub fn get_or_refresh<Q>(&self, key: &Q) -> Option<Hit<TenantKey<K>, V, S>>
    where
        K: Clone,
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.cache.get_or_refresh_for(&self.key_ref(key), self.group)
    }

    /// See [`Cache::contains_key`].
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.cache.contains_key(&self.key_ref(key))
    }

    /// See [`Cache::remove`].
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.cache.remove(&self.key_ref(key))
    }

    /// See [`Cache::touch`].
    pub fn touch<Q>(&self, key: &Q, time_to_live: Option<Duration>) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.cache.touch(&self.key_ref(key), time_to_live)
    }

    /// Inserts a value as [`Cache::insert`] does. A new entry is charged to the tenant; a present
    /// entry keeps its group.
    ///
    /// # Errors
    ///
    /// Those of [`Cache::insert`].
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, InsertError<V>> {
        self.entry(key).insert(value)
    }

    /// Returns an entry as [`Cache::entry`] does. A new entry is charged to the tenant; a present
    /// entry keeps its group, unless [`Entry::group`] names another.
    pub fn entry(&self, key: K) -> Entry<'a, TenantKey<K>, V, S> {
        Entry::with_default_group(self.cache, self.key(key), self.group)
    }

    /// See [`Cache::get_or_insert_with`].
    pub fn get_or_insert_with(&self, key: K, load: impl FnOnce() -> V) -> V {
        self.hit(&key).unwrap_or_else(|| self.entry(key).or_insert_with(load))
    }

    /// See [`Cache::try_get_or_insert_with`].
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a follower calls its own `load`.
    pub fn try_get_or_insert_with<E>(&self, key: K, load: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        self.hit(&key).map_or_else(|| self.entry(key).or_try_insert_with(load), Ok)
    }

    /// See [`Cache::get_or_insert_with_async`].
    #[cfg(feature = "async")]
    pub async fn get_or_insert_with_async(&self, key: K, load: impl Future<Output = V>) -> V {
        match self.hit(&key) {
            Some(value) => value,
            None => self.entry(key).or_insert_with_async(load).await,
        }
    }

    /// See [`Cache::try_get_or_insert_with_async`].
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a follower runs its own load.
    #[cfg(feature = "async")]
    pub async fn try_get_or_insert_with_async<E>(
        &self,
        key: K,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        match self.hit(&key) {
            Some(value) => Ok(value),
            None => self.entry(key).or_try_insert_with_async(load).await,
        }
    }

    /// Returns the value of `key`, and counts a hit, but no miss, as the caller's entry counts it.
    /// Unlike the entry, `hit` clones no handle on the group: otherwise all hits of one tenant
    /// would write the group's reference count.
    fn hit<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.cache.get_hit(&self.key_ref(key))
    }
}

impl<K, V, S> Clone for TenantView<'_, K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V, S> Copy for TenantView<'_, K, V, S> {}

impl<K, V, S> std::fmt::Debug for TenantView<'_, K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TenantView").field("cache", self.cache).field("group", self.group).finish()
    }
}
