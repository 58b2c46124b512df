//! The ways to the entries of a cache: by the cache itself, or by the views of tenants.
//!
//! The default methods use the cache itself. `Tenants` overrides those that a `TenantView` has, so
//! that each step on keys runs the view's method in a cache of tenants' keys.
//!
//! A change must ensure that a number always gives an equal key.

/// Loads by a cache or a view, which have the same methods.
macro_rules! load_from {
    ($source:expr, $key:expr, $form:expr, $loader:expr, $entry:expr) => {{
        let certain = |loader: Loader<'_, V>| loader().expect("this form cannot fail");
        let value = match $form {
            LoadForm::Plain => $source.get_or_insert_with($key, || certain($loader)),
            LoadForm::Ref => $source.get_or_insert_with_ref(&$key, || certain($loader)),
            LoadForm::Try => $source.try_get_or_insert_with($key, $loader)?,
            LoadForm::TryRef => $source.try_get_or_insert_with_ref(&$key, $loader)?,
            form => return load_entry($entry, form, $loader),
        };
        Ok((value, None))
    }};
}

/// Loads many keys by a cache or a view, which have the same methods.
macro_rules! load_many_from {
    ($source:expr, $keys:expr, $fills:expr, $loader:expr) => {{
        if $fills {
            return $source.get_or_fill_many($keys, $loader).map(with_origins);
        }
        Ok($source.get_or_load_many($keys, $loader)?.into_iter().map(|value| (value, None)).collect())
    }};
}

/// Loads by a cache or a view in a task.
#[cfg(feature = "async")]
macro_rules! load_async_from {
    ($source:expr, $key:expr, $form:expr, $load:expr, $entry:expr) => {{
        let value = match $form {
            LoadForm::Plain => $source.get_or_insert_with_async($key, certain($load)).await,
            LoadForm::Ref => $source.get_or_insert_with_ref_async(&$key, certain($load)).await,
            LoadForm::Try => $source.try_get_or_insert_with_async($key, $load).await?,
            LoadForm::TryRef => $source.try_get_or_insert_with_ref_async(&$key, $load).await?,
            form => return load_entry_async($entry, form, $load).await,
        };
        Ok((value, None))
    }};
}

mod tenants;

#[cfg(feature = "async")]
use std::future::Future;
#[cfg(feature = "async")]
use std::pin::Pin;
use std::time::Duration;

use lowwater::cache::{Entry, Filled, Hit, Origin};
use lowwater::Cache;

use crate::key::{FromNumber, Hashing, Key};
use crate::step::LoadForm;
use crate::value::Value;

pub use tenants::Tenants;

/// A loaded value, and its origin if the form of the load returns it.
pub type LoadResult<V> = Result<(V, Option<Origin>), ()>;

/// The function that loads one value, or one value for each key.
pub type Loader<'a, V> = &'a mut dyn FnMut() -> Result<V, ()>;
pub type ManyLoader<'a, V> = &'a mut dyn FnMut(&[u32]) -> Result<Vec<V>, ()>;

/// The values of many keys, each with its origin if the form of the load returns it.
pub type ManyResult<V> = Result<Vec<(V, Option<Origin>)>, ()>;

#[cfg(feature = "async")]
pub type Loading<'a, V> = Pin<Box<dyn Future<Output = Result<V, ()>> + 'a>>;
#[cfg(feature = "async")]
pub type LoadFuture<'a, V> = Pin<Box<dyn Future<Output = LoadResult<V>> + 'a>>;

/// The way to the entries of one cache.
pub trait Access<K: Key, V: Value>: Send + Sync {
    /// Returns the key of a number.
    fn key(&self, cache: &Cache<K, V, Hashing>, number: u32) -> K;

    fn get(&self, cache: &Cache<K, V, Hashing>, number: u32) -> Option<V> {
        cache.get(&self.key(cache, number))
    }

    fn peek(&self, cache: &Cache<K, V, Hashing>, number: u32) -> Option<V> {
        cache.peek(&self.key(cache, number))
    }

    fn contains(&self, cache: &Cache<K, V, Hashing>, number: u32) -> bool {
        cache.contains_key(&self.key(cache, number))
    }

    fn remove(&self, cache: &Cache<K, V, Hashing>, number: u32) -> Option<V> {
        cache.remove(&self.key(cache, number))
    }

    fn touch(&self, cache: &Cache<K, V, Hashing>, number: u32, time: Option<Duration>) -> bool {
        cache.touch(&self.key(cache, number), time)
    }

    fn entry<'a>(&'a self, cache: &'a Cache<K, V, Hashing>, number: u32) -> Entry<'a, K, V, Hashing> {
        cache.entry(self.key(cache, number))
    }

