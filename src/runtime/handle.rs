//! [`Runtime`]: the public handle, and the state that its clones share.
//!
//! The state drops its fields in the order of their declaration, so this order decides that threads
//! end before the parts that they use. A change must place a new field by this order.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, Topology};
use lowwater_pressure::{Monitor, PressureStats};
#[cfg(doc)]
use lowwater_shrinker::CallbackScope;
use lowwater_shrinker::{NodeStats, Reclaimer, Registry, RegistryStats};

use super::housekeeper::Housekeeper;
use super::manual_clock::ManualClock;
use super::retired::Retired;

/// One memory budget, with the groups, caches, shrinkers and threads that share it. A handle: its
/// clones are the same runtime. The drop of the last handle stops and joins the threads. Inside a
/// callback (of a cache, of a shrinker, or a load: a [`CallbackScope`]) the drop does not join, and
/// each thread ends when the callback that it runs returns.
///
/// # Guarantees of a budget
///
/// 1. The [usage](Memcg::usage) of the root, which is the sum of all charged bytes, never exceeds
///    the budget, not for an instant. The same holds for each group and its `max`.
/// 2. An entry that is removed from a cache is uncharged at once, and
///    [retired](RuntimeStats::retired) until all readers that may have found it have left.
/// 3. Usage and retired bytes together never exceed the budget by more than a quarter of it, or by
///    16 MiB if that is more. This bound holds for all caches of the runtime together.
/// 4. In an [unlimited](super::RuntimeBuilder::unlimited) runtime only the `max` of groups hold, as
///    under 1.
///
/// One exception to 1: after a budget was [lowered](Self::set_budget), by a call or by a limit of
/// the system, usage only falls until it is within the new budget; with
/// [pressure](super::RuntimeBuilder::pressure), from one reading of it to the next (5 ms to 1 s).
/// The same holds for the `max` of a group: usage falls also if the group is not charged again.
///
/// Two exceptions to 3. If a reader clones a [`Charged`](super::Charged) value after the value's
/// last entry was removed, the value is counted twice until that entry is dropped. So the sum may
/// be higher, by as many bytes again as readers hold back; the memory in use is not. And bytes that
/// a program [charges](Self::charge) itself are bounded by 1 only: such a charge is not refused
/// because of retired bytes.
///
/// An insert that would exceed the bound of 3 waits for readers, for
/// [`direct_time_max`](super::RuntimeBuilder::direct_time_max) or eight waits of 100 us, whichever
/// is longer, and is then refused with
/// [`HeldByReaders`](crate::cache::RejectReason::HeldByReaders). In addition there may be three
/// replaced [ghost tables](RuntimeStats::ghosts) of 8 bytes for each entry at the time of their
/// creation, one entry for each thread that is inserting, 64 entries for each thread that is
/// dropping some, and 4 KiB for each thread cache of a cache's slab: a cache of fewer than a
/// thousand entries has one, a larger cache has about two per processor.
///
/// Bytes are those that the weighers return. A value that a caller keeps, as a clone or in an
/// `Arc`, stays in memory and is in neither count once its entry has been dropped, unless it is a
/// [`Charged`](super::Charged) value of a cache with
/// [`charge_held_values`](crate::cache::CacheBuilder::charge_held_values). When a cache is dropped,
/// its retired entries are dropped at once, since no reader can have them, or with the entries that
/// it leaves to the housekeeper. Its other entries count as retired, too, until each is dropped: an
/// insert waits for them as for those of readers, and may be refused if their `Drop` is slow.
///
/// # Threads
///
/// A reclaimer per NUMA node, and two housekeeper threads, which reap expired entries, empty
/// dropped groups, compact, and remove the entries of large caches after a clear or a drop. One of
/// the two is the standby: when a listener or a value's drop blocks the other for 250 ms, the
/// standby takes over the work for all other caches, and starts another standby: there is one more
/// thread for each cache whose code blocks. These threads sleep while there is nothing to do. A
/// runtime that watches for [pressure](Self::pressure) has one thread more, which also reads the
/// control group at fixed intervals. Where the kernel refuses `membarrier`, the process has another
/// thread, which visits the processors in its place, and stays until the process ends.
///
/// ```
/// use lowwater::{ByteSize, Runtime};
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(256)).build()?;
/// let team = runtime.group("team/search")?;
/// team.set_max(ByteSize::mib(64));
/// assert_eq!(team.path(), "/team/search");
/// assert!(runtime.charge(&team, ByteSize::mib(65)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Runtime {
    pub(super) inner: Arc<RuntimeInner>,
}

