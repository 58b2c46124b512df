//! Groups, topology, registry and reclaimer under one roof.
//!
//! ```text
//!     Runtime
//!       groups     name -> Memcg, made when first asked for
//!       tree       Memcg: limits, charges
//!       topology   which node a thread is on
//!       registry   who can give memory back, and for whom
//!       reclaimer  a thread a node, that makes them
//!       keeper     a thread that lets go of what has expired, and of what dropped groups had; and one that stands by
//!       pressure   hears the machine, and lowers the budget for a while (only if the builder was told to)
//! ```
//!
//! Nothing is global: two runtimes in one process do not meet, but for the read side of lru-core and the processors.
//!
//! # What a charge does
//!
//! [`Runtime::charge`] takes the bytes from the group and from all above it. Near a limit the reclaimer is woken, which costs the
//! caller a few loads. At a limit the caller frees a little itself, bounded in objects and in time; if that is not enough it is told so,
//! and nothing is lost.
//!
//! # Pressure from outside
//!
//! A budget by hand is a guess about what the machine has left. With [`RuntimeBuilder::cgroup_limit`],
//! [`watch_psi`](RuntimeBuilder::watch_psi) or [`systemd`](RuntimeBuilder::systemd) the runtime also hears when the guess was
//! wrong. Then it lowers its effective budget, has the caches give way, and keeps it there until the pressure has been judged again:
//! see [`pressure::Target`](crate::pressure::Target).

mod builder;
mod keeper;
mod monitored;
mod retired;

pub use builder::{BuildError, RuntimeBuilder};
pub(crate) use keeper::{Bell, Chores, ChoresId, Next};
pub use monitored::MonitoredReclaimer;
pub(crate) use retired::{Retired, Retires};

use std::sync::Arc;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use lowwater_lru_core::{Bytes, Memcg, MemcgError, MemcgTree, OverLimit, Topology};
use lowwater_pressure::{Monitor, PressureStats};
#[cfg(doc)]
use lowwater_shrinker::CallbackScope;
use lowwater_shrinker::{DirectStop, NodeStats, Reclaim, ReclaimReason, Reclaimer, Registry, RegistryStats};

use keeper::Keeper;

/// Rounds of direct reclaim that a charge may make even if its time is over: a thread that was not running for a while has had
/// the time, but not the use of it.
const ROUNDS_MIN: u32 = 8;

/// The root's [path](Memcg::path).
const ROOT: &str = "/";

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
///    refused with [`HeldByReaders`](crate::cache::ReclaimReason::HeldByReaders). One bound for all caches
///    of the runtime. Beyond it there may be: one entry for each thread that inserts just now; 64
///    for each that drops some; and 4 KiB for each stripe of a cache, of which one with less than a
///    thousand entries has one, and others two for each processor. Bytes that are
///    [charged](Self::charge) by hand do not wait for readers.
/// 3. A runtime without a budget promises nothing of the kind; its groups' `max` hold as under 1.
///
/// Both speak of bytes as the weighers tell them. A value that a caller keeps, as a clone or an
/// `Arc`, stays in memory and is no part of either count once its entry has been dropped. When a
/// cache ends, what it has retired is dropped, since no reader can have it.
///
/// # Threads
///
/// A reclaimer for each NUMA node, and two that look after what has expired and after dropped groups, of which one stands by: where a listener or a value's
/// drop blocks the other, it goes on with all other caches after a quarter of a second. They sleep while there is nothing to do.
///
/// ```
/// use lowwater::{Bytes, Runtime};
///
/// let runtime = Runtime::builder().budget(Bytes::mib(256)).build()?;
/// let team = runtime.group("team/search")?;
/// team.set_max(Bytes::mib(64));
/// assert_eq!(team.path(), "/team/search");
/// assert!(runtime.charge(&team, Bytes::mib(65)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

struct Inner {
    // Before all it works on; it holds nothing of ours.
    keeper: Keeper,
    // First, so that its thread, which holds the reclaimer too, is joined before that goes.
    pressure: Option<Monitor>,
    // Next, so that its threads are joined before what they work on goes.
    reclaimer: Arc<Reclaimer>,
    registry: Registry,
    groups: DashMap<Box<str>, Memcg>,
    topology: Arc<dyn Topology>,
    direct_time_max: Duration,
    retired: Arc<Retired>,
    tree: MemcgTree,
}

