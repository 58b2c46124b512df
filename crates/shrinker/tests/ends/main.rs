//! Registrations and reclaimers that end inside callbacks: nothing waits for itself, nothing is
//! called afterwards, and everything that a shrinker has captured is dropped once.
//!
//! A change must ensure that each test that could hang runs in `in_time`, which fails after a
//! deadline.

#![forbid(unsafe_code)]
#![cfg(all(feature = "std", not(lowwater_loom)))]

mod reclaimer;
mod registration;
mod user_code;

use lowwater_lru_core::{ByteSize, NodeId};
use lowwater_shrinker::{Count, Registration, Registry, Scan, Select, ShrinkControl, Shrinker, ShrinkerId, Watermarks};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than any machine takes, unless the event never happens.
const PATIENCE: Duration = Duration::from_secs(60);
/// No gaps below a limit: only `wake` starts the reclaimer.
const MARKS: Watermarks = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };
const N0: NodeId = NodeId::ZERO;

/// Runs `f` on a thread of its own, and fails if it takes longer than [`PATIENCE`].
fn in_time<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || drop(tell.send(f())));
    match told.recv_timeout(PATIENCE) {
        Ok(result) => {
            thread.join().unwrap();
            result
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("deadlock: not done within {PATIENCE:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "it did not happen that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

type Hook = Box<dyn FnOnce() + Send>;

/// A shrinker with one object, which it never frees; its first scan calls a hook.
#[derive(Default)]
struct Hooked {
    hook: Mutex<Option<Hook>>,
    calls: AtomicUsize,
    /// Dropped with the shrinker: its reference count shows whether the shrinker exists.
    probe: Mutex<Option<Arc<()>>>,
    #[expect(dead_code, reason = "it is there to be dropped")]
    on_drop: OnDrop,
}

/// Calls its hook when it is dropped.
#[derive(Default)]
struct OnDrop(Mutex<Option<Hook>>);

impl Hooked {
    fn new(hook: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self { hook: Mutex::new(Some(Box::new(hook))), ..Self::default() })
    }
}

impl Shrinker for Hooked {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        self.calls.fetch_add(1, SeqCst);
        Count::Objects(1)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        self.calls.fetch_add(1, SeqCst);
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        sc.set_nr_scanned(1);
        Scan::Freed(0)
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(hook) = self.0.get_mut().unwrap().take() {
            hook();
        }
    }
}

fn register(registry: &Registry, shrinker: Arc<Hooked>) -> Registration {
    let prepared = registry.builder("hooked").alloc().unwrap();
    prepared.occupancy().occupied(registry.root(), N0);
    prepared.register(shrinker)
}

/// Lets the calling thread count and scan the shrinker with this id.
fn scan(registry: &Registry, id: ShrinkerId) {
    let _freed = registry.drop_selected(&Select::all().shrinker(id));
}

/// A value that a callback may take out and drop.
type Slot<T> = Arc<Mutex<Option<T>>>;

fn slot<T>() -> Slot<T> {
    Arc::new(Mutex::new(None))
}

/// Takes the value out and drops it without the slot's lock.
fn empty<T>(slot: &Slot<T>) {
    let taken = slot.lock().unwrap().take();
    drop(taken);
}
