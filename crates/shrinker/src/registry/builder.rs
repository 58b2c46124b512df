//! Creation of shrinkers in two steps: [`alloc`](ShrinkerBuilder::alloc) allocates an id, and
//! [`register`](Prepared::register) registers the shrinker under it.
//!
//! A shrinker is created with its lists, and its lists with the id's [`Occupancy`], through which
//! they report objects: so the id comes first. A change must ensure that an id without a shrinker
//! keeps the bits that its lists set, and that bits for which there was no memory are set later.
//!
//! Numbers such as S20 are those of docs/INVARIANTS.md.

use alloc::{boxed::Box, sync::Arc};

use core::alloc::Layout;
use lowwater_base::fallible::{try_arc, try_str, TryArc};
use lowwater_lru_core::{NodeId, Occupancy};

use super::caches::Caches;
use super::miss_reporter::MissReporter;
use super::options::ShrinkerOptions;
use super::registration::Registration;
use super::registry_core::{IdClaim, Registered, RegisteredOccupancy, RegistryCore};
use super::shrinker_state::OccupancyHandle;
use crate::error::ShrinkerAllocError;
use crate::id::ShrinkerId;
use crate::shrinker::Shrinker;

/// The options of a future shrinker, from [`Registry::builder`](crate::Registry::builder).
///
/// ```
/// use std::sync::Arc;
/// use lowwater_lru_core::MemcgTree;
/// use lowwater_shrinker::{Count, Registry, Scan, ShrinkControl, Shrinker};
///
/// struct Icons;
/// impl Shrinker for Icons {
///     fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
///         Count::Empty
///     }
///     fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
///         Scan::Stop
///     }
/// }
///
/// let tree = MemcgTree::default();
/// let registry = Registry::new(&tree, 1);
/// // Expensive to recreate, and shared by all groups and nodes.
/// let prepared = registry.builder("icons").seeks(8).batch(32).memcg_aware(false).numa_aware(false).alloc()?;
/// let registration = prepared.register(Arc::new(Icons));
/// assert_eq!(registration.id().get(), 0);
/// # Ok::<(), lowwater_shrinker::ShrinkerAllocError>(())
/// ```
#[must_use = "a builder does nothing until `alloc`"]
pub struct ShrinkerBuilder<'a> {
    core: &'a TryArc<RegistryCore>,
    /// `None` if there was no memory for it.
    name: Option<Box<str>>,
    options: ShrinkerOptions,
}

impl<'a> ShrinkerBuilder<'a> {
    pub(super) fn new(core: &'a TryArc<RegistryCore>, name: &str) -> Self {
        Self { core, name: try_str(name), options: ShrinkerOptions::default() }
    }

    /// Sets the relative cost of recreating an object, 2 by default: a cache whose objects cost
    /// twice as much gives up half as many. 0 for objects that cost nothing.
    pub fn seeks(mut self, seeks: u32) -> Self {
        self.options.seeks = seeks;
        self
    }

    /// Sets the number of objects in one call of `scan_objects`, 128 by default; 0 means the
    /// default.
    pub fn batch(mut self, objects: u64) -> Self {
        self.options.batch = if objects == 0 { crate::budget::BATCH_DEFAULT } else { objects };
        self
    }

    /// Sets whether the shrinker distinguishes groups. True by default; if false, it is called once
    /// for all groups, with the root.
    #[doc(alias = "SHRINKER_MEMCG_AWARE")]
    pub fn memcg_aware(mut self, aware: bool) -> Self {
        self.options.memcg_aware = aware;
        self
    }

    /// Sets whether the shrinker distinguishes nodes. True by default; if false, it is called once
    /// for all nodes, with node 0.
    #[doc(alias = "SHRINKER_NUMA_AWARE")]
    pub fn numa_aware(mut self, aware: bool) -> Self {
        self.options.numa_aware = aware;
        self
    }

    /// Sets whether ghost hits will be reported, by [`Prepared::miss_reporter`]. False by default:
    /// then the shrinker's utility is estimated from its turnover.
    pub fn reports_misses(mut self, yes: bool) -> Self {
        self.options.reports_misses = yes;
        self
    }

    /// Sets the kind of the shrinker's objects, for calls that drop only some kinds;
    /// [`Caches::OBJECTS`] by default.
    #[doc(hidden)]
    pub fn caches(mut self, caches: Caches) -> Self {
        self.options.caches = caches;
        self
    }

