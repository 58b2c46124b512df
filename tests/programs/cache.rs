//! Caches of all types behind one trait. Every value that is found is checked: it must be alive,
//! and belong to the key and the cache where it was found.
//!
//! A program's steps name caches by slot and do not know their types; this trait runs a step on any
//! of them and checks each returned value against its token.

use std::any::Any;
#[cfg(feature = "async")]
use std::future::Future;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;
use std::time::Duration;

use lowwater::cache::{
    CacheBuilder, Computed, Entry, Eviction, ExpiryEvent, Lifetime, Meta, Op, Origin, TenantKey, Visit,
};
use lowwater::{ByteSize, Cache, Charged, Memcg, Runtime};

use crate::access::{Access, Own, Tenants};
use crate::callback::{self, enter, Callback};
use crate::key::{FromNumber, Hashing, Key};
use crate::reload::AnyReload;
use crate::step::{CacheChoices, ComputeAnswer, GroupLimit, Life, Loading};
use crate::token::{fail, Tag, Token};
use crate::value::{Large, Owning, Plain, Value};
use crate::world::{self, at, swap};

/// The result of a computation.
pub enum Outcome {
    Inserted,
    Replaced(Tag),
    Removed(Tag),
    Kept,
    Refused,
}

/// A value that a load has returned, and its origin if the load returns that.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub tag: Tag,
    pub origin: Option<Origin>,
}

/// A value, whether it is stale, and the right to reload it.
pub type AnyHit = (Tag, bool, Option<Box<dyn AnyReload>>);

