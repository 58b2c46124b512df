//! The core of a registry: the registered shrinkers, and the entry into their callbacks.
//!
//! # Handles
//!
//! ```text
//!     Registry --> RegistryCore <-- IdClaim <-- Registration       lists --> ShrinkerState --> Map
//!                    |  \--> slots --> RegisteredShrinker --> the shrinker        ^             |
//!                    |                   \---------------------------------------/             +--> groups with live pairs
//!                    +--> Map <-- the tree's offline hook, which is dropped with the core
//! ```
//!
//! Lists keep the shrinker's state and the map alive, but not the core, so a list that outlives its
//! registry does no harm.
//!
//! Numbers such as S17 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that `lookup` enters a shrinker before it releases the lock of the slots:
//! otherwise the shrinker could end in between.

use alloc::{sync::Arc, vec::Vec};

use lowwater_base::fallible::{try_box, try_shrink, TryArc};
use lowwater_base::mutated;
use lowwater_base::sync::atomic::{AtomicU64, Ordering};
use lowwater_base::sync::{Mutex, RwLock};
use lowwater_lru_core::{HookId, Memcg, MemcgTree, NodeId, OfflineHook};

use super::config::RegistryConfig;
use super::debt_listener::DebtListener;
use super::options::ShrinkerOptions;
use super::registered::{RegisteredShrinker, ShrinkerGuard};
use super::scope::Scopes;
use super::shrinker_state::{OccupancyHandle, ShrinkerState};
use crate::budget::Kick;
use crate::error::ShrinkerAllocError;
use crate::map::{Key, Map};
use crate::stats::{ShrinkerStats, VisitCounts};
use lowwater_base::id_pool::{IdPool, NoId};

/// A registered shrinker of a [`RegistryCore`].
pub(crate) type Registered = RegisteredShrinker<IdClaim>;
/// The right to call a [`Registered`].
pub(crate) type CallGuard = ShrinkerGuard<IdClaim>;
/// The state that a [`Registered`] shares with its lists.
pub(crate) type RegisteredState = ShrinkerState<IdClaim>;
/// The handle of its lists.
pub(crate) type RegisteredOccupancy = OccupancyHandle<IdClaim>;

/// The part of a registry that all its handles share.
pub(crate) struct RegistryCore {
    pub(crate) map: TryArc<Map>,
    pub(crate) root: Memcg,
    /// The hook in the tree, removed by the core's drop.
    hook: HookId,
    pub(crate) config: RegistryConfig,
    pub(crate) scopes: Scopes,
    debt_listener: RwLock<Option<Arc<dyn DebtListener>>>,
    /// The number of foreground calls of reclaim so far: while it grows, the reclaimer scans
    /// deferred objects at a slower pace.
    foreground_calls: AtomicU64,
    /// The number of resyncs so far: a shrinker that is registered after one was not counted by it.
    resyncs: AtomicU64,
    ids: Mutex<IdPool>,
    /// The registered shrinkers, by id. A lookup enters the shrinker before it releases the lock.
    /// So after a thread has killed a shrinker and then taken the write lock, no other thread has a
    /// reference to the shrinker without being inside it.
    slots: RwLock<Vec<Option<TryArc<Registered>>>>,
    #[cfg(feature = "metrics")]
    pub(crate) published: Mutex<crate::series::PublishedSeries>,
}

/// A claimed id. Its drop clears the id's bits and debts, and frees the id (S17).
pub(crate) struct IdClaim {
    core: TryArc<RegistryCore>,
    state: TryArc<RegisteredState>,
}

impl IdClaim {
    pub(crate) fn core(&self) -> &TryArc<RegistryCore> {
        &self.core
    }

    pub(crate) fn state(&self) -> &TryArc<RegisteredState> {
        &self.state
    }
}

impl Drop for IdClaim {
    fn drop(&mut self) {
        self.core.close(self.state.key);
    }
}

