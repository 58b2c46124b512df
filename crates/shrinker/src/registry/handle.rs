//! The handle of a registry: its constructors, and access to its parts.
//!
//! The other calls of the handle are in `reclaim.rs` and `inspect.rs`. Clones and registrations
//! share one `RegistryCore`, which ends with the last of them.
//!
//! A change must ensure that the core does not end while a clone or a registration exists.

use alloc::sync::Arc;
use core::alloc::Layout;

use lowwater_base::fallible::TryArc;
use lowwater_lru_core::{Memcg, MemcgTree};

use super::builder::ShrinkerBuilder;
use super::config::RegistryConfig;
use super::debt_listener::DebtListener;
use super::registry_core::RegistryCore;
use super::scope::NoReclaim;
use crate::error::ShrinkerAllocError;

/// The shrinkers of one runtime, and the calls that make them give memory back. A handle: clones
/// refer to the same registry.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
/// use lowwater_lru_core::{MemcgTree, NodeId};
/// use lowwater_shrinker::{Count, Registry, Scan, ShrinkControl, Shrinker};
///
/// struct Pool(AtomicU64);
///
/// impl Shrinker for Pool {
///     fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
///         match self.0.load(Relaxed) {
///             0 => Count::Empty,
///             n => Count::Objects(n),
///         }
///     }
///     fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
///         let n = self.0.load(Relaxed).min(sc.nr_to_scan());
///         self.0.fetch_sub(n, Relaxed);
///         sc.set_nr_scanned(n);
///         Scan::Freed(n)
///     }
/// }
///
/// let tree = MemcgTree::default();
/// let registry = Registry::new(&tree, 1);
///
/// let prepared = registry.builder("pool").alloc()?;
/// let occupancy = prepared.occupancy();
/// let registration = prepared.register(Arc::new(Pool(AtomicU64::new(1000))));
/// occupancy.occupied(tree.root(), NodeId::ZERO);
///
/// assert_eq!(registry.drop_caches(), 1000);
/// assert_eq!(registry.drop_caches(), 0);
/// // Two calls: one to count, one for the second count; none for the second drop.
/// assert_eq!(registration.stats().callbacks, 2);
/// # Ok::<(), lowwater_shrinker::ShrinkerAllocError>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    pub(crate) core: TryArc<RegistryCore>,
}

impl Registry {
    /// Creates a registry for the groups of `tree` and for `nodes` NUMA nodes, with the defaults of
    /// [`RegistryConfig`].
    ///
    /// # Panics
    ///
    /// If `nodes` is 0 or more than a [`NodeId`](lowwater_lru_core::NodeId) can represent.
    pub fn new(tree: &MemcgTree, nodes: usize) -> Self {
        Self::with_config(tree, RegistryConfig::new(nodes))
    }

    /// Creates a registry for the groups of `tree` with this configuration. Aborts the process if
    /// there is no memory.
    pub fn with_config(tree: &MemcgTree, config: RegistryConfig) -> Self {
        Self::try_with_config(tree, config)
            .unwrap_or_else(|_| alloc::alloc::handle_alloc_error(Layout::new::<RegistryCore>()))
    }

    /// As [`with_config`](Self::with_config), for callers that can handle a failure.
    ///
    /// # Errors
    ///
    /// [`ShrinkerAllocError::NoMemory`].
    pub fn try_with_config(tree: &MemcgTree, config: RegistryConfig) -> Result<Self, ShrinkerAllocError> {
        let core = RegistryCore::try_new(tree, config).ok_or(ShrinkerAllocError::NoMemory)?;
        Ok(Self { core })
    }

    /// Starts to build a shrinker. The name is for display; two shrinkers may have the same name.
    pub fn builder(&self, name: &str) -> ShrinkerBuilder<'_> {
        ShrinkerBuilder::new(&self.core, name)
    }

    /// Returns the number of NUMA nodes.
    pub fn nodes(&self) -> usize {
        self.core.map.nodes()
    }

    /// Returns the root of the tree this registry reclaims from.
    pub fn root(&self) -> &Memcg {
        &self.core.root
    }

    /// Keeps this thread from reclaiming through this registry until the guard is dropped: for code
    /// that holds locks that a shrinker's callback takes. Without `std` the scope does nothing
    /// ([`NoReclaim`]). Aborts the process if there is no memory to record the thread.
    pub fn no_reclaim_scope(&self) -> NoReclaim<'_> {
        self.core.scopes.enter()
    }

    /// As [`no_reclaim_scope`](Self::no_reclaim_scope), but returns `None` if the thread is inside
    /// a callback or a scope already, or without memory. For a cache that evicts on its own
    /// initiative and runs user code for it, which could make it evict inside of that code again
    /// and again: on `None` it must not evict either, unless it prevents that by itself. Without
    /// `std` the thread counts as outside, so the cache must always prevent it by itself.
    pub fn first_no_reclaim_scope(&self) -> Option<NoReclaim<'_>> {
        self.core.scopes.enter_first()
    }

    /// Sets the listener for deferred objects, and replaces the previous one. A
    /// [`Reclaimer`](crate::Reclaimer) sets itself; an embedder with threads of its own sets one
    /// that wakes them.
    pub fn set_debt_listener(&self, listener: Option<Arc<dyn DebtListener>>) {
        let old = self.core.replace_debt_listener(listener);
        // Dropped without the lock, because its drop is user code.
        drop(old);
    }

    /// Removes this listener for deferred objects, unless another one has replaced it.
    #[cfg(feature = "std")]
    pub(crate) fn remove_debt_listener(&self, listener: &Arc<dyn DebtListener>) {
        let old = self.core.remove_debt_listener(listener);
        drop(old);
    }

    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(crate) fn foreground_calls(&self) -> u64 {
        self.core.foreground_calls()
    }

    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(crate) fn sweep_every(&self) -> core::time::Duration {
        self.core.config.sweep_every
    }
}

impl core::fmt::Debug for Registry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let shrinkers = self.core.len();
        f.debug_struct("Registry").field("nodes", &self.nodes()).field("shrinkers", &shrinkers).finish_non_exhaustive()
    }
}
