//! The shrinkers of one runtime: who is registered, and everything that asks them.
//!
//! # Who keeps whom alive
//!
//! ```text
//!     Registry --> Inner <-- Registration (its id)          lists --> Seat --> Map
//!                    |  \--> slots --> Entry --> the shrinker           ^        |
//!                    |                   \------------------------------/        +--> groups that hold something
//!                    +--> Map <-- the tree's offline hook, which goes with the registry
//! ```
//!
//! The registry has no thread and no clock of its own; a [`Reclaimer`](crate::Reclaimer) or the caller brings them.

mod builder;
mod caller;
mod config;
mod entry;
mod gate;
mod options;
mod registration;
mod scope;
mod seat;
mod select;

#[cfg(all(test, lowwater_loom))]
mod loom;
#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests;

pub use builder::{Prepared, ShrinkerBuilder};
pub use config::RegistryConfig;
pub(crate) use entry::{Entry, Held, Panicked};
pub use registration::Registration;
pub use scope::NoReclaim;
pub(crate) use select::Only;
pub use select::{Caches, Select};

use alloc::{sync::Arc, vec::Vec};
use core::alloc::Layout;

use lowwater_lru_core::fallible::{try_box, try_shrink, TryArc};
use lowwater_lru_core::list_lru::{self, Swept};
use lowwater_lru_core::sync::atomic::{AtomicU64, Ordering};
use lowwater_lru_core::sync::{Mutex, RwLock};
use lowwater_lru_core::{Bytes, HookId, Memcg, MemcgTree, NodeId, OfflineHook};

use crate::budget::Kick;
use crate::control::{Reclaim, ShrinkControl};
use crate::direct::DirectOutcome;
use crate::error::AllocError;
use crate::every::Every;
use crate::id::{IdPool, ShrinkerId};
use crate::map::{Ends, Key, Map, Mark, Recheck};
use crate::shrinker::Count;
use crate::stats::{RegistryStats, ShrinkerStats, Visited};
use crate::work::{Progress, Work};
use options::Options;
use scope::Scopes;

/// The shrinkers of one runtime, and the calls that make them give memory back. A handle: clones are the same registry.
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
/// // Two calls: one to count, one to make sure after its bit was cleared; none for the second drop.
/// assert_eq!(registration.stats().callbacks, 2);
/// # Ok::<(), lowwater_shrinker::AllocError>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    pub(crate) inner: TryArc<Inner>,
}

/// What all handles share.
pub(crate) struct Inner {
    pub(crate) map: TryArc<Map>,
    pub(crate) root: Memcg,
    /// At the tree; goes with this.
    hook: HookId,
    pub(crate) config: RegistryConfig,
    pub(crate) scopes: Scopes,
    debt_listener: RwLock<Option<Arc<dyn DebtListener>>>,
    /// Calls of those who need memory themselves. Who pays debts in the background sees from it whether to keep out of the way.
    foreground_calls: AtomicU64,
    ids: Mutex<IdPool>,
    /// By id. A reader enters the entry's gate before it lets go of the lock, so that who has closed the gate and then had the
    /// write lock knows that no lookup has a handle.
    slots: RwLock<Vec<Option<TryArc<Entry>>>>,
}

impl Registry {
    /// A registry for the groups of `tree` and for `nodes` NUMA nodes, with the defaults of [`RegistryConfig`].
    ///
    /// # Panics
    ///
    /// If `nodes` is 0 or more than a [`NodeId`] can tell apart.
    pub fn new(tree: &MemcgTree, nodes: usize) -> Self {
        Self::with_config(tree, RegistryConfig::new(nodes))
    }

    /// A registry for the groups of `tree`, as `config` has it.
    pub fn with_config(tree: &MemcgTree, config: RegistryConfig) -> Self {
        Self::try_with_config(tree, config).unwrap_or_else(|_| alloc::alloc::handle_alloc_error(Layout::new::<Inner>()))
    }

    /// As [`with_config`](Self::with_config), for who can do without.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`].
    pub fn try_with_config(tree: &MemcgTree, config: RegistryConfig) -> Result<Self, AllocError> {
        Self::try_make(tree, config).ok_or(AllocError::NoMemory)
    }

    fn try_make(tree: &MemcgTree, config: RegistryConfig) -> Option<Self> {
        // What a topology says that lies: no less than there can be, and no more than ids can tell apart.
        let nodes = config.topology.nodes().clamp(1, usize::from(u16::MAX) + 1);
        let map = TryArc::try_new(Map::try_new(nodes)?)?;
        let scopes = Scopes::try_new()?;
        map.belong_to(tree.root());
        let hook = tree.try_add_boxed_hook(try_box(Hook(map.clone()))?).ok()?;
        // From here on its drop takes the hook off the tree.
        let inner = Inner {
            map,
            root: tree.root().clone(),
            hook,
            config,
            scopes,
            debt_listener: RwLock::new(None),
            foreground_calls: AtomicU64::new(0),
            ids: Mutex::new(IdPool::default()),
            slots: RwLock::new(Vec::new()),
        };
        Some(Self { inner: TryArc::try_new(inner)? })
    }