impl RegistryCore {
    /// Creates a core for the groups of `tree`; `None` without memory.
    pub(crate) fn try_new(tree: &MemcgTree, config: RegistryConfig) -> Option<TryArc<Self>> {
        // A topology may return any number: clamped to at least one node, and at most as many as
        // ids can represent.
        let nodes = config.topology.nodes().clamp(1, usize::from(u16::MAX) + 1);
        let map = TryArc::try_new(Map::try_new(nodes, config.by_utility)?)?;
        let scopes = Scopes::try_new()?;
        map.belong_to(tree.root());
        let hook = tree.try_add_boxed_hook(try_box(CoreOfflineHook(map.clone()))?).ok()?;
        // From here on the drop of the core removes the hook from the tree.
        let core = Self {
            map,
            root: tree.root().clone(),
            hook,
            config,
            scopes,
            debt_listener: RwLock::new(None),
            foreground_calls: AtomicU64::new(0),
            resyncs: AtomicU64::new(0),
            ids: Mutex::new(IdPool::new(u32::MAX)),
            slots: RwLock::new(Vec::new()),
            #[cfg(feature = "metrics")]
            published: Mutex::new(crate::series::PublishedSeries::default()),
        };
        TryArc::try_new(core)
    }

    /// Returns the right to call the shrinker with this id. `None` if the shrinker is not
    /// registered yet or any more, or is quarantined; if the thread is inside it; or without memory
    /// to record the thread. The caller then leaves the shrinker's bit as it is.
    pub(crate) fn lookup(&self, id: u32) -> Option<CallGuard> {
        let slots = self.slots.read();
        Registered::try_get(slots.get(id as usize)?.as_ref()?)
    }

    /// As [`lookup`](Self::lookup), for objects of a group on a node that were found by the id.
    /// `None` also if the id has a new owner, which keeps no objects under this group or node.
    pub(crate) fn lookup_for(&self, id: u32, memcg: &Memcg, node: NodeId) -> Option<CallGuard> {
        self.lookup(id).filter(|guard| guard.options.keeps(memcg, node))
    }

    /// Returns true if a shrinker with this id is registered, may be called, and keeps objects
    /// under this group and node: then [`lookup_for`](Self::lookup_for) finds it once the thread is
    /// not inside it, and there is memory.
    pub(crate) fn can_be_found(&self, id: u32, memcg: &Memcg, node: NodeId) -> bool {
        let slots = self.slots.read();
        let slot = slots.get(id as usize).and_then(Option::as_ref);
        slot.is_some_and(|registered| !registered.is_closed() && registered.options.keeps(memcg, node))
    }

    /// Returns true if this is an online group of this registry's tree, on a node that exists. A
    /// group of another tree has an id that means another group here.
    pub(crate) fn knows(&self, root: &Memcg, node: NodeId) -> bool {
        root.is_online() && root.is_in_tree_of(&self.root) && node.index() < self.map.nodes()
    }

    /// Counts a callback that panicked, and quarantines the shrinker.
    pub(crate) fn panicked(&self, guard: &mut CallGuard) {
        guard.visited(VisitCounts { panics: 1, ..VisitCounts::default() });
        self.quarantine(guard);
    }

    /// Quarantines a shrinker: it is not called again, and its bits are cleared.
    fn quarantine(&self, registered: &Registered) {
        registered.quarantine();
        self.map.close(registered.key);
    }

