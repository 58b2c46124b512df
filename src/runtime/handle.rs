//! The public handle of a runtime, and what its clones share.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, Topology};
use lowwater_pressure::{Monitor, PressureStats};
#[cfg(doc)]
use lowwater_shrinker::CallbackScope;
use lowwater_shrinker::{NodeStats, ReclaimReason, Reclaimer, Registry, RegistryStats};

use super::housekeeper::Housekeeper;
use super::retired::Retired;

/// One memory budget, and everything that lives in it. A handle: clones are the same runtime. The last one stops the threads, and joins
/// them; inside a callback (of a cache, of a shrinker, in a load: a [`CallbackScope`]) it does not, and each thread ends when the callback
/// that it runs returns.
///
/// # What a budget promises
///
/// 1. The [usage](Memcg::usage) of the root, which is what is charged, never exceeds the budget,
///    not for an instant. One exception: after the budget was [lowered](Self::set_budget), by hand
///    or by a limit that is heard of, usage only falls until it is within the new one. The same
///    holds for each group and its `max`.
/// 2. An entry that leaves a cache is uncharged at once, and dropped when the readers that may look
///    at it have left: until then it is [retired](RuntimeStats::retired). Usage and retired bytes
///    together never exceed the budget by more than a quarter of it, or by 16 MiB if that is more:
///    an insert that would exceed this waits for readers, as long as a charge may take, and is
///    refused with [`HeldByReaders`](crate::cache::RejectReason::HeldByReaders). One bound for all caches
///    of the runtime. Beyond it there may be: one entry for each thread that inserts just now; 64
///    for each that drops some; and 4 KiB for each stripe of a cache, of which one with less than a
///    thousand entries has one, and others two for each processor. Bytes that are
///    [charged](Self::charge) by hand do not wait for readers.
/// 3. A runtime without a budget promises nothing of the kind; its groups' `max` hold as under 1.
///
/// Both speak of bytes as the weighers tell them. A value that a caller keeps, as a clone or an
/// `Arc`, stays in memory and is no part of either count once its entry has been dropped, unless it
/// is a [`Charged`](super::Charged) one of a cache with
/// [`charge_held_values`](crate::cache::CacheBuilder::charge_held_values). When a
/// cache ends, what it has retired is dropped, since no reader can have it.
///
/// # Threads
///
/// A reclaimer for each NUMA node, and two that look after what has expired and after dropped groups, of which one stands by: where a listener or a value's
/// drop blocks the other, it goes on with all other caches after a quarter of a second. They sleep while there is nothing to do.
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

pub(super) struct RuntimeInner {
    // Before all it works on; it holds nothing of ours.
    pub(super) housekeeper: Housekeeper,
    // First, so that its thread, which holds the reclaimer too, is joined before that goes.
    pub(super) pressure: Option<Monitor>,
    // Next, so that its threads are joined before what they work on goes.
    pub(super) reclaimer: Arc<Reclaimer>,
    pub(super) registry: Registry,
    pub(super) groups: DashMap<Box<str>, Memcg>,
    pub(super) topology: Arc<dyn Topology>,
    pub(super) direct_time_max: Duration,
    pub(super) retired: Arc<Retired>,
    /// What was published so far.
    #[cfg(feature = "metrics")]
    pub(super) published: parking_lot::Mutex<super::published::PublishedSeries>,
    pub(super) tree: MemcgTree,
}

/// A runtime at a glance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// Bytes charged, those in the processors' stock included.
    pub usage: ByteSize,
    /// The budget that holds now: less than was asked for while there is pressure, or if the control group leaves less.
    pub budget: ByteSize,
    /// Bytes of entries that have left the caches and are not dropped yet, most of which readers
    /// hold back, if it is much: beside the usage. With it, no more than the budget and a quarter,
    /// or 16 MiB if that is more: see [`Runtime`].
    pub retired: ByteSize,
    /// Bytes of the table of keys that were evicted, by which the runtime tells who would use more memory. Each entry is charged
    /// for its part of it.
    pub ghosts: ByteSize,
    /// How bad the pressure is, and what has led to it; none unless the builder was told to watch.
    pub pressure: Option<PressureStats>,
    /// Groups, the root included.
    pub groups: usize,
    /// What each node's reclaimer thread did.
    pub reclaimers: Vec<NodeStats>,
    /// The shrinkers and the map of who holds something.
    pub registry: RegistryStats,
}