/// The state that all clones of a [`Runtime`] share. No thread of the runtime holds a handle on it,
/// so the drop of the last clone ends the threads.
pub(super) struct RuntimeInner {
    // The housekeeper's threads are joined before the parts that they use are dropped.
    pub(super) housekeeper: Housekeeper,
    // The monitor's thread has a handle on the reclaimer, so it is joined before the reclaimer is
    // dropped.
    pub(super) pressure: Option<Monitor>,
    // The reclaimer's threads are joined before the registry and the tree are dropped.
    pub(super) reclaimer: Arc<Reclaimer>,
    pub(super) registry: Registry,
    /// Groups by path, so that a lookup of a group takes no lock of the tree (`groups.rs`).
    pub(super) groups: DashMap<Box<str>, Memcg>,
    pub(super) topology: Arc<dyn Topology>,
    /// The budget with which the monitor began, if the control group's limit is the budget: a
    /// monitor with another one has got it by a call.
    pub(super) unset_budget: Option<ByteSize>,
    pub(super) direct_time_max: Duration,
    pub(super) retired: Arc<Retired>,
    /// The clock of the deadlines; `None`: the system's.
    pub(super) clock: Option<ManualClock>,
    /// The metric series that were published so far.
    #[cfg(feature = "metrics")]
    pub(super) published: parking_lot::Mutex<super::published::PublishedSeries>,
    pub(super) tree: MemcgTree,
}

/// Statistics of a runtime, from [`Runtime::stats`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// Charged bytes, including those in the stocks of the processors.
    pub usage: ByteSize,
    /// The effective budget: less than the configured one under memory pressure, or if the limit of
    /// the control group is lower.
    pub budget: ByteSize,
    /// Bytes of entries that were removed, or left by a dropped cache, and are not dropped yet, in
    /// addition to the usage.
    ///
    /// Removed entries are dropped in batches, so some bytes are normal; a number that stays near a
    /// quarter of the budget means that a reader (a [`Pinned`](crate::cache::Pinned), an iterator)
    /// holds entries back. Clones that callers keep are not included, except as
    /// [`charge_held_values`](crate::cache::CacheBuilder::charge_held_values) states. Usage and
    /// retired bytes together exceed the budget by a quarter of it at most, or by 16 MiB if that is
    /// more: see [`Runtime`].
    pub retired: ByteSize,
    /// Bytes of the ghost table, which records evicted keys and shows which tenants would use more
    /// memory. Each entry is charged for its part of the table. Includes replaced tables whose
    /// memory is being returned to the system, but not those that a reader may still access (two at
    /// most): until their grace period is over, these are not counted.
    pub ghosts: ByteSize,
    /// The pressure level and its causes; `None` unless the builder had a choice for pressure, or
    /// the budget is the control group's.
    pub pressure: Option<PressureStats>,
    /// The number of groups, including the root.
    pub groups: usize,
    /// Statistics of each node's reclaimer thread, in the order of the node numbers.
    pub reclaimers: Vec<NodeStats>,
    /// Statistics of the shrinkers, and of the map that records the groups for which each shrinker
    /// holds objects.
    pub registry: RegistryStats,
}

impl Runtime {
    /// Returns whether the group belongs to this runtime.
    pub(super) fn owns(&self, group: &Memcg) -> bool {
        group.is_in_tree_of(self.root())
    }

    pub(crate) fn housekeeper(&self) -> &Housekeeper {
        &self.inner.housekeeper
    }

    /// Returns the time that direct reclaim may take for one charge.
    pub(crate) fn direct_time_max(&self) -> Duration {
        self.inner.direct_time_max
    }

    /// Returns the clock of the deadlines; `None`: the system's.
    pub(crate) fn clock(&self) -> Option<&ManualClock> {
        self.inner.clock.as_ref()
    }

    /// Returns the retired records of all caches: removed, and not dropped yet.
    pub(crate) fn retired(&self) -> &Arc<Retired> {
        &self.inner.retired
    }

    /// Returns the root group. Its `max` is the effective budget. It is set by
    /// [`set_budget`](Self::set_budget) only: a call of [`Memcg::set_max`] would change the budget
    /// of all caches, and a [pressure](Self::pressure) monitor, which does not know the new value,
    /// would replace it.
    pub fn root(&self) -> &Memcg {
        self.inner.tree.root()
    }

    /// Changes the budget. If usage is above the new budget, the reclaimer starts to free the
    /// excess at once, and tries again every few seconds if it cannot free enough. Until then usage
    /// is above the budget, and charges fail. In a runtime that watches for pressure the limit
    /// follows the usage down instead, and a charge reclaims as many bytes as it takes.
    ///
    /// The default [`watermarks`](super::RuntimeBuilder::watermarks) are fractions of the budget
    /// and change with it: the runtime holds as much as one that was built with the new budget.
    ///
    /// The limit of the control group, and a budget that pressure has lowered, stay in effect.
    ///
    /// A budget of 0 is accepted here: all entries that no `min` protects are evicted, and once the
    /// limit is 0, each insert is refused.
    pub fn set_budget(&self, budget: ByteSize) {
        if let Some(pressure) = self.pressure() {
            return pressure.set_budget(budget);
        }
        // Wakes the reclaimer if the usage is above the new budget.
        self.root().set_max(budget);
    }

