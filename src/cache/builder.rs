//! How a cache is made.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use lowwater_lru_core::{ByteSize, Memcg, NodeId};
use lowwater_store::ExtendibleIndex;

use super::compaction::state::Compaction;
use super::core::{Core, Listener};
use super::error::CacheBuildError;
use super::expiry::clock::{Clock, Ttl};
use super::expiry::sweep::SweepSchedule;
use super::handle::{Cache, CacheInner, Weigher};
use super::limits::CacheLimits;
use super::load::single_flight::InflightLoads;
use super::policy::cost::MissCost;
use super::policy::queues::Queues;
use super::policy::Eviction;
use super::removal::RemovalCause;
use super::stats::Counters;
use crate::runtime::HeldValues;
use crate::{Charged, Runtime};

/// The state of a builder that has no weigher yet, and so no `build`.
#[derive(Clone, Copy, Debug)]
pub struct NoWeigher;

/// The choices of a [`Cache`]; from [`Cache::builder`].
#[must_use = "a builder does nothing until `build`"]
pub struct CacheBuilder<K, V, W = NoWeigher, S = DefaultHashBuilder> {
    choices: Choices<K, V>,
    weigher: W,
    hasher: S,
}

/// Those on which no type depends.
struct Choices<K, V> {
    runtime: Runtime,
    name: String,
    group: Option<Memcg>,
    limits: CacheLimits,
    time_to_live: Option<Duration>,
    time_to_idle: Option<Duration>,
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
    /// Begins a cache in `runtime`.
    ///
    /// The builder asks for a weigher before it can [`build`](CacheBuilder::build): budgets are in bytes, and a count of entries taken for
    /// bytes is how caches run machines out of memory. Without one this does not compile:
    ///
    /// ```compile_fail
    /// # let runtime = lowwater::Runtime::builder().build().unwrap();
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
            time_to_live: None,
            time_to_idle: None,
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
    /// The name under which statistics show it; "cache" by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.choices.name = name.into();
        self
    }

    /// The group of new entries for which [`Entry::group`](super::Entry::group) names no other; the
    /// root by default.
    ///
    /// The group is charged, and is no part of the key: one key is one entry of the cache,
    /// whichever group is named. For keys of a tenant's own see [`Cache::tenant`].
    ///
    /// With a limit of the cache's own ([`low`](Self::low)), the parent of the cache's own group.
    pub fn group(mut self, group: &Memcg) -> Self {
        self.choices.group = Some(group.clone());
        self
    }

    /// Protects the cache's entries from reclaim while they use no more than this, in bytes as the
    /// weigher tells them, with [`Cache::ENTRY_BYTES`] for each entry; even if inserts are refused
    /// for it, elsewhere or into this cache: one whose `min` is the whole budget evicts nothing when
    /// the budget is used up, and refuses. Nothing by default. See [`low`](Self::low), the milder
    /// form, which refuses none of these, for the group that is made and for errors.
    #[doc(alias = "memory.min")]
    pub fn min(mut self, min: ByteSize) -> Self {
        self.choices.limits.min = Some(min);
        self
    }

    /// Protects the cache's entries from reclaim while they use no more than this, unless nothing
    /// else can be freed: other caches, tenants and shrinkers do not take this memory.
    /// In bytes as the weigher tells them, with [`Cache::ENTRY_BYTES`] for each entry. Nothing by
    /// default.
    ///
    /// Any limit ([`min`](Self::min), `low`, [`high`](Self::high), [`max`](Self::max)) makes a
    /// group of the cache's own below the builder's [`group`](Self::group), or below the root. The
    /// group is charged for entries that name no other, and is [`Cache::group`]: the limits can be
    /// changed there at any time. It has the path `/cache:NAME`, or `/cache:NAME#2` and so on where
    /// another group has that, and ends when the cache does. A `/` in the cache's name is `_` there.
    ///
    /// * An entry that is inserted with [`Entry::group`](super::Entry::group), or by a
    ///   [`TenantView`](super::TenantView), is charged to the tenant. The cache's limits neither
    ///   protect nor bound the entry; those of the tenant do.
    /// * Under a `group` a guarantee is worth no more than that group's own `min` and `low`:
    ///   without these it holds only against other children of the group.
    /// * The bytes are not reserved: other caches use them until this cache does.
    /// * The group above cannot be ended while the cache exists
    ///   ([`MemcgError::HasChildren`](lowwater_lru_core::MemcgError::HasChildren)). A group that is
    ///   made below the cache's own keeps that one, limits included, until it has been ended itself.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(64)).build()?;
    /// let sessions = Cache::<u64, String>::builder(&runtime)
    ///     .name("sessions")
    ///     .weigher(|_, basket| ByteSize::new(basket.capacity() as u64))
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
    /// [`build`](CacheBuilder::build) refuses a limit of 0 ([`ZeroLimit`](CacheBuildError::ZeroLimit)),
    /// a lower limit above a higher one ([`LimitsOutOfOrder`](CacheBuildError::LimitsOutOfOrder)), a
    /// limit above the budget that the runtime was given, or above the `max` of a group above
    /// ([`LimitTooLarge`](CacheBuildError::LimitTooLarge)), and a group that cannot be made, in too
    /// deep a tree for example ([`OwnGroup`](CacheBuildError::OwnGroup)). A budget that is less for
    /// a while, because of a container's limit or of pressure, is no error.
    #[doc(alias = "memory.low")]
    pub fn low(mut self, low: ByteSize) -> Self {
        self.choices.limits.low = Some(low);
        self
    }

    /// The bytes above which the reclaimer evicts the cache's own entries in the background, as the
    /// weigher tells them, with [`Cache::ENTRY_BYTES`] for each entry; inserts still succeed. None
    /// by default. See [`low`](Self::low) for the group that is made and for errors.
    #[doc(alias = "memory.high")]
    pub fn high(mut self, high: ByteSize) -> Self {
        self.choices.limits.high = Some(high);
        self
    }

    /// The most that the cache's entries may use, in bytes as the weigher tells them, with
    /// [`Cache::ENTRY_BYTES`] for each entry. None by default. An insert at the limit evicts entries
    /// of the cache itself, and of no other cache; it is refused if that is not enough. See
    /// [`low`](Self::low) for the group that is made, for entries of tenants, which do not count, and
    /// for errors.
    #[doc(alias = "memory.max")]
    #[doc(alias = "capacity")]
    pub fn max(mut self, max: ByteSize) -> Self {
        self.choices.limits.max = Some(max);
        self
    }

    /// How long entries live that name no time of their own; for ever by default.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.choices.time_to_live = Some(time);
        self
    }

    /// How long entries stay that nobody uses, and that have no time of their own: at least so long after the last use, and an eighth
    /// longer at most, or 16 ms where that is more. For ever by default, and where it is longer than eight years.
    ///
    /// A use is what counts as one for eviction ([`Cache::get`], and not [`Cache::peek`]). It writes to the entry when a
    /// tenth of the time has passed since one did, or less (12 ms, if that is more). An entry has room for one time: where [`Entry::time_to_live`](super::Entry::time_to_live),
    /// [`Entry::forever`](super::Entry::forever) or [`Cache::touch`] gives it another, that counts, and uses do not push it on;
    /// [`Entry::time_to_idle`](super::Entry::time_to_idle) gives it an idle time of its own.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Runtime};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let sessions = Cache::<u64, String>::builder(&runtime)
    ///     .weigher(|_, text| ByteSize::new(text.capacity() as u64))
    ///     .time_to_idle(Duration::from_secs(1800))
    ///     .build()?;
    /// sessions.insert(7, "basket".into())?;
    /// // Half an hour from now.
    /// assert!(sessions.get(&7).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.choices.time_to_idle = Some(time);
        self
    }

    /// What an entry costs to make again, against other caches' 2: with 4 each miss counts twice, and under pressure from outside the
    /// cache gives half as much. For values that cost differently, see [`recreation_cost`](Self::recreation_cost).
    pub fn seeks(mut self, seeks: u32) -> Self {
        self.choices.seeks = Some(seeks);
        self
    }

    /// The order in which entries are let go; [`Eviction::Adaptive`] by default.
    pub fn eviction(mut self, eviction: Eviction) -> Self {
        self.choices.eviction = eviction;
        self
    }

    /// Is called for every entry that leaves, with the reason, on the thread that took it out, without a lock held. It may use the cache,
    /// or drop the last handle on it or on any other, or on a runtime: inside a listener that waits for nothing ([`Cache`]).
    /// A panic in it is caught and counted. If it blocks, whoever took the entry out waits for it, and nobody else: for what expires and nobody asked for that is a thread of
    /// the runtime's, in whose place another thread goes on with the other caches ([`Runtime`]). But at a limit a thread may let go of what others put in, of this
    /// cache or another one of the runtime; so what takes long is better sent to a thread of one's own.
    ///
    /// It is told of what it takes out itself inside its own call. So a listener of which each call takes one more entry out needs stack for
    /// all of them, and one that calls [`clear`](super::Cache::clear) for each thousand entries.
    ///
    /// While entries are let go because memory is needed, what it inserts has none let go in turn: it takes room that is there, or is refused
    /// ([`RejectReason::NoRoom`](super::RejectReason::NoRoom)).
    pub fn eviction_listener(mut self, listener: impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static) -> Self {
        self.choices.listener = Some(Box::new(listener));
        self
    }

    /// What it costs to make a value again, in any unit that is the same for all caches of the runtime: the microseconds that it took,
    /// say. Without it all values cost the mean.
    ///
    /// Memory goes to the caches and tenants that ask again for what was evicted from them. With costs each such miss counts by its
    /// cost: one that costs three times the (geometric) mean of what was lately inserted into all caches as much as three of the mean; 256
    /// at most, and a sixteenth at least. So memory saves work, and not only requests. It moves memory between caches and tenants; in
    /// what order one tenant's own entries are evicted does not depend on it.
    ///
    /// Called where the weigher is, right after it; the value is not put in if it panics. Nothing counts as one.
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
    ///     .weigher(|_, page| ByteSize::new(page.text.capacity() as u64))
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

    /// How much memory a key and a value own: on the heap, beyond their own size, which the cache knows
    /// ([`Cache::ENTRY_BYTES`] says how much it adds). `ByteSize::ZERO` for those that own nothing.
    ///
    /// Called once for each insert, and for each time that [`and_compute`](crate::cache::Entry::and_compute) wants to put a value, before anything is changed and
    /// without a lock held.
    pub fn weigher(
        self,
        weigher: impl Fn(&K, &V) -> ByteSize + Send + Sync + 'static,
    ) -> CacheBuilder<K, V, Weigher<K, V>, S> {
        let Self { choices, hasher, .. } = self;
        CacheBuilder { choices, weigher: Box::new(weigher), hasher }
    }

    /// How keys are hashed. The default is fast and seeded at random.
    ///
    /// It may be called under a lock of a part of the cache, as keys' `Hash` and `Eq` are: none of them may use the cache, or
    /// wait for who does.
    pub fn hasher<H: BuildHasher>(self, hasher: H) -> CacheBuilder<K, V, W, H> {
        let Self { choices, weigher, .. } = self;
        CacheBuilder { choices, weigher, hasher }
    }
}

