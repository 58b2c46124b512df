//! The builder of a cache.
//!
//! Options are checked together in `build`, and not one by one, as they depend on each other.
//! `build` exists only after `weigher` was called: a cache that counts entries instead of bytes
//! would miss its budget.
//!
//! A new option needs a default, and is checked in `build`; options about times belong in
//! `times.rs`. A change must keep the order in `build`: no step after `make_group` can fail, since
//! only the drop of the cache ends the group.

mod times;

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32};
use std::sync::{Arc, Weak};

use hashbrown::DefaultHashBuilder;
use lowwater_lru_core::{ByteSize, Memcg, NodeId};
use lowwater_store::ExtendibleIndex;
use once_cell::race::OnceBox;

use super::clear::state::Clear;
use super::core::{Core, TypedFunctions};
use super::error::CacheBuildError;
use super::expiry::clock::{Clock, Ttl};
use super::expiry::lifetime::Expiry;
use super::expiry::sweep::SweepSchedule;
use super::expiry::times::Times;
use super::functions::{Listener, ValueFunctions};
use super::handle::Cache;
use super::inner::{CacheInner, Leftover, Weigher};
use super::len_mark::LenMark;
use super::limits::CacheLimits;
use super::load::single_flight::InflightLoads;
use super::policy::cost::MissCost;
use super::policy::queues::Queues;
use super::policy::Eviction;
use super::record::Record;
use super::removal::RemovalCause;
use super::shared::SharedInner;
use super::stats::Counters;
use crate::runtime::{HeldValues, MaintenanceId};
use crate::{Charged, Runtime};

/// The state of a builder that has no weigher yet, and so no `build`.
#[derive(Clone, Copy, Debug)]
pub struct NoWeigher;

/// The builder of a [`Cache`], from [`Cache::builder`].
#[must_use = "a builder does nothing until `build`"]
pub struct CacheBuilder<K, V, W = NoWeigher, S = DefaultHashBuilder> {
    choices: Choices<K, V>,
    weigher: W,
    hasher: S,
}

/// The options that change no type parameter of the builder; `None` is the default.
struct Choices<K, V> {
    runtime: Runtime,
    name: String,
    group: Option<Memcg>,
    limits: CacheLimits,
    times: Times<K, V>,
    seeks: Option<u32>,
    eviction: Eviction,
    listener: Option<Listener<K, V>>,
    miss_cost: Option<MissCost<K, V>>,
    held_values: Option<fn() -> HeldValues<V>>,
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Returns a builder for a cache in `runtime`.
    ///
    /// The builder needs a weigher before it can [`build`](CacheBuilder::build): budgets are in
    /// bytes, and a cache that is limited by its number of entries can exhaust the machine's
    /// memory. Without a weigher the program does not compile:
    ///
    /// ```compile_fail
    /// # let runtime = lowwater::Runtime::builder().unlimited().build().unwrap();
    /// let cache = lowwater::Cache::<u64, String>::builder(&runtime).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(runtime: &Runtime) -> CacheBuilder<K, V> {
        CacheBuilder::new(runtime)
    }
}

impl<K, V> CacheBuilder<K, V> {
    fn new(runtime: &Runtime) -> Self {
        let choices = Choices {
            runtime: runtime.clone(),
            name: "cache".into(),
            group: None,
            limits: CacheLimits::default(),
            times: Times::default(),
            seeks: None,
            eviction: Eviction::default(),
            listener: None,
            miss_cost: None,
            held_values: None,
        };
        Self { choices, weigher: NoWeigher, hasher: DefaultHashBuilder::default() }
    }
}

