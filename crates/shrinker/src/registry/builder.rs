//! How a shrinker is made: first its id and occupancy, which lists need, then the shrinker, which needs its lists.

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

/// The first of two steps, from [`Registry::builder`](crate::Registry::builder).
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
/// // Dear to make again, and all in one place whoever uses them.
/// let prepared = registry.builder("icons").seeks(8).batch(32).memcg_aware(false).numa_aware(false).alloc()?;
/// let registration = prepared.register(Arc::new(Icons));
/// assert_eq!(registration.id().get(), 0);
/// # Ok::<(), lowwater_shrinker::ShrinkerAllocError>(())
/// ```
#[must_use = "a builder does nothing until `alloc`"]
pub struct ShrinkerBuilder<'a> {
    core: &'a TryArc<RegistryCore>,
    /// None: there was no memory for it.
    name: Option<Box<str>>,
    options: ShrinkerOptions,
}

impl<'a> ShrinkerBuilder<'a> {
    pub(super) fn new(core: &'a TryArc<RegistryCore>, name: &str) -> Self {
        Self { core, name: try_str(name), options: ShrinkerOptions::default() }
    }

    /// What it costs to make an object again, 2 by default: a cache whose objects cost twice as much gives half as much. 0
    /// for objects that cost nothing.
    pub fn seeks(mut self, seeks: u32) -> Self {
        self.options.seeks = seeks;
        self
    }

    /// Objects in one call of `scan_objects`, 128 by default; 0 is taken for that.
    pub fn batch(mut self, objects: u64) -> Self {
        self.options.batch = if objects == 0 { crate::budget::BATCH_DEFAULT } else { objects };
        self
    }

    /// Does the shrinker tell groups apart? Yes by default; if not, it is asked once for all, as for the root.
    #[doc(alias = "SHRINKER_MEMCG_AWARE")]
    pub fn memcg_aware(mut self, aware: bool) -> Self {
        self.options.memcg_aware = aware;
        self
    }

    /// Does the shrinker tell nodes apart? Yes by default; if not, it is asked once for all, as for node 0.
    #[doc(alias = "SHRINKER_NUMA_AWARE")]
    pub fn numa_aware(mut self, aware: bool) -> Self {
        self.options.numa_aware = aware;
        self
    }

    /// Will ghost hits be reported, by [`Prepared::miss_reporter`]? No by default: then the shrinker is
    /// judged by how fast its objects turn over.
    pub fn reports_misses(mut self, yes: bool) -> Self {
        self.options.reports_misses = yes;
        self
    }

    /// The kind of its objects, so that some kinds can be dropped and others kept; [`Caches::OBJECTS`] by default.
    #[doc(hidden)]
    pub fn caches(mut self, caches: Caches) -> Self {
        self.options.caches = caches;
        self
    }

    /// Takes an id. Nobody calls the shrinker yet, but its lists can be made and filled: what they report is kept.
    ///
    /// O(log free ids).
    ///
    /// # Errors
    ///
    /// [`ShrinkerAllocError::OutOfIds`], [`ShrinkerAllocError::NoMemory`].
    #[doc(alias = "shrinker_alloc")]
    pub fn alloc(self) -> Result<Prepared, ShrinkerAllocError> {
        let name = self.name.ok_or(ShrinkerAllocError::NoMemory)?;
        let claim = RegistryCore::alloc(self.core, self.options)?;
        Ok(Prepared { claim, name })
    }
}

impl core::fmt::Debug for ShrinkerBuilder<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ShrinkerBuilder").field("name", &self.name).field("options", &self.options).finish()
    }
}

/// An id without a shrinker, between the two steps. Dropping it gives the id back.
#[must_use = "without `register` nobody is ever asked"]
pub struct Prepared {
    claim: IdClaim,
    name: Box<str>,
}

impl Prepared {
    /// The id.
    pub fn id(&self) -> ShrinkerId {
        ShrinkerId::new(self.claim.state().key.id)
    }

    /// The occupancy that the shrinker's lists are made with, so that it is asked where they hold something. A cache without such
    /// lists calls [`Occupancy::occupied`] itself, when a group's objects on a node go from none to some. After the
    /// registration has ended it listens no more, and may be kept.
    ///
    /// The lists must have no more nodes than the registry, and groups of its tree only: nobody
    /// asks for objects elsewhere. What is told of a group of another tree is not listened to; of a
    /// node beyond the last, it stands for the last.
    ///
    /// Allocates the handle, and aborts where there is no memory, as `Arc::new` does; see
    /// [`try_occupancy`](Self::try_occupancy).
    pub fn occupancy(&self) -> Arc<dyn Occupancy> {
        self.try_occupancy().unwrap_or_else(|_| alloc::alloc::handle_alloc_error(Layout::new::<RegisteredOccupancy>()))
    }

    /// As [`occupancy`](Self::occupancy), for who can do without, and builds with an `Arc` that can
    /// say so ([`fallible::try_arc`](lowwater_base::fallible::try_arc)); elsewhere it aborts,
    /// too.
    ///
    /// # Errors
    ///
    /// [`ShrinkerAllocError::NoMemory`], where the build can tell.
    pub fn try_occupancy(&self) -> Result<Arc<dyn Occupancy>, ShrinkerAllocError> {
        let occupancy = try_arc(OccupancyHandle(self.claim.state().clone())).ok_or(ShrinkerAllocError::NoMemory)?;
        Ok(occupancy)
    }

    /// The handle by which misses on objects that were let go are reported. It reports nothing after
    /// the registration has ended, and may be kept.
    pub fn miss_reporter(&self) -> MissReporter {
        MissReporter::new(self.claim.state().clone())
    }

    /// Lets the shrinker be called; from any thread, from now until the registration is dropped.
    ///
    /// A shrinker that is not memcg-aware is asked from the start; one that is, where its lists have told of something, before
    /// or after this.
    #[doc(alias = "shrinker_register")]
    pub fn register(self, shrinker: Arc<dyn Shrinker>) -> Registration {
        self.try_register(shrinker).unwrap_or_else(|_| alloc::alloc::handle_alloc_error(Layout::new::<Registered>()))
    }

    /// As [`register`](Self::register), for who can do without.
    ///
    /// # Errors
    ///
    /// [`ShrinkerAllocError::NoMemory`]; the id is given back.
    pub fn try_register(self, shrinker: Arc<dyn Shrinker>) -> Result<Registration, ShrinkerAllocError> {
        let Self { claim, name } = self;
        let (core, state) = (claim.core().clone(), claim.state().clone());
        if !state.options.memcg_aware {
            let nodes = if state.options.numa_aware { core.map.nodes() } else { 1 };
            for node in 0..nodes {
                state.occupied(&core.root, NodeId::new(node as u16));
            }
        }
        let registered = Registered::new(name, state, shrinker);
        let registered = TryArc::try_new(registered).ok_or(ShrinkerAllocError::NoMemory)?;
        // Publication comes last: a lookup that finds the shrinker finds it whole (S20).
        if !core.publish(&registered) {
            return Err(ShrinkerAllocError::NoMemory);
        }
        Ok(Registration::new(registered, claim))
    }
}

impl core::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Prepared").field("id", &self.id()).field("name", &self.name).finish_non_exhaustive()
    }
}