    /// Begins a shrinker. The name is for people; two may have the same.
    pub fn builder(&self, name: &str) -> ShrinkerBuilder<'_> {
        ShrinkerBuilder::new(&self.inner, name)
    }

    /// Number of NUMA nodes.
    pub fn nodes(&self) -> usize {
        self.inner.map.nodes()
    }

    /// The root of the tree this registry reclaims from.
    pub fn root(&self) -> &Memcg {
        &self.inner.root
    }

    /// One pass: asks each shrinker that may hold something for `root` or a group below it on `node`, and has it scan its part
    /// at `priority` (12, light, to 0, everything). Groups below their `min` are left alone, those below their `low` too,
    /// unless priority is 0 and nothing could be freed elsewhere. A pass that `work` cuts short is taken up there by the next.
    ///
    /// O(pairs that may hold something), whatever the number of groups and shrinkers. Does nothing when `root` is offline
    /// (S19) or a group of another tree, when there is no such node, or the thread is inside a
    /// callback or a [`no_reclaim_scope`](Self::no_reclaim_scope).
    #[doc(alias = "shrink_slab")]
    pub fn shrink(&self, root: &Memcg, node: NodeId, priority: u8, flags: Reclaim, work: &mut Work<'_>) -> Progress {
        self.shrink_selected(&Select::all().memcg(root).node(node), priority, flags, work)
    }

    /// Frees all that can be freed, in every group and on every node, protected or not. Says how many objects.
    ///
    /// Goes round again as long as it pays, or as groups end meanwhile and their objects move; a
    /// bounded number of times, so it ends beside a thread that fills the caches, or makes and ends
    /// groups, as fast (S22).
    #[doc(alias = "drop_slab")]
    pub fn drop_caches(&self) -> u64 {
        self.drop_selected(&Select::all())
    }

    /// Gives back what nobody uses: lists that were empty at the last sweep too, and the bits of those that became empty without
    /// a pass. A [`Reclaimer`](crate::Reclaimer) does it by itself when it has nothing else to do.
    ///
    /// O(groups + their lists), and when lists were given back a call of `count_objects` for each live pair. Does nothing inside
    /// a callback or a [`no_reclaim_scope`](Self::no_reclaim_scope).
    pub fn sweep(&self) -> Swept {
        let Some(_scope) = self.inner.scopes.enter_first() else { return Swept::default() };
        let swept = list_lru::sweep(&self.inner.root);
        if swept.given_back > 0 {
            for node in 0..self.nodes() {
                crate::pass::look(&self.inner, NodeId::new(node as u16));
            }
        }
        swept
    }

    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(crate) fn foreground_calls(&self) -> u64 {
        // Relaxed: whether it has changed since a while ago is all that is asked.
        self.inner.foreground_calls.load(Ordering::Relaxed)
    }

    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(crate) fn sweep_every(&self) -> core::time::Duration {
        self.inner.config.sweep_every
    }

    /// Reclaims a little on the thread that needs the memory: from `memcg`'s subtree, this node first, round-robin, until
    /// `done` says so or a bound of [`RegistryConfig`] is reached. Costs no more when others have left debts (S23).
    ///
    /// The thread must hold none of its caches' locks, or say so with `flags` or a [`no_reclaim_scope`](Self::no_reclaim_scope).
    #[doc(alias = "try_to_free_mem_cgroup_pages")]
    pub fn direct_reclaim(&self, memcg: &Memcg, flags: Reclaim, done: &dyn Fn() -> bool) -> DirectOutcome {
        crate::direct::reclaim(&self.inner, memcg, flags, done)
    }

    /// From here until the guard is dropped, this thread does not reclaim through this registry: for code that holds locks
    /// which a shrinker's callback takes.
    pub fn no_reclaim_scope(&self) -> NoReclaim<'_> {
        self.inner.scopes.enter()
    }

    /// As [`no_reclaim_scope`](Self::no_reclaim_scope), unless the thread is inside a callback or a scope already: then it is to let
    /// nothing go by itself either. For a cache that lets go of its own without being asked, and runs somebody's code for it. None,
    /// too, without memory.
    pub fn first_no_reclaim_scope(&self) -> Option<NoReclaim<'_>> {
        self.inner.scopes.enter_first()
    }

    /// Pays what was left undone for `memcg` itself on `node`, and nothing else, as far as `work` goes: for the background, once
    /// it was told of a debt. Says what was done, and how many objects are still owed. Nothing is taken from a group that is
    /// below its `low`.
    pub fn pay_debts(&self, memcg: &Memcg, node: NodeId, work: &mut Work<'_>) -> (Progress, u64) {
        let Some(_scope) = self.inner.scopes.enter_first() else { return (Progress::default(), 0) };
        crate::pass::pay(&self.inner, memcg, node, work)
    }

    /// Whom to tell of debts, instead of whom was told before. A [`Reclaimer`](crate::Reclaimer) sets itself; an embedder with
    /// threads of its own sets one that wakes them.
    pub fn set_debt_listener(&self, listener: Option<Arc<dyn DebtListener>>) {
        let old = core::mem::replace(&mut *self.inner.debt_listener.write(), listener);
        // Without the lock: it is somebody's code.
        drop(old);
    }

    /// The plain twin of [`shrink`](Self::shrink) and [`drop_caches`](Self::drop_caches): asks everyone.
    pub fn every(&self) -> Every<'_> {
        Every::new(&self.inner)
    }

    /// The shrinkers and the map, as they are now; nobody is asked anything. O(shrinkers + live pairs).
    pub fn snapshot(&self) -> RegistryStats {
        let shrinkers = self.snapshot_of_shrinkers();
        let (live_pairs, live_groups) = self.inner.map.live();
        let now_ns = self.inner.config.clock.as_ref().map_or(0, |clock| clock.now_ns());
        let pairs = self.inner.map.pairs();
        RegistryStats { shrinkers, pairs, now_ns, live_pairs, live_groups, map_bytes: self.inner.map.footprint() }
    }

    /// What was held for `memcg` and all below it on `node`, as of the last visits. O(live pairs on the node), no callback.
    pub(crate) fn held(&self, memcg: &Memcg, node: NodeId) -> u64 {
        self.inner.map.held(memcg, node)
    }

    /// A round over the groups begins, or a step that is one.
    pub(crate) fn mark_ends(&self) -> Mark {
        self.inner.map.ends().mark()
    }

    /// See [`Recheck::believes`].
    pub(crate) fn believes(&self, recheck: &mut Recheck, mark: Mark) -> bool {
        recheck.believes(self.inner.map.ends(), mark)
    }

    pub(crate) fn snapshot_of_shrinkers(&self) -> Vec<ShrinkerStats> {
        self.inner.slots.read().iter().flatten().map(|entry| ShrinkerStats::of(entry)).collect()
    }

    /// A [`snapshot`](Self::snapshot) for which each live pair is asked what it holds now: a call of `count_objects`, and one of
    /// `weigh_objects`, for each. Inside a callback or a [`no_reclaim_scope`](Self::no_reclaim_scope) nobody is asked.
    pub fn survey(&self) -> RegistryStats {
        let mut stats = self.snapshot();
        let Some(_scope) = self.inner.scopes.enter_first() else { return stats };
        for pair in &mut stats.pairs {
            let Some(mut held) = self.inner.lookup(pair.shrinker.get()) else { continue };
            let sc = ShrinkControl::count(&pair.memcg, pair.node, Reclaim::FOREGROUND);
            (pair.count, pair.bytes) = match held.count(&sc).and_then(|count| Ok((count, held.weigh(&sc)?))) {
                Ok((Count::Empty, bytes)) => (Some(0), bytes),
                Ok((Count::Objects(n), bytes)) => (Some(n), bytes),
                Ok((Count::Unknown, bytes)) => (None, bytes),
                Err(Panicked) => {
                    self.inner.panicked(&mut held);
                    (None, None)
                }
            };
        }
        stats
    }

    /// Bytes allocated for the registry: its shrinkers' entries and names, and the map, which is O(live pairs) (S25), whatever
    /// the number of groups. Exact; without the shrinkers themselves, the handles that
    /// [`Prepared::occupancy`] gave out, what the configuration brought along, and what threads
    /// inside
    /// callbacks take.
    pub fn footprint(&self) -> Bytes {
        let inner = &self.inner;
        let slots = inner.slots.read();
        let entries: usize = slots.iter().flatten().map(|entry| entry.bytes()).sum();
        let slots = slots.capacity() * size_of::<Option<TryArc<Entry>>>();
        let bytes = TryArc::<Inner>::BYTES
            + size_of::<Hook>()
            + entries
            + slots
            + inner.ids.lock().bytes()
            + inner.scopes.bytes();
        // The map's own size is in its footprint; what counts its handles is not.
        let counted = TryArc::<Map>::BYTES - size_of::<Map>();
        inner.map.footprint().saturating_add(Bytes::new((bytes + counted) as u64))
    }

    /// Objects that `id` owes for `memcg` on `node`; 0 if nothing does.
    #[doc(alias = "nr_deferred")]
    pub fn owed(&self, memcg: &Memcg, node: NodeId, id: ShrinkerId) -> u64 {
        match self.inner.knows(memcg, node) {
            true => self.inner.map.owed(memcg, node, id.get()),
            false => 0,
        }
    }
}