impl<K, V, W, S> CacheBuilder<K, V, W, S> {
    /// Sets the name under which statistics show the cache; "cache" by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.choices.name = name.into();
        self
    }

    /// Sets the group of new entries for which [`Entry::group`](super::Entry::group) names no other
    /// group; the root by default.
    ///
    /// The group is charged, and is no part of the key: one key is one entry of the cache,
    /// whichever group is named. For keys of a tenant's own see [`Cache::tenant`].
    ///
    /// If the cache has a limit of its own ([`low`](Self::low)), `group` is the parent of the
    /// cache's own group.
    pub fn group(mut self, group: &Memcg) -> Self {
        self.choices.group = Some(group.clone());
        self
    }

    /// Protects the cache's entries from reclaim while they use at most `min` bytes, even if
    /// inserts are then refused, into this cache or into others. A cache whose `min` is the whole
    /// budget evicts nothing when the budget is used up, and refuses inserts. No protection by
    /// default.
    ///
    /// The bytes are those that the weigher returns, and [`Cache::ENTRY_BYTES`] for each entry. See
    /// [`low`](Self::low) for the milder form, which causes no refused inserts, for the group that
    /// is made, and for errors.
    #[doc(alias = "memory.min")]
    pub fn min(mut self, min: ByteSize) -> Self {
        self.choices.limits.min = Some(min);
        self
    }

    /// Protects the cache's entries from reclaim while they use at most `low` bytes, unless nothing
    /// else can be freed: other caches, tenants and shrinkers do not take this memory. The bytes
    /// are those that the weigher returns, and [`Cache::ENTRY_BYTES`] for each entry. No protection
    /// by default.
    ///
    /// Any limit ([`min`](Self::min), `low`, [`high`](Self::high), [`max`](Self::max)) makes a
    /// group of the cache's own below the builder's [`group`](Self::group), or below the root. This
    /// group is charged for entries that name no other group, and is [`Cache::group`], where its
    /// limits can be changed at any time. Its path is that of the group above it and `/cache:NAME`,
    /// or `/cache:NAME#2` and so on if another group has that path; a `/` in the cache's name
    /// becomes `_`. The group ends when the cache does.
    ///
    /// * An entry that is inserted with [`Entry::group`](super::Entry::group), or by a
    ///   [`TenantView`](super::TenantView), is charged to the tenant. The cache's limits neither
    ///   protect nor bound the entry; those of the tenant do. To protect such entries, set the
    ///   `low` of a group above the tenants': for example
    ///   [`TenantGroups::parent`](crate::runtime::TenantGroups::parent).
    /// * If the builder has a `group`, the protection is bounded by that group's own `min` and
    ///   `low`: without these it holds only against other children of the group.
    /// * The bytes are not reserved: other caches can use them until this cache does.
    /// * The parent group cannot be ended while the cache exists
    ///   ([`MemcgError::HasChildren`](lowwater_lru_core::MemcgError::HasChildren)). A group that is
    ///   made below the cache's own group keeps the latter alive, limits included, until the lower
    ///   group has been ended itself.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(64)).build()?;
    /// let sessions = Cache::<u64, String>::builder(&runtime)
    ///     .name("sessions")
    ///     .weigher(|_, basket| basket.capacity())
    ///     .low(ByteSize::mib(8))
    ///     .max(ByteSize::mib(32))
    ///     .build()?;
    /// sessions.insert(7, "basket".into())?;
    /// assert_eq!(sessions.group().path(), "/cache:sessions");
    /// sessions.group().set_low(ByteSize::mib(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`build`](CacheBuilder::build) refuses a limit of 0
    /// ([`ZeroLimit`](CacheBuildError::ZeroLimit)), a lower limit above a higher one
    /// ([`LimitsOutOfOrder`](CacheBuildError::LimitsOutOfOrder)), a limit above the runtime's
    /// configured budget or above the `max` of an ancestor group
    /// ([`LimitTooLarge`](CacheBuildError::LimitTooLarge)), and a group that cannot be made, for
    /// example because the tree is too deep ([`OwnGroup`](CacheBuildError::OwnGroup)). A budget
    /// that is temporarily smaller than the configured one, because of a container's limit or of
    /// pressure, is no error. If no call has set a budget, the configured budget is the part of the
    /// container's limit that is the budget now, without the effect of pressure.
    #[doc(alias = "memory.low")]
    pub fn low(mut self, low: ByteSize) -> Self {
        self.choices.limits.low = Some(low);
        self
    }

    /// Sets the number of bytes above which inserts and the reclaimer evict the cache's own
    /// entries; inserts still succeed. The bytes are those that the weigher returns, and
    /// [`Cache::ENTRY_BYTES`] for each entry. None by default. See [`low`](Self::low) for the group
    /// that is made and for errors.
    #[doc(alias = "memory.high")]
    pub fn high(mut self, high: ByteSize) -> Self {
        self.choices.limits.high = Some(high);
        self
    }

    /// Sets the most bytes that the cache's entries may use: those that the weigher returns, and
    /// [`Cache::ENTRY_BYTES`] for each entry. None by default. An insert at the limit evicts
    /// entries of this cache only, and is refused if the evictions do not free enough. See
    /// [`low`](Self::low) for the group that is made, for entries of tenants, which do not count,
    /// and for errors.
    #[doc(alias = "memory.max")]
    #[doc(alias = "capacity")]
    pub fn max(mut self, max: ByteSize) -> Self {
        self.choices.limits.max = Some(max);
        self
    }

    /// Sets the cost of recreating an entry, as for Linux's shrinkers; 2 by default. With 4, each
    /// miss counts twice as much in victim selection, and under external pressure the cache gives
    /// up half as much. With 0, misses do not count: the cache gives up its entries before caches
    /// that miss evicted entries. If values differ in cost, see
    /// [`recreation_cost`](Self::recreation_cost).
    pub fn seeks(mut self, seeks: u32) -> Self {
        self.choices.seeks = Some(seeks);
        self
    }

    /// Sets the order in which entries are evicted; [`Eviction::Adaptive`] by default.
    pub fn eviction(mut self, eviction: Eviction) -> Self {
        self.choices.eviction = eviction;
        self
    }

    /// Sets a callback for every entry that leaves the cache, with the cause. The drop of the last
    /// handle drops the entries without calls: a listener that must see them all needs a
    /// [`clear`](super::Cache::clear) before, and a drop outside of callbacks.
    ///
    /// The listener runs on the thread that removed the entry, without a lock held. It may use the
    /// cache, and may drop the last handle on this cache, on another cache, or on a runtime: inside
    /// a listener such a drop waits for nothing ([`Cache`]). A panic of the listener is caught and
    /// counted.
    ///
    /// A listener that blocks delays only the thread that removed the entry. Expired entries that
    /// are not looked up are removed by a thread of the runtime; if the listener blocks that
    /// thread, another thread goes on with the other caches ([`Runtime`]). But an insert at a limit
    /// may evict entries that other threads have inserted, into this cache or another one of the
    /// runtime: up to 16 entries in two batches, or 30 if there are more than 16 pairs of a cache
    /// and a group; and more by the direct reclaim of [`Runtime::charge`]. The first 8 entries of a
    /// batch are evicted however long the listener takes. Long work is therefore better sent to a
    /// thread of the application's own.
    ///
    /// Entries that the listener removes itself are reported within its own call, so the listener
    /// recurses. A listener that removes one more entry in each call needs stack for all of these
    /// calls, and so does a listener that calls [`clear`](super::Cache::clear) every thousand
    /// entries.
    ///
    /// Inserts by the listener evict nothing while the thread is evicting for memory: such an
    /// insert uses free memory, or is refused
    /// ([`RejectReason::NoRoom`](super::RejectReason::NoRoom)).
    pub fn eviction_listener(mut self, listener: impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static) -> Self {
        self.choices.listener = Some(Box::new(listener));
        self
    }

    /// Sets a function for the cost of recreating a value, in any unit that is the same for all
    /// caches of the runtime, for example the microseconds that the load took. Without it all
    /// values have the mean cost.
    ///
    /// The runtime gives memory to the caches and tenants that miss on entries evicted from them.
    /// With costs, each such miss is weighted by its cost, relative to the geometric mean cost of
    /// recent inserts into all caches: a value of three times the mean counts as three. The weight
    /// is at most 256 and at least 1/16. So memory saves work, and not only requests. Costs move
    /// memory between caches and tenants; the order in which one tenant's own entries are evicted
    /// does not depend on costs.
    ///
    /// The function is called right after the weigher, under the same conditions. If it panics, the
    /// value is not inserted. A cost of 0 counts as 1.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Runtime};
    /// use std::time::Duration;
    ///
    /// #[derive(Clone)]
    /// struct Page { text: String, took: Duration }
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let pages = Cache::<u64, Page>::builder(&runtime)
    ///     .weigher(|_, page| page.text.capacity())
    ///     .recreation_cost(|_, page| page.took.as_micros() as u64)
    ///     .build()?;
    /// pages.insert(1, Page { text: "slow".into(), took: Duration::from_millis(300) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "cost")]
    pub fn recreation_cost(mut self, cost: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        self.choices.miss_cost = Some(MissCost::new(cost));
        self
    }

    /// Sets the function that returns the bytes owned by a key and a value on the heap, beyond
    /// their own size, which the cache adds itself ([`Cache::ENTRY_BYTES`]): a [`ByteSize`], `u64`,
    /// `u32` or `usize`. Return `ByteSize::ZERO` for keys and values that own no heap memory.
    ///
    /// The weigher is called once for each insert, and for each value that an operation of
    /// [`and_compute`](crate::cache::Entry::and_compute) returns, before anything is changed and
    /// without a lock held; for `and_compute` inside a read-side section. A panic of the weigher is
    /// passed on to the caller of the insert or the load, and the value is not inserted.
    ///
    /// The charge of an entry is rounded up by at most a 65,536th if it is 256 KiB or more. The
    /// largest charge is 256 TiB less 1 GiB, also for a larger weight.
    ///
    /// ```
    /// use lowwater::{Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().unlimited().build()?;
    /// let names = Cache::<u64, String>::builder(&runtime).weigher(|_, name| name.capacity()).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn weigher<B: Into<ByteSize>>(
        self,
        weigher: impl Fn(&K, &V) -> B + Send + Sync + 'static,
    ) -> CacheBuilder<K, V, Weigher<K, V>, S> {
        let Self { choices, hasher, .. } = self;
        let weigher: Weigher<K, V> = Box::new(move |key, value| weigher(key, value).into());
        CacheBuilder { choices, weigher, hasher }
    }

    /// Sets the hash function for keys. The default is fast and randomly seeded.
    ///
    /// The hasher may be called under a lock of a part of the cache, as keys' `Hash` and `Eq` are:
    /// none of them may use the cache, or wait for a thread that uses it.
    pub fn hasher<H: BuildHasher>(self, hasher: H) -> CacheBuilder<K, V, W, H> {
        let Self { choices, weigher, .. } = self;
        CacheBuilder { choices, weigher, hasher }
    }
}