impl<K, T, W, S> CacheBuilder<K, Charged<T>, W, S> {
    /// Keeps values charged while readers hold clones of them, after their entries have left the
    /// cache.
    ///
    /// By default a value is charged while it is in the cache. Values that are handles, such as
    /// `Arc<[u8]>`, can be held by any number of readers after their entries were evicted, beside
    /// the budget. With this, an entry that leaves, for whatever reason, leaves the bytes that the
    /// weigher told to the value, if a clone of the value exists outside of such caches: the bytes
    /// are uncharged when the last clone is dropped, or when the value is inserted again, into
    /// this cache or another one with this option, as the new entry is charged. Until then they are
    /// used up, so inserts evict others, and are refused where there are none
    /// ([`RejectReason::NoRoom`](super::RejectReason::NoRoom)). An entry without such readers is
    /// uncharged at once, as by default.
    ///
    /// The weigher tells the bytes, with [`Charged::BYTES`] for the value itself. The bytes stay
    /// charged to the group that was charged for the entry. A value that is in two entries counts
    /// for each of them, and for readers only when it is in none. An insert needs room for the new
    /// entry before what the value is charged itself, or an entry that it replaces, is uncharged. A
    /// value that was made with a charge of its own, by [`Charged::new`], keeps that, and takes over
    /// none.
    ///
    /// Not counted: a value that a load returns and the cache has no room for, as it was in no
    /// entry. Where that may be much, give such a value a charge in the load, with
    /// [`Cache::try_get_or_insert_with`], and have the weigher leave out
    /// [`Charged::held_bytes`]: otherwise the value is charged twice while it is in the cache, once
    /// by its own charge and once by the entry (second example). A clone that is made after the
    /// entry has left, by a reader that has found it before ([`Pinned`](super::Pinned)), is charged
    /// if there is room, and else counted as [retired](crate::runtime::RuntimeStats::retired) until it is dropped.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Charged, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
    /// let blobs = Cache::<u64, Charged<Vec<u8>>>::builder(&runtime)
    ///     .weigher(|_, blob| Charged::<Vec<u8>>::BYTES.saturating_add(ByteSize::new(blob.capacity() as u64)))
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
    /// With a charge that is taken in the load, and that stays with the value:
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Charged, Runtime};
    ///
    /// type Blob = Charged<Vec<u8>>;
    /// let size = |bytes: usize| Blob::BYTES.saturating_add(ByteSize::new(bytes as u64));
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
    /// let blobs = Cache::<u64, Blob>::builder(&runtime)
    ///     .weigher(move |_, blob| size(blob.capacity()).saturating_sub(Charged::held_bytes(blob)))
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
    /// Makes the cache and registers it with the runtime.
    ///
    /// Keys and values are cloned when what a shrink has left is moved together ([`Cache`], memory). A key that is no `Clone` can be had in an `Arc`.
    ///
    /// # Errors
    ///
    /// [`CacheBuildError`] says which choice does not work.
    pub fn build(self) -> Result<Cache<K, V, S>, CacheBuildError> {
        let Self { choices, weigher, hasher } = self;
        let group = choices.group.unwrap_or_else(|| choices.runtime.root().clone());
        if !group.is_descendant_of(choices.runtime.root()) {
            return Err(CacheBuildError::ForeignGroup(group.path()));
        }
        let ttl = match (choices.time_to_live, choices.time_to_idle) {
            (None, None) => Ttl::Forever,
            (Some(time), None) => Ttl::Fixed(time),
            (None, Some(time)) => Ttl::Idle(time),
            (Some(time_to_live), Some(time_to_idle)) => {
                return Err(CacheBuildError::TwoTimes { time_to_live, time_to_idle });
            }
        };
        let mut builder = choices.runtime.registry().builder(&choices.name).reports_misses(true);
        if let Some(seeks) = choices.seeks {
            builder = builder.seeks(seeks);
        }
        let prepared = builder.alloc()?;
        // The last step that may fail: from here on the cache ends the group.
        let own_group = choices.limits.make_group(&choices.runtime, &group, &choices.name)?;
        let owns_group = own_group.is_some();
        let group = own_group.unwrap_or(group);
        let queues = Queues::new(&prepared.occupancy(), prepared.miss_reporter(), choices.eviction);
        let retired = choices.runtime.retired();
        let core = Arc::new(Core {
            index: ExtendibleIndex::with_retired(retired.count()),
            is_lru: queues.is_lru(),
            miss_cost: choices.miss_cost.map(Box::new),
            queues,
            listener: choices.listener,
            counters: Counters::default(),
            hasher,
            clock: Clock::start(),
            most: AtomicUsize::new(0),
            is_stuck: AtomicBool::new(false),
            freed_since: AtomicU32::new(0),
            sweeps: SweepSchedule::default(),
            compaction: Compaction::default(),
            held_values: choices.held_values,
            clone_fn: |record| (record.key.clone(), record.value.clone()),
            notifier: choices.runtime.housekeeper().notifier(),
            #[cfg(feature = "metrics")]
            shrinker: prepared.id(),
        });
        let retires: Weak<Core<K, V, S>> = Arc::downgrade(&core);
        retired.add(retires);
        let maintenance = choices.runtime.housekeeper().add(Arc::clone(&core) as _);
        let registration = prepared.register(Arc::clone(&core) as _);
        let inner = CacheInner {
            registration: Some(registration),
            core,
            maintenance,
            inflight: InflightLoads::default(),
            group,
            owns_group,
            has_tenants: AtomicBool::new(false),
            ttl,
            last_node: NodeId::new(choices.runtime.registry().nodes() as u16 - 1),
            weigher,
            runtime: choices.runtime,
        };
        Ok(Cache { inner: Arc::new(inner) })
    }
}

impl<K, V, W, S> std::fmt::Debug for CacheBuilder<K, V, W, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheBuilder")
            .field("name", &self.choices.name)
            .field("group", &self.choices.group)
            .field("limits", &self.choices.limits)
            .field("time_to_live", &self.choices.time_to_live)
            .field("time_to_idle", &self.choices.time_to_idle)
            .finish_non_exhaustive()
    }
}