/// A handle of a cache of any type. The methods are steps on the cache; each checks the values that
/// the cache returns or passes to a callback.
pub trait AnyCache: Send + Sync {
    /// Clones the handle.
    fn clone_box(&self) -> Box<dyn AnyCache>;
    fn id(&self) -> u32;
    /// Whether its hashes are consistent.
    fn is_honest(&self) -> bool;
    fn get(&self, key: u32) -> Option<Tag>;
    fn peek(&self, key: u32) -> Option<Tag>;
    fn contains(&self, key: u32) -> bool;
    fn get_many(&self, keys: &[u32]) -> Vec<Option<Tag>>;
    /// Returns a clone of a value, to be kept.
    fn value(&self, key: u32) -> Option<Box<dyn KeptValue>>;
    fn get_or_refresh(&self, key: u32) -> Option<AnyHit>;
    fn insert(&self, tag: Tag, group: Option<&Memcg>, life: Life) -> Result<Option<Tag>, ()>;
    /// Returns whether another value was replaced.
    fn set(&self, tag: Tag, group: Option<&Memcg>, life: Life) -> Result<bool, ()>;
    fn remove(&self, key: u32) -> Option<Tag>;
    fn touch(&self, key: u32, life: Life) -> bool;
    /// Returns the value; nothing if the loader has failed, or the load was dropped.
    fn load(&self, tag: Tag, how: Loading) -> Option<Loaded>;
    /// Returns the values of the tags' keys; nothing if the loader has failed.
    fn load_many(&self, tags: &[Tag], fills: bool, fails: bool, is_async: bool) -> Option<Vec<Loaded>>;
    fn compute(
        &self,
        tag: Tag,
        answer: ComputeAnswer,
        group: Option<&Memcg>,
        life: Life,
    ) -> Result<(Outcome, Option<Tag>), ()>;
    fn retain(&self, keep: &mut dyn FnMut(u32) -> bool);
    fn clear(&self);
    fn collect(&self);
    fn visit(&self, parts: u8);
    fn save(&self) -> Saved;
    fn load_saved(&self, saved: Saved);
    fn look(&self, group: &Memcg);
    fn len(&self) -> usize;
    fn pinned(&self, inside: Inside<'_>);
    fn iter(&self, inside: &mut dyn FnMut());
}

/// A value that was found in a cache and is kept.
pub trait KeptValue: Send {
    /// Checks that it is still the value that was found.
    fn check(&self);
}

impl<V: Value> KeptValue for (Tag, V) {
    fn check(&self) {
        if self.1.tag() != self.0 {
            fail(&format!("a kept value of {:?} has become {:?}", self.0, self.1.tag()));
        }
    }
}

/// Code that runs while the cache is pinned; its argument looks a key up through the pin.
pub type Inside<'a> = &'a mut dyn FnMut(&dyn Fn(u32));

/// The entries that `save` returned, of one type.
pub type Saved = Box<dyn Any + Send>;

struct Typed<K: Key, V: Value> {
    id: u32,
    is_honest: bool,
    cache: Cache<K, V, Hashing>,
    access: Arc<dyn Access<K, V>>,
}

/// Builds a cache of the types that the choices select.
pub fn build(
    runtime: &Runtime,
    id: u32,
    choices: &CacheChoices,
    group: Option<&Memcg>,
    tenants: [Memcg; 2],
) -> Option<Box<dyn AnyCache>> {
    match choices.kind {
        0 => own::<u32, Owning>(runtime, id, choices, group),
        1 => own::<crate::key::Owning, Owning>(runtime, id, choices, group),
        2 => own::<u32, Arc<Token>>(runtime, id, choices, group),
        3 => own::<crate::key::Owning, Large>(runtime, id, choices, group),
        4 => own::<u32, Plain>(runtime, id, choices, group),
        7 => {
            let builder = Cache::<u32, Charged<Token>>::builder(runtime).charge_held_values();
            typed(builder, id, choices, group, Arc::new(Own))
        }
        5 => typed::<TenantKey<u32>, Owning>(Cache::builder(runtime), id, choices, group, Arc::new(Tenants(tenants))),
        _ => typed::<TenantKey<crate::key::Owning>, Plain>(
            Cache::builder(runtime),
            id,
            choices,
            group,
            Arc::new(Tenants(tenants)),
        ),
    }
}

fn own<K: FromNumber, V: Value>(
    runtime: &Runtime,
    id: u32,
    choices: &CacheChoices,
    group: Option<&Memcg>,
) -> Option<Box<dyn AnyCache>> {
    typed::<K, V>(Cache::builder(runtime), id, choices, group, Arc::new(Own))
}

/// Builds a cache of these key and value types, with all callbacks of the choices.
fn typed<K: Key, V: Value>(
    builder: CacheBuilder<K, V>,
    id: u32,
    choices: &CacheChoices,
    group: Option<&Memcg>,
    access: Arc<dyn Access<K, V>>,
) -> Option<Box<dyn AnyCache>> {
    let weight = u64::from(choices.weight);
    // The closures below capture one each, as state that is dropped with the cache.
    let captured = || Token::new(Tag { home: id, key: 0, version: 0 }, Callback::CaptureDrop);
    let weighs = captured();
    let hashing = match choices.hashing {
        0 => Hashing::Few(1),
        1 => Hashing::Few(7),
        11 => Hashing::Lying,
        _ => Hashing::Random(RandomState::new()),
    };
    let is_honest = !matches!(hashing, Hashing::Lying);
    let mut builder = builder.name(format!("cache {id}")).eviction(match choices.eviction {
        0 => Eviction::Lru,
        1 => Eviction::S3Fifo,
        2 => Eviction::Sieve,
        3 => Eviction::SecondChance,
        _ => Eviction::Adaptive,
    });
    builder = match choices.life {
        Life::Default | Life::Forever => builder,
        Life::Live(ms) => builder.time_to_live(Duration::from_millis(ms.into())),
        Life::Idle(ms) => builder.time_to_idle(Duration::from_millis(ms.into())),
    };
    let ms = |ms: u8| Duration::from_millis(ms.into());
    if let Some(idle) = choices.idle {
        builder = builder.time_to_idle(ms(idle));
    }
    if choices.computes_times {
        let times = captured();
        builder = builder.expire_after(move |key: &K, value: &V, event| {
            times.check("passed to the function of times");
            is_of(id, key.number(), value.tag(), "passed to the function of times");
            match (key.number() % 4, event) {
                (0, _) | (_, ExpiryEvent::Read { .. }) => Lifetime::Unchanged,
                (1, _) => Lifetime::Forever,
                (2, _) => Lifetime::Live(Duration::from_millis(20)),
                _ => Lifetime::Idle(Duration::from_millis(20)),
            }
        });
    }
    builder = builder.refresh_ahead(ms(choices.ahead)).stale_while_revalidate(ms(choices.stale));
    if let Some((limit, kib)) = choices.limit {
        let kib = |halves: u64| ByteSize::kib(u64::from(kib) * halves / 2);
        builder = match limit {
            GroupLimit::Min => builder.min(kib(2)).low(kib(3)),
            GroupLimit::Low => builder.low(kib(2)),
            GroupLimit::High => builder.high(kib(2)).max(kib(3)),
            GroupLimit::Max => builder.max(kib(2)),
        };
    }
    if let Some(seeks) = choices.seeks {
        builder = builder.seeks(seeks.into());
    }
    if let Some(group) = group {
        builder = builder.group(group);
    }
    if choices.listens {
        let (listens, ends) = (captured(), choices.ends.map(Ends::new));
        builder = builder.eviction_listener(move |key: &K, value: &V, _| {
            listens.check("passed to the listener");
            is_of(id, key.number(), value.tag(), "passed to the listener");
            ends.as_ref().inspect(|ends| ends.end());
            enter(Callback::Listener);
        });
    }
    if choices.costs {
        let costs = captured();
        builder = builder.recreation_cost(move |key: &K, value: &V| {
            costs.check("passed to the cost function");
            is_of(id, key.number(), value.tag(), "passed to the cost function");
            enter(Callback::Cost);
            u64::from(key.number()) * 10
        });
    }
    let builder = builder.hasher(hashing).weigher(move |key: &K, value: &V| {
        weighs.check("passed to the weigher");
        is_of(id, key.number(), value.tag(), "passed to the weigher");
        enter(Callback::Weigher);
        ByteSize::new(weight * u64::from(1 + key.number() % 4))
    });
    let cache = builder.build().ok()?;
    Some(Box::new(Typed { id, is_honest, cache, access }))
}

/// Drops the handle in a slot, in the first call of a listener.
struct Ends {
    place: u8,
    has_ended: AtomicBool,
}

impl Ends {
    fn new(place: u8) -> Self {
        Self { place, has_ended: AtomicBool::new(false) }
    }

