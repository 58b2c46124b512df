//! The objects of a program, in slots with a lock each.
//!
//! A step takes an object out of its slot, or clones it, and releases the slot's lock before it
//! uses the object: callbacks use the slots as well, and would wait for the lock for ever.
//!
//! A change must ensure that, while a slot is locked, only calls of the library are made that run
//! no callback: a clone of a handle, the creation of a tree, a push to or a pop from an `Isolated`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use lowwater::runtime::{ManualClock, TenantGroups};
use lowwater::{ByteSize, Charge, Charged, Isolated, Memcg, MemcgTree, NodeId, Registration, Runtime};
use lowwater_lru_core::HookId;
use lowwater_shrinker::{MissReporter, Watermarks};

use crate::bounds::Bounds;
use crate::cache::{AnyCache, Saved};
use crate::callback::{Action, Armed, Callback, IS_ARMED};
use crate::feature::Features;
use crate::item::{Lists, Shared};
use crate::model::Model;
use crate::object::{Store, Tables};
use crate::program::RuntimeChoices;
use crate::rcu::Rcu;
use crate::reload;
use crate::step::{CACHES, GROUPS, ITEMS, LISTS};
use crate::token::Token;

/// A slot for an object.
pub type Place<T> = Mutex<Option<T>>;

pub struct World {
    /// The features that this program may use.
    pub features: Features,
    pub runtime: Place<Runtime>,
    /// A second tree, with groups that are foreign to the runtime. The first step that needs it
    /// creates it.
    pub other: Place<MemcgTree>,
    /// The root of the runtime. This handle keeps the root after the runtime was dropped.
    pub root: Memcg,
    pub caches: Vec<Place<Box<dyn AnyCache>>>,
    pub groups: Vec<Place<Memcg>>,
    pub lists: Vec<Place<Arc<Lists>>>,
    pub registrations: Vec<Place<Registration>>,
    pub items: Vec<Place<Arc<Shared>>>,
    pub isolated: Mutex<Isolated<Shared>>,
    pub saved: Mutex<Vec<Saved>>,
    pub charges: Mutex<Vec<(Memcg, ByteSize)>>,
    /// Guards of charges, and values that have taken one.
    pub guards: Mutex<Vec<Charge>>,
    pub charged: Mutex<Vec<Charged<Token>>>,
    /// All bytes for which guards were ever requested.
    pub guarded: AtomicU64,
    /// The bytes of leaked guards, which stay charged for ever.
    pub leaked: AtomicU64,
    pub tenants: Place<Arc<TenantGroups>>,
    /// The entries that `Step::Many` has inserted.
    pub many: AtomicU32,
    pub rcu: Rcu,
    pub reporter: Place<Arc<MissReporter>>,
    pub hook: Place<HookId>,
    pub store: Arc<Store>,
    pub tables: Tables,
    /// The tokens of objects that were found under leaked guards: these objects must stay alive for
    /// ever, which is checked after each step.
    pub found_under_leaked: Mutex<Vec<&'static Token>>,
    pub armed: Mutex<Vec<Armed>>,
    pub bounds: Bounds,
    /// The clock of the runtime, if steps advance it.
    pub clock: Option<ManualClock>,
    /// Rights to reload entries.
    pub reloads: Mutex<Vec<reload::Kept>>,
    pub model: Mutex<Model>,
    /// Whether one thread runs all steps, so that the model is exact.
    is_alone: AtomicBool,
    /// Whether a guard was leaked: objects that are retired afterwards are never dropped.
    pub has_leaked: AtomicBool,
    /// Whether a `Drop` other than a list item's panicked: a value that was being returned
    /// meanwhile is leaked (rust-lang/rust#47949).
    pub may_leak: AtomicBool,
    /// The number of the next cache, by which the model knows it.
    next_cache: AtomicU32,
    /// The executions of [`Action::Always`] so far; see [`ALWAYS_MAX`].
    always: AtomicU32,
}

/// How often [`Action::Always`] is executed in one program, all such actions together. After that
/// each is executed once more, and removed.
const ALWAYS_MAX: u32 = 3000;

static CURRENT: RwLock<Option<Arc<World>>> = RwLock::new(None);

/// Returns the world of the running program, for callbacks.
pub fn current() -> Option<Arc<World>> {
    CURRENT.read().unwrap().clone()
}

pub fn set_current(world: Option<Arc<World>>) {
    let before = std::mem::replace(&mut *CURRENT.write().unwrap(), world);
    drop(before);
}

fn places<T>(count: u8) -> Vec<Place<T>> {
    (0..count).map(|_| Mutex::new(None)).collect()
}

/// Replaces the object of a slot, and returns the old one, which the caller drops: its drop may run
/// callbacks, and here the lock of the slot is no longer held.
pub fn swap<T>(place: &Place<T>, new: Option<T>) -> Option<T> {
    std::mem::replace(&mut *place.lock().unwrap(), new)
}

pub fn at<T>(places: &[Place<T>], at: u8) -> &Place<T> {
    &places[usize::from(at) % places.len()]
}