impl Runtime {
    /// Is it a group of this runtime?
    pub(super) fn owns(&self, group: &Memcg) -> bool {
        group.is_in_tree_of(self.root())
    }

    pub(crate) fn housekeeper(&self) -> &Housekeeper {
        &self.inner.housekeeper
    }

    /// How long a charge may take that finds no room.
    pub(crate) fn direct_time_max(&self) -> Duration {
        self.inner.direct_time_max
    }

    /// What has left the caches, and is not dropped yet.
    pub(crate) fn retired(&self) -> &Arc<Retired> {
        &self.inner.retired
    }

    /// The root group: its `max` is the budget that holds now.
    pub fn root(&self) -> &Memcg {
        self.inner.tree.root()
    }

    /// Changes the budget. If more is in use than that, the reclaimer frees it, which it begins at
    /// once. Meanwhile usage is above the budget, and charges fail; in a runtime that watches for
    /// pressure the limit follows the usage down, and charges free as much as they take.
    ///
    /// Default [`watermarks`](super::RuntimeBuilder::watermarks) are parts of the budget, and change with
    /// it: a runtime with a changed budget holds as much as one that was built with it.
    ///
    /// What the control group leaves, and what pressure has lowered, still holds.
    pub fn set_budget(&self, budget: ByteSize) {
        if let Some(pressure) = self.pressure() {
            return pressure.set_budget(budget);
        }
        self.root().set_max(budget);
        if self.root().usage() > budget {
            self.inner.reclaimer.wake(self.root(), ReclaimReason::Limit);
        }
    }

    /// The budget that was asked for, whatever a control group or pressure leaves now.
    pub(crate) fn asked_budget(&self) -> ByteSize {
        self.pressure().map_or_else(|| self.root().max(), Monitor::asked_budget)
    }

    /// The tree of groups.
    pub fn tree(&self) -> &MemcgTree {
        &self.inner.tree
    }

    /// Which nodes there are.
    pub fn topology(&self) -> &Arc<dyn Topology> {
        &self.inner.topology
    }

    /// Who can give memory back; a cache of one's own registers here.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// The threads that make them.
    pub fn reclaimer(&self) -> &Reclaimer {
        &self.inner.reclaimer
    }

    /// The watch for pressure, by which it can also be raised by hand; none unless the builder was told of a source, or of how to
    /// answer.
    ///
    /// ```
    /// use lowwater::pressure::{Level, PressureConfig};
    /// use lowwater::{ByteSize, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(64)).pressure(PressureConfig::default()).build()?;
    /// // Somebody else needs memory: a quarter of what is used is to go, and not to come back soon.
    /// runtime.pressure().expect("it was asked for").raise(Level::Critical);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pressure(&self) -> Option<&Monitor> {
        self.inner.pressure.as_ref()
    }

    /// Reclaims `bytes` from `group` and those below it, on this thread, until its usage fell by that or nothing more can be freed.
    /// Says by how much it fell; not at all for a group of another runtime. Not bounded in time.
    #[doc(alias = "memory.reclaim")]
    pub fn reclaim(&self, group: &Memcg, bytes: ByteSize) -> ByteSize {
        if !self.owns(group) {
            return ByteSize::ZERO;
        }
        let freed = self.inner.registry.reclaim(group, bytes);
        self.freed(freed);
        freed
    }

    /// Frees all that can be freed, protected or not; says how many objects.
    pub fn drop_caches(&self) -> u64 {
        let before = self.root().usage();
        let dropped = self.inner.registry.drop_caches();
        self.freed(before.saturating_sub(self.root().usage()));
        dropped
    }

    /// The allocator is to give it back to the system, if there is a watch.
    fn freed(&self, bytes: ByteSize) {
        if let Some(pressure) = self.pressure() {
            pressure.freed(bytes);
        }
    }

    /// What is there, and what was done. O(shrinkers + live pairs).
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
