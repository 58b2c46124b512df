//! The drop of a cache's last handle waits for other threads that run the cache's code in a sweep
//! over retired entries, or in an advance of a manual clock; inside such code it does not wait.
//!
//! In a process of its own: readers of other tests would hold back the retired entries.
//!
//! A change must ensure that a test that fails ends: user code waits for a bounded time.
#![forbid(unsafe_code)]

use lowwater::runtime::ManualClock;
use lowwater::{ByteSize, Cache, Runtime};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

#[path = "common/wait.rs"]
mod wait;
use wait::PATIENCE;

/// How long user code runs on while the drop of the cache waits for it.
const RUNS_ON: Duration = Duration::from_millis(100);

/// Calls a function when it is dropped.
struct OnDrop(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl OnDrop {
    fn new(f: impl FnOnce() + Send + 'static) -> Self {
        Self(Mutex::new(Some(Box::new(f))))
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        let f = self.0.get_mut().unwrap().take();
        f.unwrap()();
    }
}

type Values = Cache<u64, Arc<OnDrop>>;

fn runtime() -> Runtime {
    Runtime::builder().budget(ByteSize::mib(1)).build().unwrap()
}

/// Returns a cache whose listener has captured `captured`, with a retired entry that has `value`.
fn with_retired(runtime: &Runtime, captured: impl Send + Sync + 'static, value: OnDrop) -> Values {
    let listener = move |_: &u64, _: &Arc<OnDrop>, _| {
        let _captured = &captured;
    };
    let cache = Values::builder(runtime).weigher(|_, _| ByteSize::ZERO).eviction_listener(listener).build().unwrap();
    cache.insert(1, Arc::new(value)).unwrap();
    drop(cache.remove(&1));
    cache
}

/// Makes charges that do not fit, so that they sweep, until `is_done` returns true.
fn sweep_until(runtime: &Runtime, is_done: impl Fn() -> bool) {
    let group = runtime.group("charged").unwrap();
    let _most = runtime.charge_guard(&group, ByteSize::kib(600)).unwrap();
    wait::until("a sweep drops the value", || {
        assert!(runtime.charge_guard(&group, ByteSize::kib(900)).is_err());
        is_done()
    });
}

/// Drops a cache while `run` executes the cache's code on another thread. `cache` is called with
/// what the cache's listener must capture, and with the code.
fn drop_during(cache: impl FnOnce(Arc<()>, OnDrop) -> Values, run: impl FnOnce(&AtomicBool) + Send) {
    let (captured, is_over) = (Arc::new(()), Arc::new(AtomicBool::new(false)));
    let ((begin, has_begun), (done, is_done)) = (channel(), channel::<()>());
    let over = Arc::clone(&is_over);
    let code = OnDrop::new(move || {
        begin.send(()).unwrap();
        let _ = is_done.recv_timeout(RUNS_ON);
        over.store(true, SeqCst);
    });
    let cache = cache(Arc::clone(&captured), code);
    thread::scope(|s| {
        s.spawn(|| run(&is_over));
        has_begun.recv_timeout(PATIENCE).unwrap();
        drop(cache);
        assert!(is_over.load(SeqCst), "the drop returned while the cache's code ran");
        assert_eq!(Arc::strong_count(&captured), 1, "the listener is dropped");
        drop(done);
    });
}

#[test]
fn the_drop_waits_for_a_listener_in_an_advance() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder().unlimited().clock(&clock).build().unwrap();
    let cache = |captured, code| {
        let code = Mutex::new(Some(code));
        let cache = Values::builder(&runtime)
            .weigher(|_, _| ByteSize::ZERO)
            .time_to_live(Duration::from_secs(60))
            .eviction_listener(move |_, _, _| {
                let (_captured, code) = (&captured, code.lock().unwrap().take());
                drop(code);
            })
            .build()
            .unwrap();
        cache.insert(1, Arc::new(OnDrop::new(|| ()))).unwrap();
        cache
    };
    drop_during(cache, |_| clock.advance(Duration::from_secs(61)));
}

#[test]
fn the_drop_waits_for_the_drop_of_a_value_in_a_sweep() {
    let runtime = runtime();
    let cache = |captured, code| with_retired(&runtime, captured, code);
    drop_during(cache, |is_over| sweep_until(&runtime, || is_over.load(SeqCst)));
}

/// Runs `sweep` on a thread for each runtime; a deadlock fails the test.
fn in_threads<const N: usize>(runtimes: [Runtime; N], sweep: impl Fn(usize, &Runtime) + Send + Sync + 'static) {
    let (sweep, (done, is_done)) = (Arc::new(sweep), channel());
    for (nr, runtime) in runtimes.into_iter().enumerate() {
        let (sweep, done) = (Arc::clone(&sweep), done.clone());
        thread::spawn(move || {
            sweep(nr, &runtime);
            done.send(()).unwrap();
        });
    }
    (0..N).for_each(|_| is_done.recv_timeout(PATIENCE).expect("the sweeps end, without a panic"));
}

/// The sweeping thread drops the cache after the visit; a panic there is not the charge's.
#[test]
#[cfg_attr(panic = "abort", ignore = "it catches a panic")]
fn a_value_in_a_sweep_may_drop_the_last_handle_on_its_cache() {
    let (runtime, slot, is_dropped) = (runtime(), Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
    let (last, dropped) = (Arc::clone(&slot), Arc::clone(&is_dropped));
    let captured = OnDrop::new(move || {
        dropped.store(true, SeqCst);
        panic!("the drop of what the listener has captured");
    });
    let value = OnDrop::new(move || {
        let last: Option<Values> = last.lock().unwrap().take();
        drop(last);
    });
    *slot.lock().unwrap() = Some(with_retired(&runtime, captured, value));
    in_threads([runtime], move |_, runtime| sweep_until(runtime, || is_dropped.load(SeqCst)));
}

#[test]
fn two_sweeps_may_drop_the_last_handles_on_each_others_caches() {
    let (runtimes, barrier) = ([runtime(), runtime()], Arc::new(Barrier::new(2)));
    let slots: [_; 2] = std::array::from_fn(|_| Arc::new(Mutex::new(None)));
    for (nr, runtime) in runtimes.iter().enumerate() {
        let (other, barrier) = (Arc::clone(&slots[1 - nr]), Arc::clone(&barrier));
        let value = OnDrop::new(move || {
            barrier.wait();
            let last: Option<Values> = other.lock().unwrap().take();
            drop(last);
        });
        *slots[nr].lock().unwrap() = Some(with_retired(runtime, (), value));
    }
    in_threads(runtimes, move |nr, runtime| sweep_until(runtime, || slots[1 - nr].lock().unwrap().is_none()));
}