/// Goes round while it pays: the n-th round must free at least 2^n objects to be followed by
/// another, unless a group ended in it.
pub(crate) fn drop_all(ends: &Ends, mut round: impl FnMut() -> u64) -> u64 {
    let mut total = 0_u64;
    let mut recheck = Recheck::default();
    for shift in 0..u64::BITS {
        let mark = ends.mark();
        let freed = round();
        total = total.saturating_add(freed);
        if freed >> shift <= 1 && recheck.believes(ends, mark) {
            break;
        }
    }
    total
}

impl core::fmt::Debug for Registry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let shrinkers = self.inner.slots.read().iter().flatten().count();
        f.debug_struct("Registry").field("nodes", &self.nodes()).field("shrinkers", &shrinkers).finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    /// The shrinker under `id`, held. None if it is not registered yet or any more, was set aside, or the thread is inside it:
    /// then its bit stays as it is, and is cleared by whoever ends the id.
    pub(crate) fn lookup(&self, id: u32) -> Option<Held> {
        let slots = self.slots.read();
        Entry::hold(slots.get(id as usize)?.as_ref()?)
    }

    /// Is this a group that can be reclaimed from, on a node that there is? Not a group of another
    /// tree, whose id means another here.
    pub(crate) fn knows(&self, root: &Memcg, node: NodeId) -> bool {
        root.is_online() && root.is_in_tree_of(&self.root) && node.index() < self.map.nodes()
    }

    /// A callback panicked: that is counted, and the shrinker set aside.
    pub(crate) fn panicked(&self, held: &mut Held) {
        held.visited(Visited { panics: 1, ..Visited::default() });
        self.set_aside(held);
    }

    /// The shrinker is not called again, and its bits are no longer kept.
    fn set_aside(&self, entry: &Entry) {
        entry.set_aside();
        self.map.close(entry.key);
    }

    /// A thread that needs memory reclaims.
    pub(crate) fn note_foreground(&self) {
        // Relaxed: see `foreground_calls`.
        self.foreground_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the listener, if there is one.
    pub(crate) fn tell_of_debt(&self, memcg: &Memcg, node: NodeId, kick: Kick) {
        let listener = self.debt_listener.read().clone();
        if let Some(listener) = listener {
            listener.owes(memcg, node, kick);
        }
    }

    /// How the shrinker under `id` is to be asked.
    pub(crate) fn options(&self, id: u32) -> Option<Options> {
        self.slots.read().get(id as usize)?.as_ref().map(|entry| entry.options)
    }

    /// Ids up to the highest that is registered.
    pub(crate) fn ids_end(&self) -> u32 {
        self.slots.read().len() as u32
    }

    /// Ends an id; it is given back clean (S17).
    fn close(&self, key: Key) {
        self.map.close(key);
        self.ids.lock().put(ShrinkerId::new(key.id));
    }

    /// False without memory.
    fn publish(&self, entry: &TryArc<Entry>) -> bool {
        let mut slots = self.slots.write();
        let at = entry.key.id as usize;
        let more = (at + 1).saturating_sub(slots.len());
        if slots.try_reserve(more).is_err() {
            return false;
        }
        if more > 0 {
            slots.resize_with(at + 1, || None);
        }
        slots.get_mut(at).map(|slot| *slot = Some(entry.clone())).is_some()
    }

    fn withdraw(&self, entry: &Entry) {
        let mut slots = self.slots.write();
        let gone = slots.get_mut(entry.key.id as usize).and_then(Option::take);
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
        drop(gone);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.root.remove_hook(self.hook);
        // Lists may still hold the map; they shall not hold groups through it.
        self.map.shut();
    }
}

/// Told of debts which the foreground leaves, if the policy wants it ([`Policy::kick`](crate::budget::Policy::kick)).
pub trait DebtListener: Send + Sync {
    /// Objects of `memcg` on `node` are owed; see [`Registry::pay_debts`]. Called by whoever reclaims, so it must not wait.
    ///
    /// No lock is held: it may use the registry and set another listener, but nothing is reclaimed for it. A panic reaches the
    /// caller of reclaim.
    #[doc(alias = "wakeup_kswapd")]
    fn owes(&self, memcg: &Memcg, node: NodeId, kick: Kick);
}

/// What the tree calls when a group dies, as long as the registry lives.
struct Hook(TryArc<Map>);

impl OfflineHook for Hook {
    fn offline(&self, dying: &Memcg, parent: &Memcg) {
        self.0.offline(dying, parent);
    }
}