    fn end(&self) {
        if self.has_ended.swap(true, SeqCst) {
            return;
        }
        // So that another thread's callback runs meanwhile: `caches_end_each_other` needs both.
        std::thread::sleep(Duration::from_millis(3));
        let Some(world) = world::current() else { return };
        drop(swap(at(&world.caches, self.place), None));
    }
}

/// Checks that a value belongs to the cache and key where it was found.
fn is_of(cache: u32, key: u32, tag: Tag, how: &str) {
    if (tag.home, tag.key) != (cache, key) {
        fail(&format!("{tag:?} when {how} of key {key} of cache {cache}"));
    }
}

/// Checks that a refused insert has given back its own value, and drops the value.
fn refused<V: Value>(value: V, tag: Tag) {
    if value.tag() != tag {
        fail(&format!("{tag:?} was refused, {:?} given back", value.tag()));
    }
    callback::in_own_code(|| drop(value));
}

/// Polls a future twice, and drops it: nothing if it is still pending.
#[cfg(feature = "async")]
fn two_polls<T>(mut future: std::pin::Pin<Box<dyn Future<Output = T> + '_>>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    (0..2).find_map(|_| match Future::poll(future.as_mut(), &mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    })
}

impl<K: Key, V: Value> Typed<K, V> {
    fn checked(&self, key: u32, value: &V, how: &str) -> Tag {
        let tag = value.tag();
        is_of(self.id, key, tag, how);
        tag
    }

    /// Checks a value that the cache has returned, and drops it.
    fn dropped(&self, key: u32, value: V, how: &str) -> Tag {
        let tag = self.checked(key, &value, how);
        callback::in_own_code(|| drop(value));
        tag
    }

    fn entry_of<'a>(&'a self, key: u32, group: Option<&'a Memcg>, life: Life) -> Entry<'a, K, V, Hashing> {
        let mut place = self.access.entry(&self.cache, key);
        if let Some(group) = group {
            place = place.group(group);
        }
        match life {
            Life::Default => place,
            Life::Forever => place.forever(),
            Life::Live(ms) => place.time_to_live(Duration::from_millis(ms.into())),
            Life::Idle(ms) => place.time_to_idle(Duration::from_millis(ms.into())),
        }
    }
}

impl<K: Key, V: Value> AnyCache for Typed<K, V> {
    fn clone_box(&self) -> Box<dyn AnyCache> {
        let (cache, access) = (self.cache.clone(), Arc::clone(&self.access));
        Box::new(Self { id: self.id, is_honest: self.is_honest, cache, access })
    }

    fn id(&self) -> u32 {
        self.id
    }

    fn is_honest(&self) -> bool {
        self.is_honest
    }

    fn get(&self, key: u32) -> Option<Tag> {
        self.access.get(&self.cache, key).map(|value| self.dropped(key, value, "get"))
    }

    fn peek(&self, key: u32) -> Option<Tag> {
        self.access.peek(&self.cache, key).map(|value| self.dropped(key, value, "peek"))
    }