    /// Allocates an id. There is no shrinker to be called yet, but its lists can be created and
    /// filled: their reports are kept.
    ///
    /// O(log highest id).
    ///
    /// # Errors
    ///
    /// [`ShrinkerAllocError::OutOfIds`], [`ShrinkerAllocError::NoMemory`].
    #[doc(alias = "shrinker_alloc")]
    pub fn alloc(self) -> Result<Prepared, ShrinkerAllocError> {
        let name = self.name.ok_or(ShrinkerAllocError::NoMemory)?;
        // Before the id can have bits.
        let resyncs = self.core.resyncs();
        let claim = RegistryCore::alloc(self.core, self.options)?;
        Ok(Prepared { claim, name, resyncs })
    }
}

impl core::fmt::Debug for ShrinkerBuilder<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ShrinkerBuilder").field("name", &self.name).field("options", &self.options).finish()
    }
}

/// An id without a shrinker, between the two steps. Dropping this frees the id.
#[must_use = "without `register` the shrinker is never called"]
pub struct Prepared {
    claim: IdClaim,
    name: Box<str>,
    /// The number of the registry's resyncs when the id was allocated.
    resyncs: u64,
}

impl Prepared {
    /// Returns the id of the future shrinker. The id is free again if this is dropped without
    /// `register`.
    pub fn id(&self) -> ShrinkerId {
        ShrinkerId::new(self.claim.state().key.id)
    }

    /// Returns the occupancy to create the shrinker's lists with, so that the shrinker is called
    /// for groups and nodes where they hold objects. A cache without such lists calls
    /// [`Occupancy::occupied`] itself, when a group's objects on a node go from none to some. After
    /// the registration has ended, the occupancy ignores reports, and may be kept.
    ///
    /// The lists must have no more nodes than the registry, and only groups of its tree: objects
    /// elsewhere are never reclaimed. A report for a group of another tree is ignored; a report for
    /// a node beyond the last counts for the last.
    ///
    /// Allocates the handle, and aborts without memory, as `Arc::new` does; see
    /// [`try_occupancy`](Self::try_occupancy).
    pub fn occupancy(&self) -> Arc<dyn Occupancy> {
        self.try_occupancy().unwrap_or_else(|_| alloc::alloc::handle_alloc_error(Layout::new::<RegisteredOccupancy>()))
    }

    /// As [`occupancy`](Self::occupancy), for callers that can handle a failure, in builds where an
    /// `Arc` can report one ([`fallible::try_arc`](lowwater_base::fallible::try_arc)); in other
    /// builds it aborts, too.
    ///
    /// # Errors
    ///
    /// [`ShrinkerAllocError::NoMemory`], in builds that can report it.
    pub fn try_occupancy(&self) -> Result<Arc<dyn Occupancy>, ShrinkerAllocError> {
        let occupancy = try_arc(OccupancyHandle(self.claim.state().clone())).ok_or(ShrinkerAllocError::NoMemory)?;
        Ok(occupancy)
    }

    /// Returns the handle for reporting misses on evicted objects. After the registration has ended
    /// it reports nothing, and may be kept.
    pub fn miss_reporter(&self) -> MissReporter {
        MissReporter::new(self.claim.state().clone())
    }

    /// Registers the shrinker: it may be called from any thread, from now until the registration is
    /// dropped. Aborts without memory; see [`try_register`](Self::try_register).
    ///
    /// A shrinker that is not memcg-aware is called from the start; a memcg-aware one, where its
    /// lists have reported objects, before or after this.
    #[doc(alias = "shrinker_register")]
    pub fn register(self, shrinker: Arc<dyn Shrinker>) -> Registration {
        self.try_register(shrinker).unwrap_or_else(|_| alloc::alloc::handle_alloc_error(Layout::new::<Registered>()))
    }

    /// As [`register`](Self::register), for callers that can handle a failure.
    ///
    /// # Errors
    ///
    /// [`ShrinkerAllocError::NoMemory`]; the id is freed.
    pub fn try_register(self, shrinker: Arc<dyn Shrinker>) -> Result<Registration, ShrinkerAllocError> {
        let Self { claim, name, resyncs } = self;
        let (core, state) = (claim.core().clone(), claim.state().clone());
        if !state.options.memcg_aware {
            let nodes = if state.options.numa_aware { core.map.nodes() } else { 1 };
            for node in 0..nodes {
                state.occupied(&core.root, NodeId::new(node as u16));
            }
        }
        let registered = Registered::new(name, state, shrinker);
        let registered = TryArc::try_new(registered).ok_or(ShrinkerAllocError::NoMemory)?;
        // Publication comes last: a lookup that finds the shrinker sees it fully initialized (S20).
        if !core.publish(&registered) {
            return Err(ShrinkerAllocError::NoMemory);
        }
        if core.resyncs() != resyncs {
            // A resync did not find the shrinker, and there may have been no memory for its bits.
            core.map.mark_all_dirty();
        }
        Ok(Registration::new(registered, claim))
    }
}

impl core::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Prepared").field("id", &self.id()).field("name", &self.name).finish_non_exhaustive()
    }
}