    /// Counts a foreground call of reclaim.
    pub(crate) fn note_foreground(&self) {
        // Relaxed: a counter that is only compared with its earlier value.
        self.foreground_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a resync that has taken a dirty mark, before it looks shrinkers up.
    pub(crate) fn note_resync(&self) {
        if !mutated!("resync_uncounted") {
            // Release: pairs with the Acquire in `resyncs`.
            self.resyncs.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the number of resyncs so far. If it is the same before a shrinker's id is allocated
    /// and after the shrinker is published, no resync has taken a dirty mark in between without
    /// finding the shrinker: such a resync released the lock of the slots before `publish` took it,
    /// so its count is visible.
    pub(crate) fn resyncs(&self) -> u64 {
        // Acquire: pairs with the Release in `note_resync`. A counted resync has taken its mark, so
        // it does not take a mark that the caller sets from here on.
        self.resyncs.load(Ordering::Acquire)
    }

    /// Notifies the debt listener, if there is one: without the lock, as it is user code.
    pub(crate) fn notify_of_debt(&self, memcg: &Memcg, node: NodeId, kick: Kick) {
        let listener = self.debt_listener.read().clone();
        if let Some(listener) = listener {
            listener.notify_debt(memcg, node, kick);
        }
    }

    /// Returns the options of the shrinker with this id.
    pub(crate) fn options(&self, id: u32) -> Option<ShrinkerOptions> {
        self.slots.read().get(id as usize)?.as_ref().map(|registered| registered.options)
    }

    /// Returns an exclusive bound on the ids of registered shrinkers.
    pub(crate) fn ids_end(&self) -> u32 {
        self.slots.read().len() as u32
    }

    /// Clears the bits and debts of an id, and frees the id (S17).
    pub(crate) fn close(&self, key: Key) {
        self.map.close(key);
        let mut ids = self.ids.lock();
        ids.put(key.id);
        ids.shrink_if_empty();
    }

    /// Makes a shrinker visible to lookups. Returns false without memory.
    pub(crate) fn publish(&self, registered: &TryArc<Registered>) -> bool {
        let mut slots = self.slots.write();
        let at = registered.key.id as usize;
        let more = (at + 1).saturating_sub(slots.len());
        if slots.try_reserve(more).is_err() {
            return false;
        }
        if more > 0 {
            slots.resize_with(at + 1, || None);
        }
        slots.get_mut(at).map(|slot| *slot = Some(registered.clone())).is_some()
    }

    /// Removes a shrinker from lookups.
    pub(crate) fn withdraw(&self, registered: &Registered) {
        let mut slots = self.slots.write();
        let gone = slots.get_mut(registered.key.id as usize).and_then(Option::take);
        while slots.last().is_some_and(Option::is_none) {
            slots.pop();
        }
        if slots.is_empty() {
            *slots = Vec::new();
        } else if slots.len() < slots.capacity() / 4 {
            let twice = slots.len() * 2;
            try_shrink(&mut slots, twice);
        }
        drop(slots);
        // Without the lock: this may drop the shrinker, which is user code.
        drop(gone);
    }

    /// Allocates an id for a shrinker with these options: the id's bits can be set from here on.
    /// The error tells whether ids or memory ran out.
    pub(crate) fn alloc(this: &TryArc<Self>, options: ShrinkerOptions) -> Result<IdClaim, ShrinkerAllocError> {
        let id = this.ids.lock().take().map_err(|no_id| match no_id {
            NoId::AllUsed => ShrinkerAllocError::OutOfIds,
            NoId::NoMemory => ShrinkerAllocError::NoMemory,
        })?;
        let Some(key) = this.map.open(id) else {
            this.ids.lock().put(id);
            return Err(ShrinkerAllocError::NoMemory);
        };
        let Some(state) = TryArc::try_new(RegisteredState::new(this.map.clone(), key, options)) else {
            this.close(key);
            return Err(ShrinkerAllocError::NoMemory);
        };
        Ok(IdClaim { core: this.clone(), state })
    }

    /// Replaces the debt listener, and returns the previous one, to be dropped without a lock.
    pub(crate) fn replace_debt_listener(
        &self,
        listener: Option<Arc<dyn DebtListener>>,
    ) -> Option<Arc<dyn DebtListener>> {
        core::mem::replace(&mut *self.debt_listener.write(), listener)
    }

    /// Removes this debt listener and returns it, to be dropped without a lock; `None` if the
    /// registry has another one.
    #[cfg(feature = "std")]
    pub(crate) fn remove_debt_listener(&self, listener: &Arc<dyn DebtListener>) -> Option<Arc<dyn DebtListener>> {
        let mut present = self.debt_listener.write();
        let is_same = present.as_ref().is_some_and(|at| core::ptr::addr_eq(Arc::as_ptr(at), Arc::as_ptr(listener)));
        if is_same {
            present.take()
        } else {
            None
        }
    }

    /// Returns the number of calls of direct reclaim and of other foreground passes so far.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(crate) fn foreground_calls(&self) -> u64 {
        // Relaxed: the caller only checks whether it has changed.
        self.foreground_calls.load(Ordering::Relaxed)
    }

    /// Returns the statistics of every registered shrinker, by id.
    pub(crate) fn shrinker_stats(&self) -> Vec<ShrinkerStats> {
        self.slots.read().iter().flatten().map(|registered| registered.stats()).collect()
    }

    /// Returns the keys of the registered shrinkers, by id.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.slots.read().iter().flatten().map(|registered| registered.key).collect()
    }

    /// As [`shrinker_stats`](Self::shrinker_stats), with a number for each that no other shrinker
    /// of this registry ever has, in the order in which they were built.
    #[cfg(feature = "metrics")]
    pub(crate) fn owners_and_stats(&self) -> Vec<(u64, ShrinkerStats)> {
        self.slots.read().iter().flatten().map(|registered| (registered.key.owner(), registered.stats())).collect()
    }

    /// Returns true if a thread is inside a callback of a registered shrinker.
    pub(crate) fn has_calls_in_flight(&self) -> bool {
        self.slots.read().iter().flatten().any(|registered| !registered.in_flight.is_empty())
    }

    /// Returns the number of registered shrinkers.
    pub(crate) fn len(&self) -> usize {
        self.slots.read().iter().flatten().count()
    }

    /// Returns the bytes allocated for the core, the shrinkers' states and names, ids, and scopes;
    /// without the map.
    pub(crate) fn bytes(&self) -> usize {
        let slots = self.slots.read();
        let entries: usize = slots.iter().flatten().map(|registered| registered.bytes()).sum();
        let slots = slots.capacity() * size_of::<Option<TryArc<Registered>>>();
        TryArc::<Self>::BYTES
            + size_of::<CoreOfflineHook>()
            + entries
            + slots
            + self.ids.lock().allocated()
            + self.scopes.bytes()
    }
}

impl Drop for RegistryCore {
    fn drop(&mut self) {
        self.root.remove_hook(self.hook);
        // Lists may still hold the map, and must not hold groups through it.
        self.map.shut();
    }
}

/// The hook that the tree calls when a group dies, as long as the core lives.
struct CoreOfflineHook(TryArc<Map>);

impl OfflineHook for CoreOfflineHook {
    fn offline(&self, dying: &Memcg, parent: &Memcg) {
        self.0.offline(dying, parent);
    }
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::{Count, Scan, ShrinkControl, Shrinker};

    struct Empty;

    impl Shrinker for Empty {
        fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
            Count::Empty
        }

        fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
            Scan::Stop
        }
    }

    #[test]
    fn slots_shrink_with_the_highest_id_and_not_at_each_end() {
        let registry = Registry::new(&MemcgTree::new(0), 1);
        let slots = || registry.core.slots.read();
        let register = |_| registry.builder("empty").alloc().unwrap().register(Arc::new(Empty));
        let mut registrations: Vec<_> = (0..100).map(register).collect();
        let capacity = slots().capacity();
        registrations.truncate(capacity / 4);
        assert_eq!((slots().len(), slots().capacity()), (capacity / 4, capacity), "a quarter is in use");
        registrations.pop();
        let len = capacity / 4 - 1;
        assert_eq!((slots().len(), slots().capacity()), (len, 2 * len), "less is");
        // Dropping a registration that is not the last leaves a hole.
        drop(registrations.remove(0));
        assert_eq!((slots().len(), registry.core.len()), (len, len - 1));
        registrations.clear();
        assert_eq!((slots().len(), slots().capacity()), (0, 0));
    }
}