    fn contains(&self, key: u32) -> bool {
        self.access.contains(&self.cache, key)
    }

    fn get_many(&self, keys: &[u32]) -> Vec<Option<Tag>> {
        let found = self.access.get_many(&self.cache, keys);
        if found.len() != keys.len() {
            fail(&format!("{} results for {} keys", found.len(), keys.len()));
        }
        let found = keys.iter().zip(found);
        found.map(|(key, value)| value.map(|value| self.dropped(*key, value, "get_many"))).collect()
    }

    fn value(&self, key: u32) -> Option<Box<dyn KeptValue>> {
        let value = self.access.peek(&self.cache, key)?;
        let tag = self.checked(key, &value, "kept");
        Some(Box::new((tag, value)))
    }

    fn get_or_refresh(&self, key: u32) -> Option<AnyHit> {
        let hit = self.access.get_or_refresh(&self.cache, key)?;
        let tag = self.dropped(key, hit.value, "get_or_refresh");
        Some((tag, hit.is_stale, hit.refresh.map(|refresh| Box::new(refresh) as Box<dyn AnyReload>)))
    }

    fn set(&self, tag: Tag, group: Option<&Memcg>, life: Life) -> Result<bool, ()> {
        self.entry_of(tag.key, group, life).set(V::of(tag)).map_err(|error| refused(error.value, tag))
    }

    fn insert(&self, tag: Tag, group: Option<&Memcg>, life: Life) -> Result<Option<Tag>, ()> {
        match self.entry_of(tag.key, group, life).insert(V::of(tag)) {
            Ok(old) => Ok(old.map(|old| self.dropped(tag.key, old, "replacing"))),
            Err(error) => {
                refused(error.value, tag);
                Err(())
            }
        }
    }

    fn remove(&self, key: u32) -> Option<Tag> {
        self.access.remove(&self.cache, key).map(|value| self.dropped(key, value, "remove"))
    }

    fn touch(&self, key: u32, life: Life) -> bool {
        let time = match life {
            Life::Default | Life::Forever => None,
            Life::Live(ms) | Life::Idle(ms) => Some(Duration::from_millis(ms.into())),
        };
        self.access.touch(&self.cache, key, time)
    }

    fn load(&self, tag: Tag, how: Loading) -> Option<Loaded> {
        let mut loader = || {
            callback::loading(|| enter(Callback::Loader));
            if how.fails() {
                Err(())
            } else {
                Ok(V::of(tag))
            }
        };
        #[cfg(feature = "async")]
        let loaded = match how.polls {
            None => self.access.load(&self.cache, tag.key, how.form, &mut loader),
            Some(polls) => {
                let mut rest = polls;
                let future = std::future::poll_fn(move |context| {
                    if rest == 0 {
                        return std::task::Poll::Ready(loader());
                    }
                    rest -= 1;
                    context.waker().wake_by_ref();
                    std::task::Poll::Pending
                });
                two_polls(self.access.load_async(&self.cache, tag.key, how.form, Box::pin(future)))?
            }
        };
        #[cfg(not(feature = "async"))]
        let loaded = self.access.load(&self.cache, tag.key, how.form, &mut loader);
        let (value, origin) = loaded.ok()?;
        Some(Loaded { tag: self.dropped(tag.key, value, "load"), origin })
    }

    fn load_many(&self, tags: &[Tag], fills: bool, fails: bool, is_async: bool) -> Option<Vec<Loaded>> {
        let keys: Vec<u32> = tags.iter().map(|tag| tag.key).collect();
        let mut loader = |absent: &[u32]| {
            callback::loading(|| enter(Callback::Loader));
            let is_repeated = |at: usize| absent[..at].contains(&absent[at]);
            if self.is_honest && (0..absent.len()).any(is_repeated) {
                fail(&format!("keys are to be loaded twice: {absent:?}"));
            }
            if fails {
                return Err(());
            }
            let tag_of = |key: &u32| tags.iter().find(|tag| tag.key == *key).expect("a requested key");
            Ok(absent.iter().map(|key| V::of(*tag_of(key))).collect())
        };
        #[cfg(feature = "async")]
        let loaded = if is_async {
            two_polls(self.access.load_many_async(&self.cache, &keys, fills, &mut loader))?
        } else {
            self.access.load_many(&self.cache, &keys, fills, &mut loader)
        };
        #[cfg(not(feature = "async"))]
        let _ = is_async;
        #[cfg(not(feature = "async"))]
        let loaded = self.access.load_many(&self.cache, &keys, fills, &mut loader);
        let loaded = loaded.ok()?;
        if loaded.len() != keys.len() {
            fail(&format!("{} values for {} keys", loaded.len(), keys.len()));
        }
        let loaded = keys.iter().zip(loaded);
        Some(
            loaded
                .map(|(key, (value, origin))| Loaded { tag: self.dropped(*key, value, "load_many"), origin })
                .collect(),
        )
    }

