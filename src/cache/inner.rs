//! The state that the clones of a cache's handle share.
//!
//! It holds the core and the core's registration as a shrinker. The registration holds the core, so
//! the core must not hold the registration: neither would ever be dropped.

use std::sync::Arc;

use lowwater_lru_core::{ByteSize, Memcg, NodeId};
use lowwater_shrinker::{CallbackScope, Registration};

use super::clear::state::REMOVED_AT_ONCE;
use super::core::Core;
use super::expiry::clock::Ttl;
use super::functions::ValueFunctions;
use crate::runtime::MaintenanceId;
use crate::Runtime;

/// A cache's weigher, which returns the bytes that a key and a value own beyond their own size; the
/// third parameter of a [`CacheBuilder`](super::CacheBuilder) after
/// [`CacheBuilder::weigher`](super::CacheBuilder::weigher).
///
/// ```
/// use lowwater::cache::{CacheBuilder, Weigher};
/// use lowwater::{Cache, Runtime};
///
/// fn names(runtime: &Runtime) -> CacheBuilder<u64, String, Weigher<u64, String>> {
///     Cache::builder(runtime).name("names").weigher(|_, name: &String| name.capacity())
/// }
/// let names = names(&Runtime::builder().unlimited().build()?).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Weigher<K, V> = Box<dyn Fn(&K, &V) -> ByteSize + Send + Sync>;

/// The state that the clones of a handle share; see the module.
pub(super) struct CacheInner<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    /// No callback uses the core after the registration has ended. `None` only inside `drop`.
    pub(super) registration: Option<Registration>,
    pub(super) core: Arc<Core<K, V, S>>,
    // After the core, so that it is dropped after it.
    pub(super) leftover: Leftover<K, V, S>,
    /// The cache's id in the housekeeper, among the caches that retire entries, and in the clock.
    pub(super) maintenance: MaintenanceId,
    /// The cache's own group, to which entries are charged unless an insert names another one.
    pub(super) group: Memcg,
    /// Whether the group was made for the cache's limits: then it ends with the cache.
    pub(super) owns_group: bool,
    /// The time to live of entries that are inserted without another one.
    pub(super) ttl: Ttl,
    /// The last of the registry's nodes; zero if there is only one, and then no insert asks for the
    /// current node.
    pub(super) last_node: NodeId,
    pub(super) weigher: Weigher<K, V>,
    pub(super) runtime: Runtime,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> CacheInner<K, V, S> {
    pub(super) fn registration(&self) -> &Registration {
        self.registration.as_ref().expect("taken only by drop")
    }
}

/// The core of a cache that has ended with many entries in it; none before. Its drop hands the core
/// to the housekeeper.
pub(super) struct Leftover<K: Send + Sync + 'static, V: Send + Sync + 'static, S>(Option<Arc<Core<K, V, S>>>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Leftover<K, V, S> {
    pub(super) fn none() -> Self {
        Self(None)
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Leftover<K, V, S> {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            ((core.typed)().hand_over)(core);
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> CacheInner<K, V, S> {
    /// Leaves the entries to the housekeeper, if there are many, and uncharges them; returns the
    /// functions that the cache has captured. Does nothing if another thread may still use the
    /// core, or if the entries are not all charged to the cache's own group: then the thread with
    /// the last handle uncharges and drops them one by one.
    fn leave_entries(&mut self) -> Option<Box<ValueFunctions<K, V>>> {
        let core = Arc::get_mut(&mut self.core)?;
        let is_simple = !*core.has_tenants.get_mut() && core.held_values.is_none() && self.group.is_online();
        if core.counters.len() <= REMOVED_AT_ONCE || !is_simple {
            return None;
        }
        let bytes = core.counters.exact_bytes();
        self.group.uncharge(bytes);
        core.index.slab().count_all(bytes);
        core.is_left = true;
        let functions = core.functions.take();
        self.leftover.0 = Some(Arc::clone(&self.core));
        functions
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for CacheInner<K, V, S> {
    fn drop(&mut self) {
        // Each call waits until no other thread works on the core, unless this thread is inside a
        // callback: then the last thread that works on the core drops it.
        self.runtime.housekeeper().remove(self.maintenance);
        let has_listener = self.core.functions.as_ref().is_some_and(|functions| functions.listener.is_some());
        if has_listener && !CallbackScope::is_inside() {
            // A listener that must see all entries has the cache cleared before. A callback may
            // hold a lock that the listener takes.
            ((self.core.typed)().finish_clear)(&self.core);
        }
        drop(self.registration.take());
        self.runtime.retired().remove(self.maintenance);
        if let Some(clock) = self.runtime.clock() {
            clock.remove(self.maintenance);
        }
        // Dropped last, as it is the user's code.
        let _functions = self.leave_entries();
        if self.owns_group {
            // Another thread may drop the core later, with the entries in it: they are charged to
            // the parent until then.
            self.runtime.end_own_group(&self.group);
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> std::fmt::Debug for CacheInner<K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("name", &self.registration().name())
            .field("group", &self.group)
            .field("len", &self.core.len())
            .finish_non_exhaustive()
    }
}