impl World {
    /// Creates the world of a program: its runtime and empty slots.
    pub fn new(features: Features, shape: &RuntimeChoices, is_alone: bool) -> Self {
        let topology = Arc::new(lowwater::topology::Fixed::new(shape.nodes.into()));
        let budget = ByteSize::kib(shape.budget_kib.into());
        let clock = shape.is_manual.then(ManualClock::new);
        let mut builder = Runtime::builder().topology(topology);
        builder = if shape.budget_kib == 0 { builder.unlimited() } else { builder.budget(budget) };
        if let Some((low, high)) = shape.watermarks {
            let part = |part: u8| budget / 256 * part.into();
            let (low_gap, high_gap) = (part(low), part(high));
            builder = builder.watermarks(Watermarks { low_gap, high_gap });
        }
        if let Some(us) = shape.direct_us {
            builder = builder.direct_time_max(Duration::from_micros(us.into()));
        }
        if let Some(clock) = &clock {
            builder = builder.clock(clock);
        }
        let runtime = builder.build().expect("the builder has a budget");
        let mut model = Model::default();
        // Below 1 GiB, the largest budget that `strategy.rs` draws, a program may fill the budget,
        // so entries may be evicted.
        model.is_lossy = (1..1 << 20).contains(&shape.budget_kib) || shape.watermarks.is_some();
        Self {
            features,
            root: runtime.root().clone(),
            runtime: Mutex::new(Some(runtime)),
            other: Mutex::new(None),
            caches: places(CACHES),
            groups: places(GROUPS),
            lists: places(LISTS),
            registrations: places(LISTS),
            items: places(ITEMS),
            isolated: Mutex::default(),
            saved: Mutex::default(),
            charges: Mutex::default(),
            guards: Mutex::default(),
            charged: Mutex::default(),
            guarded: AtomicU64::new(0),
            leaked: AtomicU64::new(0),
            tenants: Mutex::default(),
            many: AtomicU32::new(0),
            rcu: Rcu::default(),
            reporter: Mutex::default(),
            hook: Mutex::default(),
            store: Arc::new(Store::new()),
            tables: Tables::new(),
            found_under_leaked: Mutex::default(),
            armed: Mutex::default(),
            bounds: Bounds::default(),
            clock,
            reloads: Mutex::default(),
            model: Mutex::new(model),
            is_alone: AtomicBool::new(is_alone),
            has_leaked: AtomicBool::new(false),
            may_leak: AtomicBool::new(false),
            next_cache: AtomicU32::new(1),
            always: AtomicU32::new(0),
        }
    }

    pub fn runtime(&self) -> Option<Runtime> {
        self.runtime.lock().unwrap().clone()
    }

    pub fn cache(&self, cache: u8) -> Option<Box<dyn AnyCache>> {
        at(&self.caches, cache).lock().unwrap().as_ref().map(|cache| cache.clone_box())
    }

    pub fn next_cache(&self) -> u32 {
        self.next_cache.fetch_add(1, SeqCst)
    }

    /// Returns the group of a slot, or the root if the slot is empty.
    pub fn group(&self, group: u8) -> Memcg {
        at(&self.groups, group).lock().unwrap().clone().unwrap_or_else(|| self.root.clone())
    }

    /// Returns a group to which a list item may be added: the group of a slot. If it is foreign to
    /// the runtime and the program may not use [`Feature::TwoTrees`](crate::feature::Feature), the
    /// root.
    pub fn group_of_lists(&self, group: u8) -> Memcg {
        let group = self.group(group);
        if group.is_in_tree_of(&self.root) || self.features.has(crate::feature::Feature::TwoTrees) {
            return group;
        }
        self.root.clone()
    }

    /// Returns the groups of all slots that are not empty.
    pub fn all_groups(&self) -> Vec<Memcg> {
        self.groups.iter().filter_map(|place| place.lock().unwrap().clone()).collect()
    }

    /// Returns whether one thread runs all steps at present, so that the model is exact.
    pub fn is_alone(&self) -> bool {
        self.is_alone.load(SeqCst)
    }

    /// Makes [`is_alone`](Self::is_alone) false until the result is dropped: the caller starts
    /// threads that run steps.
    pub fn together(&self) -> impl Drop + '_ {
        struct Together<'a>(&'a AtomicBool, bool);
        impl Drop for Together<'_> {
            fn drop(&mut self) {
                self.0.store(self.1, SeqCst);
            }
        }
        Together(&self.is_alone, self.is_alone.swap(false, SeqCst))
    }

    pub fn list(&self, list: u8) -> Option<Arc<Lists>> {
        at(&self.lists, list).lock().unwrap().clone()
    }

    pub fn item(&self, item: u8) -> Option<Arc<Shared>> {
        at(&self.items, item).lock().unwrap().clone()
    }

    pub fn node(node: u8) -> NodeId {
        NodeId::new(node.into())
    }

    pub fn arm(&self, armed: Armed) {
        self.armed.lock().unwrap().push(armed);
        IS_ARMED.store(true, SeqCst);
    }

    /// Takes the action to be executed in this callback now; if calls must be skipped first, counts
    /// this one.
    pub fn disarm(&self, callback: Callback) -> Option<Action> {
        let mut armed = self.armed.lock().unwrap();
        let at = armed.iter().position(|armed| armed.callback == callback)?;
        if armed[at].after > 0 {
            armed[at].after -= 1;
            return None;
        }
        if let Action::Always(step) = &armed[at].action {
            let step = step.clone();
            if self.always.fetch_add(1, SeqCst) < ALWAYS_MAX {
                return Some(Action::Always(step));
            }
        }
        let action = armed.remove(at).action;
        IS_ARMED.store(!armed.is_empty(), SeqCst);
        Some(action)
    }

    /// Tells the model that from now on entries may be evicted at any time.
    pub fn set_lossy(&self) {
        self.model.lock().unwrap().is_lossy = true;
    }
}