    fn compute(
        &self,
        tag: Tag,
        answer: ComputeAnswer,
        group: Option<&Memcg>,
        life: Life,
    ) -> Result<(Outcome, Option<Tag>), ()> {
        let mut there = None;
        let computed = self.entry_of(tag.key, group, life).and_compute(|current| {
            there = current.as_ref().map(|current| self.checked(tag.key, current.value(), "compute"));
            if let Some(current) = &current {
                let _ = (current.time_left(), current.group().path());
            }
            enter(Callback::Compute);
            match answer {
                ComputeAnswer::Put => Op::Put(V::of(tag)),
                ComputeAnswer::Update => Op::Update(V::of(tag)),
                ComputeAnswer::Remove => Op::Remove,
                ComputeAnswer::Keep => Op::Keep,
            }
        });
        let outcome = match computed {
            Ok(Computed::Inserted) => Outcome::Inserted,
            Ok(Computed::Replaced(value)) => Outcome::Replaced(self.dropped(tag.key, value, "compute")),
            Ok(Computed::Removed(value)) => Outcome::Removed(self.dropped(tag.key, value, "compute")),
            Ok(Computed::Kept) => Outcome::Kept,
            Err(error) => {
                refused(error.value, tag);
                Outcome::Refused
            }
        };
        Ok((outcome, there))
    }

    fn retain(&self, keep: &mut dyn FnMut(u32) -> bool) {
        self.cache.retain(|key, value| {
            self.checked(key.number(), value, "retain");
            enter(Callback::Retain);
            keep(key.number())
        });
    }

    fn clear(&self) {
        self.cache.clear();
    }

    fn collect(&self) {
        self.cache.collect();
    }

    fn visit(&self, parts: u8) {
        let mut at = Visit::new();
        for _ in 0..parts {
            if at.is_done() {
                break;
            }
            self.cache.visit(&mut at, |key, value| {
                self.checked(key.number(), value, "visit");
                enter(Callback::Visit);
                self.checked(key.number(), value, "after a visit");
            });
        }
    }

    fn save(&self) -> Saved {
        let mut saved: Vec<(K, V, Meta)> = Vec::new();
        let _ended = self.cache.save(|key, value, meta| {
            self.checked(key.number(), value, "save");
            enter(Callback::Save);
            saved.push((key.clone(), value.clone(), meta.clone()));
            if saved.len() < 5000 {
                Ok(())
            } else {
                Err(())
            }
        });
        Box::new((self.id, saved))
    }

    fn load_saved(&self, saved: Saved) {
        // Tags name the cache, so entries that another cache has saved would fail the checks.
        if let Ok(saved) = saved.downcast::<(u32, Vec<(K, V, Meta)>)>() {
            if saved.0 == self.id {
                self.cache.load(saved.1);
            }
        }
    }

    fn look(&self, group: &Memcg) {
        let cache = &self.cache;
        let _ = (cache.stats(), cache.footprint(), cache.len_of(group), cache.is_empty(), cache.group().usage());
        let _ = format!("{cache:?}");
    }

    fn len(&self) -> usize {
        self.cache.len()
    }

    fn pinned(&self, inside: Inside<'_>) {
        let pinned = self.cache.pin();
        let key_of = |key| self.access.key(&self.cache, key);
        let found: Vec<_> = (0..crate::step::KEYS).filter_map(|key| Some((key, pinned.get(&key_of(key))?))).collect();
        inside(&|key| {
            pinned.get(&key_of(key)).map(|value| self.checked(key, value, "pinned get"));
            pinned.peek(&key_of(key)).map(|value| self.checked(key, value, "pinned peek"));
        });
        // A value found before is still alive.
        for (key, value) in found {
            self.checked(key, value, "pinned for some steps");
        }
    }

    fn iter(&self, inside: &mut dyn FnMut()) {
        let pinned = self.cache.pin();
        let mut iter = pinned.iter();
        let first = iter.next();
        inside();
        for (key, value) in first.into_iter().chain(iter.take(2000)) {
            self.checked(key.number(), value, "iterated");
        }
    }
}
