//! The behavior of callbacks.
//!
//! A step arms an action (panic, run a further step) for the n-th call of one kind of callback.
//! Every callback of the test's types calls [`enter`], which executes the armed action. So the
//! library is re-entered at every place where it calls user code.
//!
//! A callback that is added must call `enter`, too, and stand in `ALL` at the place of its number.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::step::Step;
use crate::token::fail;
use crate::{run, world};

/// The kinds of user code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callback {
    Weigher,
    Cost,
    Loader,
    Listener,
    ValueDrop,
    ValueClone,
    KeyDrop,
    KeyClone,
    KeyHash,
    KeyEq,
    Retain,
    Visit,
    Save,
    Compute,
    WalkLocked,
    WalkUnlocked,
    ItemDrop,
    CaptureDrop,
    ThreadLocal,
    Offline,
    Debt,
    Count,
    Scan,
    Occupied,
    Done,
    ObjectDrop,
    LinkDrop,
    SharedDrop,
}

use Callback::*;

/// All kinds, in the order of their numbers: `token::alive_since` uses these as indexes.
pub const ALL: [Callback; 28] = [
    Weigher,
    Cost,
    Loader,
    Listener,
    ValueDrop,
    ValueClone,
    KeyDrop,
    KeyClone,
    KeyHash,
    KeyEq,
    Retain,
    Visit,
    Save,
    Compute,
    WalkLocked,
    WalkUnlocked,
    ItemDrop,
    CaptureDrop,
    ThreadLocal,
    Offline,
    Debt,
    Count,
    Scan,
    Occupied,
    Done,
    ObjectDrop,
    LinkDrop,
    SharedDrop,
];

/// The action of an armed callback.
#[derive(Clone, Debug)]
pub enum Action {
    Panic,
    Do(Box<Step>),
    /// Now and in later calls, as often as `World::disarm` permits.
    Always(Box<Step>),
}

/// An action that waits for its callback.
#[derive(Debug)]
pub struct Armed {
    pub callback: Callback,
    /// Calls of the callback before the one that executes the action.
    pub after: u8,
    pub action: Action,
}

/// The payload of panics on purpose.
pub struct IntendedPanic;

/// The depth of nested callbacks at which armed steps are skipped.
const DEPTH_MAX: u32 = 3;
/// The same for [`Callback::SharedDrop`], and a failure: the library must bound how deep the drops
/// of evicted values nest.
const DEPTH_MOST: u32 = 60;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static LOADING: Cell<bool> = const { Cell::new(false) };
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether an action is armed.
pub static IS_ARMED: AtomicBool = AtomicBool::new(false);

impl Callback {
    /// Whether it runs under a lock, where it may only panic.
    pub fn is_locked(self) -> bool {
        matches!(self, KeyHash | KeyEq | WalkLocked | Occupied)
    }

    /// Whether it is a `Drop`.
    pub fn is_drop(self) -> bool {
        matches!(self, KeyDrop | ValueDrop | SharedDrop | ItemDrop | ObjectDrop | LinkDrop | CaptureDrop)
    }
}

/// Whether this thread is inside of a callback.
pub fn is_inside() -> bool {
    DEPTH.try_with(Cell::get).unwrap_or(1) > 0
}

/// Whether this thread is inside of a loader.
pub fn is_loading() -> bool {
    LOADING.try_with(Cell::get).unwrap_or(true)
}

/// Runs a loader, and makes [`is_loading`] true meanwhile.
pub fn loading<R>(f: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            LOADING.set(self.0);
        }
    }
    let _reset = Reset(LOADING.replace(true));
    f()
}

/// Runs `f`, which drops values that the library has returned. Inside of a callback armed actions
/// are not executed meanwhile: the test drops these values, so the library cannot bound how deep
/// such actions nest.
pub fn in_own_code(f: impl FnOnce()) {
    if !is_inside() {
        return f();
    }
    let before = OWN.try_with(|own| own.replace(true));
    f();
    let _ = OWN.try_with(|own| own.set(before.unwrap_or(false)));
}

/// Executes the action that is armed for this call of the callback, if any.
pub fn enter(callback: Callback) {
    if !IS_ARMED.load(SeqCst) || OWN.try_with(Cell::get).unwrap_or(false) {
        return;
    }
    let Some(world) = world::current() else { return };
    let Some(action) = world.disarm(callback) else { return };
    match action {
        Action::Panic if std::thread::panicking() => {}
        Action::Panic => {
            if callback.is_drop() && callback != ItemDrop {
                // A function that returns while this `Drop` panics leaks its return value
                // (rust-lang/rust#47949).
                world.may_leak.store(true, SeqCst);
            }
            drop(world);
            resume_unwind(Box::new(IntendedPanic));
        }
        Action::Do(step) | Action::Always(step) => {
            let depth = DEPTH.try_with(Cell::get).unwrap_or(DEPTH_MAX);
            let most = if callback == SharedDrop { DEPTH_MOST } else { DEPTH_MAX };
            if depth >= DEPTH_MOST {
                fail(&format!("callbacks nest {depth} deep"));
            }
            if depth >= most || std::thread::panicking() {
                return;
            }
            struct Leave;
            impl Drop for Leave {
                fn drop(&mut self) {
                    let _ = DEPTH.try_with(|depth| depth.set(depth.get() - 1));
                }
            }
            DEPTH.set(depth + 1);
            let _leave = Leave;
            let _running = world.bounds.run();
            run::run(&world, &step);
        }
    }
}