/// A runtime at a glance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// Bytes charged, those in the processors' stock included.
    pub usage: Bytes,
    /// The budget that holds now: less than was asked for while there is pressure, or if the control group leaves less.
    pub budget: Bytes,
    /// Bytes of entries that have left the caches and are not dropped yet, most of which readers
    /// hold back, if it is much: beside the usage. With it, no more than the budget and a quarter,
    /// or 16 MiB if that is more: see [`Runtime`].
    pub retired: Bytes,
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
    /// Begins a runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// The group of this path (`shop`, `/shop/carts`; `/` is the root), made with all above it if it is not there. Names are up to 255 bytes.
    ///
    /// O(1) once it is there.
    ///
    /// # Errors
    ///
    /// [`MemcgError::BadName`] for an empty name on the path or one too long, [`MemcgError::TooDeep`] for more than
    /// [`DEPTH_MAX`](Memcg::DEPTH_MAX) of them; then none is made. [`MemcgError::Dying`] if a group above it is being ended right now, or it
    /// is itself being [dropped](Self::drop_group).
    pub fn group(&self, path: &str) -> Result<Memcg, MemcgError> {
        if path == ROOT {
            return Ok(self.root().clone());
        }
        let path = path.strip_prefix('/').unwrap_or(path);
        if let Some(group) = self.inner.groups.get(path).filter(|group| group.is_online()) {
            return Ok(group.clone());
        }
        for (depth, name) in path.split('/').enumerate() {
            if depth == Memcg::DEPTH_MAX {
                return Err(MemcgError::TooDeep);
            }
            if name.is_empty() || name.len() > Memcg::NAME_MAX {
                return Err(MemcgError::BadName);
            }
        }
        let mut group = self.root().clone();
        for name in path.split('/') {
            group = child(&group, name)?;
            if self.inner.keeper.drops(&group) {
                return Err(MemcgError::Dying);
            }
        }
        self.inner.groups.insert(path.into(), group.clone());
        // It may have been dropped between.
        if self.inner.keeper.drops(&group) {
            self.forget_group(&group);
            return Err(MemcgError::Dying);
        }
        Ok(group)
    }

    /// The group of this path, if it is there; `/` is the root.
    pub fn find_group(&self, path: &str) -> Option<Memcg> {
        if path == ROOT {
            return Some(self.root().clone());
        }
        let path = path.strip_prefix('/').unwrap_or(path);
        path.split('/').try_fold(self.root().clone(), |group, name| group.child(name))
    }

    /// Ends a group: its objects become its parent's, its id returns when the last of them is gone. O(lists of the group).
    ///
    /// Entries that shall go with it: [`drop_group`](Self::drop_group).
    ///
    /// # Errors
    ///
    /// Those of [`Memcg::offline`]: the root, a group with children, one that was ended already; and [`MemcgError::Foreign`] for one of
    /// another runtime.
    pub fn end_group(&self, group: &Memcg) -> Result<(), MemcgError> {
        if !self.owns(group) {
            return Err(MemcgError::Foreign);
        }
        group.offline()?;
        self.forget_group(group);
        Ok(())
    }

    /// Ends a group and lets go of all that caches have for it, in the background: O(1) here, however much that is.
    ///
    /// With [`end_group`](Self::end_group) the entries become the parent's, and stay. Here they leave, as by [`Cache::remove`](crate::Cache::remove):
    /// a few at a time, half a millisecond of work between rests. Until one has left, it is found. From now on nothing can be charged to the group (its
    /// `max` is 0), so inserts for it are refused; and [`group`](Self::group) says that it is dying, until the name is free again. That
    /// is when its last entry has left, or up to 100 ms later where charges remain that belong to no entry: these, and objects on lists
    /// of others, are the parent's then. An insert that was under way may leave an entry to the parent. Should the group be given a child
    /// meanwhile, it ends when that has.
    ///
    /// ```
    /// use lowwater::{Bytes, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(Bytes::mib(16)).build()?;
    /// let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| Bytes::ZERO).build()?;
    /// let tenant = runtime.group("tenant")?;
    /// cache.entry(1).group(&tenant).insert(1)?;
    ///
    /// runtime.drop_group(&tenant)?;
    /// while runtime.find_group("tenant").is_some() {
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!((cache.get(&1), cache.len()), (None, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`end_group`](Self::end_group). Nothing is changed then.
    pub fn drop_group(&self, group: &Memcg) -> Result<(), MemcgError> {
        if !self.owns(group) {
            return Err(MemcgError::Foreign);
        }
        if group.parent().is_none() {
            return Err(MemcgError::Root);
        }
        if !group.children().is_empty() {
            return Err(MemcgError::HasChildren);
        }
        if !group.is_online() || self.inner.keeper.drops(group) {
            return Err(MemcgError::AlreadyDying);
        }
        // First, so that what is found to be empty stays so.
        group.set_max(Bytes::ZERO);
        if !self.inner.keeper.drop_group(group) {
            return Err(MemcgError::AlreadyDying);
        }
        self.forget_group(group);
        Ok(())
    }

    /// Is it a group of this runtime?
    fn owns(&self, group: &Memcg) -> bool {
        group.is_in_tree_of(self.root())
    }

    /// The name does not lead to the group any more.
    fn forget_group(&self, group: &Memcg) {
        self.inner.groups.remove_if(group.path().trim_start_matches('/'), |_, found| found == group);
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.inner.keeper
    }

    /// Takes `bytes` for `group`, and frees some if they are not there. Give them back with [`Memcg::uncharge`].
    ///
    /// Bounded: as long as it pays, for the builder's [`direct_time_max`](RuntimeBuilder::direct_time_max) and one callback's time
    /// beyond; or for a few rounds, should the thread be kept from running for that long. The thread must hold no lock that a
    /// shrinker's callback takes.
    ///
    /// # Errors
    ///
    /// [`OverLimit`] names the group whose `max` was in the way. If `requested` is more than that `max` it never fits; otherwise the
    /// reclaimer is at work, and it is worth trying again in a while.
    ///
    /// # Panics
    ///
    /// For a group of another runtime, of whose caches this one knows nothing.
    pub fn charge(&self, group: &Memcg, bytes: Bytes) -> Result<(), OverLimit> {
        assert!(self.owns(group), "charge: the group {} is one of another runtime", group.path());
        let mut deadline = None;
        for round in 1.. {
            let over = match group.try_charge(bytes) {
                Ok(_) => {
                    self.inner.reclaimer.charged(group);
                    return Ok(());
                }
                Err(over) => over,
            };
            let (memcg, max) = (&over.memcg, over.memcg.max());
            if bytes > max {
                return Err(over);
            }
            self.inner.reclaimer.wake(memcg, ReclaimReason::Limit);
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.inner.direct_time_max);
            // What is more than can be counted does not fit, also where there is no limit.
            let fits = || memcg.usage().get().checked_add(bytes.get()).is_some_and(|sum| sum <= max.get());
            let outcome = self.inner.registry.direct_reclaim(memcg, Reclaim::FOREGROUND, &fits);
            // Objects that were looked at, and not freed, were given a second chance: the next round may find them without.
            let hopeless =
                outcome.scanned == 0 && matches!(outcome.stopped, DirectStop::NothingLeft | DirectStop::InScope);
            if hopeless || (round >= ROUNDS_MIN && Instant::now() >= deadline) {
                break;
            }
        }
        // Once more: somebody else may have freed what we did not.
        group.try_charge(bytes).map(|_| ())
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
    /// Default [`watermarks`](RuntimeBuilder::watermarks) are parts of the budget, and change with
    /// it: a runtime with a changed budget holds as much as one that was built with it.
    ///
    /// What the control group leaves, and what pressure has lowered, still holds.
    pub fn set_budget(&self, budget: Bytes) {
        if let Some(pressure) = self.pressure() {
            return pressure.set_budget(budget);
        }
        self.root().set_max(budget);
        if self.root().usage() > budget {
            self.inner.reclaimer.wake(self.root(), ReclaimReason::Limit);
        }
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
    /// use lowwater::{Bytes, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(Bytes::mib(64)).pressure(PressureConfig::default()).build()?;
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
    pub fn reclaim(&self, group: &Memcg, bytes: Bytes) -> Bytes {
        if !self.owns(group) {
            return Bytes::ZERO;
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
    fn freed(&self, bytes: Bytes) {
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

/// The child of this name, made if need be.
fn child(group: &Memcg, name: &str) -> Result<Memcg, MemcgError> {
    loop {
        if let Some(child) = group.child(name) {
            return Ok(child);
        }
        match group.create(name) {
            // Another thread made it between our two questions.
            Err(MemcgError::NameTaken) => {}
            result => return result,
        }
    }
}