    /// Returns the budget with the effect of a control group's limit, and without that of pressure.
    pub(crate) fn budget_without_pressure(&self) -> ByteSize {
        self.pressure().map_or_else(|| self.root().max(), Monitor::budget)
    }

    /// Returns the configured budget, without the effect of a control group's limit or of pressure.
    /// If no call has set another one, it is the budget that the control group's limit leaves now.
    pub(crate) fn configured_budget(&self) -> ByteSize {
        match self.pressure().map(Monitor::asked_budget) {
            Some(asked) if self.inner.unset_budget != Some(asked) => asked,
            _ => self.budget_without_pressure(),
        }
    }

    /// Returns the tree of this runtime's groups, for methods that [`Runtime`] does not have: a
    /// group by its id ([`MemcgTree::get`]), or a hook for groups that go offline
    /// ([`MemcgTree::add_hook`]).
    pub fn tree(&self) -> &MemcgTree {
        &self.inner.tree
    }

    /// Returns the topology that assigns threads to NUMA nodes: the one given to
    /// [`RuntimeBuilder::topology`](super::RuntimeBuilder::topology), or that of this machine.
    pub fn topology(&self) -> &Arc<dyn Topology> {
        &self.inner.topology
    }

    /// Returns the registry of shrinkers, where a program registers a cache of its own.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Returns the reclaimer: the threads that call the shrinkers when usage is near a limit.
    pub fn reclaimer(&self) -> &Reclaimer {
        &self.inner.reclaimer
    }

    /// Returns the pressure monitor, by which a program can also raise pressure itself; `None`
    /// unless the builder had a choice for pressure, or the budget is the control group's.
    ///
    /// ```
    /// use lowwater::pressure::{Level, PressureConfig};
    /// use lowwater::{ByteSize, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(64)).pressure(PressureConfig::default()).build()?;
    /// // Another process needs memory: a quarter of the usage is reclaimed, and the budget stays
    /// // lower for a while.
    /// runtime.pressure().expect("pressure is monitored").raise(Level::Critical);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pressure(&self) -> Option<&Monitor> {
        self.inner.pressure.as_ref()
    }

    /// Reclaims from `group` and the groups below it, on the calling thread, until the group's
    /// usage has fallen by `bytes` or nothing more can be freed. Returns how far usage fell: 0 for
    /// a group of another runtime. Not bounded in time. Does not wait for another thread that
    /// evicts from a cache which only one thread can evict from, as those of `lowwater-adapters`.
    #[doc(alias = "memory.reclaim")]
    pub fn reclaim(&self, group: &Memcg, bytes: ByteSize) -> ByteSize {
        if !self.owns(group) {
            return ByteSize::ZERO;
        }
        let freed = self.inner.registry.reclaim(group, bytes);
        self.freed(freed);
        freed
    }

    /// Frees every object that can be freed, even in groups within their `min` or `low`. Returns
    /// the number of freed objects. As [`reclaim`](Self::reclaim), it does not wait for another
    /// thread's eviction.
    pub fn drop_caches(&self) -> u64 {
        let before = self.root().usage();
        let dropped = self.inner.registry.drop_caches();
        self.freed(before.saturating_sub(self.root().usage()));
        dropped
    }

    /// Reports freed bytes to the pressure monitor, if there is one: the monitor trims the
    /// allocator after many freed bytes.
    fn freed(&self, bytes: ByteSize) {
        if let Some(pressure) = self.pressure() {
            pressure.freed(bytes);
        }
    }

    /// Returns the statistics of the runtime. O(shrinkers + live pairs).
    pub fn stats(&self) -> RuntimeStats {
        RuntimeStats {
            usage: self.root().usage(),
            budget: self.root().max(),
            retired: self.retired().bytes(),
            ghosts: ByteSize::new(self.housekeeper().ghosts().footprint() as u64),
            pressure: self.pressure().map(Monitor::stats),
            groups: self.inner.tree.len(),
            reclaimers: self.inner.reclaimer.stats(),
            registry: self.inner.registry.snapshot(),
        }
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("usage", &self.root().usage())
            .field("budget", &self.root().max())
            .field("groups", &self.inner.tree.len())
            .finish_non_exhaustive()
    }
}