impl<K, T, W, S> CacheBuilder<K, Charged<T>, W, S> {
    /// Keeps values charged while readers hold clones of them after their entries have left the
    /// cache.
    ///
    /// By default a value is charged only while it is in the cache. Values that are handles, such
    /// as `Arc<[u8]>`, can stay with any number of readers after their entries were evicted, on
    /// top of the budget.
    ///
    /// With this option, an entry that leaves, for any cause, passes its weighed bytes on to the
    /// value if a clone of the value exists outside of such caches. The bytes are uncharged when
    /// the last clone is dropped, or when the value is inserted again, into this cache or another
    /// one with this option, as the new entry is then charged. Until then the bytes are in use, so
    /// inserts evict other entries, and are refused if there are none to evict
    /// ([`RejectReason::NoRoom`](super::RejectReason::NoRoom)). An entry without such readers is
    /// uncharged at once, as by default.
    ///
    /// The weigher returns the bytes, including [`Charged::BYTES`] for the value itself. The bytes
    /// stay charged to the group that was charged for the entry. A value in two entries counts for
    /// each of them, and counts for readers only when no entry holds it. An insert needs free
    /// memory for the new entry before the value's own charge, or the charge of a replaced entry,
    /// is released.
    ///
    /// Not counted: a loaded value that the cache refuses, as it was in no entry. If such values
    /// may be large, charge them in the load, with [`Cache::try_get_or_insert_with`] and
    /// [`Charged::new`] (second example). The entry is charged in place of the value; a value that
    /// is refused keeps its charge. During the insert both are charged: for values above half of
    /// the smallest limit, subtract [`Charged::held_bytes`] in the weigher, so that the value's
    /// charge stays.
    ///
    /// A reader that has found the value earlier ([`Pinned`](super::Pinned)) can clone it after the
    /// entry has left. Such a clone is charged if memory is free, and otherwise counted as
    /// [retired](crate::runtime::RuntimeStats::retired) until it is dropped.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Charged, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
    /// let blobs = Cache::<u64, Charged<Vec<u8>>>::builder(&runtime)
    ///     .weigher(|_, blob| Charged::<Vec<u8>>::BYTES + ByteSize::from(blob.capacity()))
    ///     .charge_held_values()
    ///     .build()?;
    ///
    /// let mut held = Vec::new();
    /// for key in 0..100 {
    ///     if blobs.insert(key, vec![0; 64 << 10].into()).is_ok() {
    ///         held.extend(blobs.get(&key));
    ///     }
    /// }
    /// assert!(held.len() < 16, "16 times 64 KiB are the budget");
    /// drop(held);
    /// assert!(blobs.insert(100, vec![0; 64 << 10].into()).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// With a charge that the load takes, and the entry takes over:
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Charged, Runtime};
    ///
    /// type Blob = Charged<Vec<u8>>;
    /// let size = |bytes: usize| Blob::BYTES + ByteSize::from(bytes);
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
    /// let blobs = Cache::<u64, Blob>::builder(&runtime)
    ///     .weigher(move |_, blob| size(blob.capacity()))
    ///     .charge_held_values()
    ///     .build()?;
    ///
    /// let blob = blobs.try_get_or_insert_with(7, || {
    ///     let charge = runtime.charge_guard(runtime.root(), size(64 << 10))?;
    ///     Ok::<_, lowwater::runtime::ChargeError>(Charged::new(vec![0; 64 << 10], charge))
    /// })?;
    /// runtime.tree().drain_stock();
    /// assert!(runtime.root().usage() < ByteSize::kib(128), "charged once");
    /// # drop(blob);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn charge_held_values(mut self) -> Self {
        self.choices.held_values = Some(Charged::held_values);
        self
    }
}