    fn get_many(&self, cache: &Cache<K, V, Hashing>, numbers: &[u32]) -> Vec<Option<V>> {
        let keys: Vec<K> = numbers.iter().map(|number| self.key(cache, *number)).collect();
        cache.get_many(&keys)
    }

    /// Loads one value in this thread.
    fn load(&self, cache: &Cache<K, V, Hashing>, number: u32, form: LoadForm, loader: Loader<'_, V>) -> LoadResult<V> {
        load_from!(cache, self.key(cache, number), form, loader, self.entry(cache, number))
    }

    /// Loads the absent ones of many keys; with their origins if `fills`.
    fn load_many(
        &self,
        cache: &Cache<K, V, Hashing>,
        numbers: &[u32],
        fills: bool,
        loader: ManyLoader<'_, V>,
    ) -> ManyResult<V> {
        let keys = numbers.iter().map(|number| self.key(cache, *number));
        load_many_from!(cache, keys, fills, |keys: &[K]| loader(&numbers_of(keys)))
    }

    /// The async form of [`load`](Self::load).
    #[cfg(feature = "async")]
    fn load_async<'a>(
        &'a self,
        cache: &'a Cache<K, V, Hashing>,
        number: u32,
        form: LoadForm,
        load: Loading<'a, V>,
    ) -> LoadFuture<'a, V> {
        Box::pin(async move { load_async_from!(cache, self.key(cache, number), form, load, self.entry(cache, number)) })
    }

    /// The async form of [`load_many`](Self::load_many). The loader returns at once.
    #[cfg(feature = "async")]
    fn load_many_async<'a>(
        &'a self,
        cache: &'a Cache<K, V, Hashing>,
        numbers: &'a [u32],
        fills: bool,
        loader: ManyLoader<'a, V>,
    ) -> Pin<Box<dyn Future<Output = ManyResult<V>> + 'a>> {
        let keys = numbers.iter().map(|number| self.key(cache, *number));
        let load = |keys: Vec<K>| std::future::ready(loader(&numbers_of(&keys)));
        Box::pin(async move {
            if fills {
                return cache.get_or_fill_many_async(keys, load).await.map(with_origins);
            }
            let values = cache.get_or_load_many_async(keys, load).await?;
            Ok(values.into_iter().map(|value| (value, None)).collect())
        })
    }

    /// Looks a value up, and returns it with the right to reload it.
    fn get_or_refresh(&self, cache: &Cache<K, V, Hashing>, number: u32) -> Option<Hit<K, V, Hashing>> {
        cache.get_or_refresh(&self.key(cache, number))
    }
}

fn numbers_of<K: Key>(keys: &[K]) -> Vec<u32> {
    keys.iter().map(Key::number).collect()
}

fn with_origins<V>(filled: Vec<Filled<V>>) -> Vec<(V, Option<Origin>)> {
    filled.into_iter().map(|filled| (filled.value, Some(filled.origin))).collect()
}

/// Loads by the methods of an entry.
fn load_entry<K: Key, V: Value>(
    entry: Entry<'_, K, V, Hashing>,
    form: LoadForm,
    loader: Loader<'_, V>,
) -> LoadResult<V> {
    let filled = match form {
        LoadForm::Entry => return Ok((entry.or_insert_with(|| loader().expect("this form cannot fail")), None)),
        LoadForm::EntryTry => return Ok((entry.or_try_insert_with(loader)?, None)),
        LoadForm::Refresh => entry.refresh().or_try_fill_with(loader)?,
        _ => entry.or_try_fill_with(loader)?,
    };
    Ok((filled.value, Some(filled.origin)))
}

/// The value of a load that cannot fail.
#[cfg(feature = "async")]
async fn certain<V>(load: Loading<'_, V>) -> V {
    load.await.expect("this form cannot fail")
}

#[cfg(feature = "async")]
async fn load_entry_async<K: Key, V: Value>(
    entry: Entry<'_, K, V, Hashing>,
    form: LoadForm,
    load: Loading<'_, V>,
) -> LoadResult<V> {
    let filled = match form {
        LoadForm::Entry => {
            return Ok((entry.or_insert_with_async(certain(load)).await, None));
        }
        LoadForm::EntryTry => return Ok((entry.or_try_insert_with_async(load).await?, None)),
        LoadForm::Refresh => entry.refresh().or_try_fill_with_async(load).await?,
        _ => entry.or_try_fill_with_async(load).await?,
    };
    Ok((filled.value, Some(filled.origin)))
}

/// The way by the cache itself.
pub struct Own;

impl<K: FromNumber, V: Value> Access<K, V> for Own {
    fn key(&self, _: &Cache<K, V, Hashing>, number: u32) -> K {
        K::of(number)
    }
}
