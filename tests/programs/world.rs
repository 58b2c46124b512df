//! The objects of a program. Slots are locked for access, and never while the library runs.
//!
//! A step takes an object out of its slot, or clones it, and releases the slot's lock before it
//! calls the library: callbacks use the slots as well.
//!
//! A change must ensure that no slot is locked while the library runs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, RwLock};

use lowwater::{ByteSize, Isolated, Memcg, MemcgTree, NodeId, Registration, Runtime};
use lowwater_lru_core::HookId;

use crate::cache::{AnyCache, Saved};
use crate::callback::{Action, Armed, Callback, IS_ARMED};
use crate::feature::Features;
use crate::item::{Lists, Shared};
use crate::model::Model;
use crate::object::{Store, Tables};
use crate::program::RuntimeChoices;
use crate::step::{CACHES, GROUPS, ITEMS, LISTS};
use crate::token::Token;

/// A slot for an object.
pub type Place<T> = Mutex<Option<T>>;

pub struct World {
    pub on: Features,
    pub runtime: Place<Runtime>,
    /// Another tree, with groups that are foreign to the runtime.
    pub other: Place<MemcgTree>,
    /// The root of the first runtime, which outlives it.
    pub root: Memcg,
    pub caches: Vec<Place<Box<dyn AnyCache>>>,
    pub groups: Vec<Place<Memcg>>,
    pub lists: Vec<Place<Arc<Lists>>>,
    pub registrations: Vec<Place<Registration>>,
    pub items: Vec<Place<Arc<Shared>>>,
    pub isolated: Mutex<Isolated<Shared>>,
    pub saved: Mutex<Vec<Saved>>,
    pub charges: Mutex<Vec<(Memcg, ByteSize)>>,
    pub hook: Place<HookId>,
    pub store: Arc<Store>,
    pub tables: Tables,
    /// Objects found under leaked guards.
    pub for_ever: Mutex<Vec<&'static Token>>,
    pub armed: Mutex<Vec<Armed>>,
    pub model: Mutex<Model>,
    /// Whether one thread runs all steps, so that the model is exact.
    is_alone: AtomicBool,
    /// Whether a guard was leaked: the objects that it holds back are never dropped.
    pub has_leaked: AtomicBool,
    /// Whether a `Drop` panicked.
    pub may_leak: AtomicBool,
    next_cache: AtomicU32,
    always: AtomicU32,
}

/// The most executions of actions that are always executed.
const ALWAYS_MAX: u32 = 3000;

static CURRENT: RwLock<Option<Arc<World>>> = RwLock::new(None);

/// The world of the running program.
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

/// Replaces the object of a slot. The caller drops the old one without holding its lock.
pub fn swap<T>(place: &Place<T>, new: Option<T>) -> Option<T> {
    std::mem::replace(&mut *place.lock().unwrap(), new)
}

pub fn at<T>(places: &[Place<T>], at: u8) -> &Place<T> {
    &places[usize::from(at) % places.len()]
}

impl World {
    /// Creates the world of a program: its runtime, a second tree, and empty slots.
    pub fn new(on: Features, shape: &RuntimeChoices, is_alone: bool) -> Self {
        let topology = Arc::new(lowwater::topology::Fixed::new(shape.nodes.into()));
        let budget = ByteSize::kib(shape.budget_kib.into());
        let runtime = Runtime::builder().budget(budget).topology(topology).build().expect("it has a budget");
        let mut model = Model::default();
        model.is_lossy = shape.budget_kib < 1 << 20;
        Self {
            on,
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
            hook: Mutex::default(),
            store: Arc::new(Store::new()),
            tables: Tables::new(),
            for_ever: Mutex::default(),
            armed: Mutex::default(),
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

    /// The group of this slot, or the root.
    pub fn group(&self, group: u8) -> Memcg {
        at(&self.groups, group).lock().unwrap().clone().unwrap_or_else(|| self.root.clone())
    }

    /// A group for lists: of this tree, unless two trees may share a list.
    pub fn group_of_lists(&self, group: u8) -> Memcg {
        let group = self.group(group);
        if group.is_in_tree_of(&self.root) || self.on.has(crate::feature::Feature::TwoTrees) {
            return group;
        }
        self.root.clone()
    }

    /// The groups in all slots.
    pub fn places_of_groups(&self) -> Vec<Memcg> {
        self.groups.iter().filter_map(|place| place.lock().unwrap().clone()).collect()
    }

    /// The value of the field.
    pub fn is_alone(&self) -> bool {
        self.is_alone.load(SeqCst)
    }

    /// While the result is held, several threads run steps.
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

    /// Takes the action to be executed in this callback now.
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

    /// From now on entries may be evicted at any time.
    pub fn is_lossy(&self) {
        self.model.lock().unwrap().is_lossy = true;
    }
}
