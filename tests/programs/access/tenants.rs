//! The way to the entries of tenants, by their views.
//!
//! Even numbers belong to one tenant, odd ones to the other. A lookup of one tenant's key is also
//! made in the name space of the other, where the key must be absent.
//!
//! A change must ensure that a method of a view is used where there is one.

use std::time::Duration;

#[cfg(feature = "async")]
use super::{certain, load_entry_async, LoadFuture, Loading};
use super::{load_entry, numbers_of, with_origins, Access, LoadResult, Loader, ManyLoader, ManyResult};
use crate::key::{FromNumber, Hashing};
use crate::step::LoadForm;
use crate::token::fail;
use crate::value::Value;
use lowwater::cache::{Entry, Hit, TenantKey, TenantView};
use lowwater::{Cache, Memcg};

/// Two groups of the runtime, which may be the same one.
pub struct Tenants(pub [Memcg; 2]);

impl Tenants {
    fn view<'a, K: FromNumber, V: Value>(
        &'a self,
        cache: &'a Cache<TenantKey<K>, V, Hashing>,
        number: u32,
    ) -> TenantView<'a, K, V, Hashing> {
        let view = cache.tenant(&self.0[number as usize % 2]).expect("a group of this runtime");
        if view.group() != &self.0[number as usize % 2] || view.cache().len() > usize::MAX / 2 {
            fail("a view of another tenant");
        }
        view
    }

    /// Fails if the other tenant has this tenant's key.
    fn check_other<K: FromNumber, V: Value>(&self, cache: &Cache<TenantKey<K>, V, Hashing>, number: u32) {
        let view = self.view(cache, number + 1);
        if self.0[0] == self.0[1] {
            return;
        }
        let found = cache.pin().peek(&view.key_ref(&K::of(number))).map(Value::tag);
        if found.is_some() || view.contains_key(&K::of(number)) || view.peek(&K::of(number)).is_some() {
            fail(&format!("key {number} is in the name space of another tenant: {found:?}"));
        }
    }
}

type Tenanted<K, V> = Cache<TenantKey<K>, V, Hashing>;

impl<K: FromNumber, V: Value> Access<TenantKey<K>, V> for Tenants {
    fn key(&self, cache: &Tenanted<K, V>, number: u32) -> TenantKey<K> {
        let key = self.view(cache, number).key(K::of(number));
        // A clone is equal, and consists of the group and the key.
        if key.clone().into_key().number() != number || key.key().number() != number {
            fail("the key of a tenant has another inner key");
        }
        key
    }

    fn get(&self, cache: &Tenanted<K, V>, number: u32) -> Option<V> {
        self.check_other(cache, number);
        self.view(cache, number).get(&K::of(number))
    }

    fn peek(&self, cache: &Tenanted<K, V>, number: u32) -> Option<V> {
        self.view(cache, number).peek(&K::of(number))
    }

    fn contains(&self, cache: &Tenanted<K, V>, number: u32) -> bool {
        self.view(cache, number).contains_key(&K::of(number))
    }

    fn remove(&self, cache: &Tenanted<K, V>, number: u32) -> Option<V> {
        self.view(cache, number).remove(&K::of(number))
    }

    fn touch(&self, cache: &Tenanted<K, V>, number: u32, time: Option<Duration>) -> bool {
        self.view(cache, number).touch(&K::of(number), time)
    }

    fn entry<'a>(&'a self, cache: &'a Tenanted<K, V>, number: u32) -> Entry<'a, TenantKey<K>, V, Hashing> {
        self.view(cache, number).entry(K::of(number))
    }

    fn get_many(&self, cache: &Tenanted<K, V>, numbers: &[u32]) -> Vec<Option<V>> {
        let keys: Vec<K> = numbers.iter().copied().map(K::of).collect();
        match of_one(numbers) {
            Some(number) => self.view(cache, number).get_many(&keys),
            None => numbers.iter().map(|number| self.get(cache, *number)).collect(),
        }
    }

    fn load(&self, cache: &Tenanted<K, V>, number: u32, form: LoadForm, loader: Loader<'_, V>) -> LoadResult<V> {
        let view = self.view(cache, number);
        load_from!(view, K::of(number), form, loader, view.entry(K::of(number)))
    }

    fn load_many(
        &self,
        cache: &Tenanted<K, V>,
        numbers: &[u32],
        fills: bool,
        loader: ManyLoader<'_, V>,
    ) -> ManyResult<V> {
        let Some(number) = of_one(numbers) else {
            let keys = numbers.iter().map(|number| self.key(cache, *number));
            return load_many_from!(cache, keys, fills, |keys: &[TenantKey<K>]| loader(&numbers_of(keys)));
        };
        let keys = numbers.iter().copied().map(K::of);
        load_many_from!(self.view(cache, number), keys, fills, |keys: &[K]| loader(&numbers_of(keys)))
    }

    #[cfg(feature = "async")]
    fn load_async<'a>(
        &'a self,
        cache: &'a Tenanted<K, V>,
        number: u32,
        form: LoadForm,
        load: Loading<'a, V>,
    ) -> LoadFuture<'a, V> {
        Box::pin(async move {
            let view = self.view(cache, number);
            load_async_from!(view, K::of(number), form, load, view.entry(K::of(number)))
        })
    }

    fn get_or_refresh(&self, cache: &Tenanted<K, V>, number: u32) -> Option<Hit<TenantKey<K>, V, Hashing>> {
        self.view(cache, number).get_or_refresh(&K::of(number))
    }
}

/// Returns the first number, if all belong to one tenant.
fn of_one(numbers: &[u32]) -> Option<u32> {
    let first = *numbers.first()?;
    numbers.iter().all(|number| number % 2 == first % 2).then_some(first)
}