impl<K, V, S> CacheBuilder<K, V, Weigher<K, V>, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Builds the cache and registers it with the runtime.
    ///
    /// Compaction clones the keys and values of sparse memory ([`Cache`], memory). A key that is
    /// not `Clone` can be put in an `Arc`.
    ///
    /// # Errors
    ///
    /// [`CacheBuildError`] names the option that is invalid.
    pub fn build(self) -> Result<Cache<K, V, S>, CacheBuildError> {
        let Self { choices, weigher, hasher } = self;
        let group = choices.group.unwrap_or_else(|| choices.runtime.root().clone());
        if !group.is_descendant_of(choices.runtime.root()) {
            return Err(CacheBuildError::ForeignGroup(group.path()));
        }
        let (ttl, refresh) = choices.times.check()?;
        let both = choices.times.both();
        let mut builder = choices.runtime.registry().builder(&choices.name).reports_misses(true);
        if let Some(seeks) = choices.seeks {
            builder = builder.seeks(seeks);
        }
        let prepared = builder.alloc()?;
        // The last step that can fail: the drop of the cache ends the group.
        let own_group = choices.limits.make_group(&choices.runtime, &group, &choices.name)?;
        let owns_group = own_group.is_some();
        let group = own_group.unwrap_or(group);
        let nodes = choices.runtime.registry().nodes();
        let queues = Queues::new(&prepared.occupancy(), prepared.miss_reporter(), choices.eviction, nodes);
        let (retired, is_lru) = (choices.runtime.retired(), queues.is_lru());
        let expiry = choices.times.expiry.map(|function| Expiry { function, default: ttl });
        let ttl = if expiry.is_some() { Ttl::Computed } else { ttl };
        let miss_cost = choices.miss_cost;
        let functions = ValueFunctions { listener: choices.listener, miss_cost, expiry };
        let functions = functions.is_any().then(|| Box::new(functions));
        let core = Arc::new(Core {
            index: ExtendibleIndex::with_retired(retired.count()),
            is_lru,
            queues,
            counters: Counters::default(),
            hasher,
            clear: Clear::new(is_lru || ttl == Ttl::Computed),
            clear_state: OnceBox::new(),
            functions,
            clock: Clock::start(choices.runtime.clock(), refresh).with_both(both, size_of::<Record<K, V>>()),
            inflight: InflightLoads::default(),
            most: AtomicU32::new(0),
            is_stuck: AtomicBool::new(false),
            has_tenants: AtomicBool::new(false),
            freed_since: AtomicU16::new(0),
            collected: LenMark::default(),
            sweeps: SweepSchedule::default(),
            has_emptied_group: AtomicBool::new(false),
            is_compaction_requested: AtomicBool::new(false),
            compaction: OnceBox::new(),
            held_values: choices.held_values,
            typed: TypedFunctions::of_types,
            notifier: choices.runtime.housekeeper().notifier(),
            is_left: false,
            #[cfg(feature = "metrics")]
            shrinker: prepared.id(),
        });
        let retires: Weak<Core<K, V, S>> = Arc::downgrade(&core);
        let maintenance = MaintenanceId::new();
        retired.add(maintenance, retires);
        if let Some(clock) = choices.runtime.clock() {
            let follows: Weak<Core<K, V, S>> = Arc::downgrade(&core);
            clock.add(maintenance, follows);
        }
        choices.runtime.housekeeper().add(maintenance, Arc::clone(&core) as _);
        let registration = prepared.register(Arc::clone(&core) as _);
        let inner = CacheInner {
            registration: Some(registration),
            core,
            leftover: Leftover::none(),
            maintenance,
            group,
            owns_group,
            ttl,
            last_node: NodeId::new((choices.runtime.registry().nodes() - 1) as u16),
            weigher,
            runtime: choices.runtime,
        };
        Ok(Cache { inner: SharedInner::new(inner) })
    }
}

impl<K, V, W, S> std::fmt::Debug for CacheBuilder<K, V, W, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheBuilder")
            .field("name", &self.choices.name)
            .field("group", &self.choices.group)
            .field("limits", &self.choices.limits)
            .field("time_to_live", &self.choices.times.time_to_live)
            .field("time_to_idle", &self.choices.times.time_to_idle)
            .field("refresh_ahead", &self.choices.times.refresh_ahead)
            .field("stale_while_revalidate", &self.choices.times.stale_while_revalidate)
            .finish_non_exhaustive()
    }
}
