//! Values of an `RcuCell` that use a cache when they are dropped. The drop of any guard may drop
//! retired values, so a cache must not drop one under a lock that these values need.
//!
//! In a process of its own, so that no guard of another test drops the values before.
//!
//! A change must ensure that a test fails, and does not wait for ever, if a thread waits for
//! itself.
#![forbid(unsafe_code)]

#[path = "common/deadline.rs"]
mod deadline;
#[path = "common/reader.rs"]
mod reader;

use deadline::in_time;
use lowwater::runtime::ManualClock;
use lowwater::{ByteSize, Cache, Runtime};
use lowwater_rcu::{flush, pin, start_poll, RcuCell};
use reader::beside_a_reader;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Entries of so many segments of the index that a sweep retires full batches of them.
const MANY: u64 = 40_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// Calls its function when it is dropped.
struct OnDrop(Option<Box<dyn Fn() + Send + Sync>>, Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(call) = &self.0 {
            call();
            self.1.store(true, Ordering::Release);
        }
    }
}

/// A cell with a value that calls a function when it is dropped.
struct Retiring {
    cell: RcuCell<OnDrop>,
    is_dropped: Arc<AtomicBool>,
}

impl Retiring {
    fn new(call: impl Fn() + Send + Sync + 'static) -> Self {
        let this = Self { cell: RcuCell::new(), is_dropped: Arc::default() };
        assert!(this.cell.replace(None, OnDrop(Some(Box::new(call)), Arc::clone(&this.is_dropped)), &pin()));
        this
    }

    fn retire(&self) {
        let guard = pin();
        let by = OnDrop(None, Arc::clone(&self.is_dropped));
        assert!(self.cell.replace(self.cell.load(&guard), by, &guard));
    }

    /// Waits until the value is dropped, without a limit: [`ends`] has one.
    fn wait(&self) {
        while !self.is_dropped.load(Ordering::Acquire) {
            flush();
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Runs `test` beside no other test. Panics if it does not end: then its thread waits for itself.
fn ends(test: impl FnOnce() + Send + 'static) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_time(test);
}

fn full_cache(runtime: &Runtime, ttl: Option<Duration>) -> Cache<u64, u64> {
    let builder = Cache::builder(runtime).weigher(|_, _| ByteSize::ZERO);
    let cache = match ttl {
        Some(ttl) => builder.time_to_live(ttl).build(),
        None => builder.build(),
    };
    let cache = cache.unwrap();
    (0..MANY).for_each(|key| assert!(cache.insert(key, 0).is_ok()));
    cache
}

#[test]
fn a_value_that_a_clear_drops_may_clear_the_cache() {
    ends(|| {
        let runtime = Runtime::builder().unlimited().build().unwrap();
        let cache = full_cache(&runtime, None);
        let theirs = cache.clone();
        let value = Retiring::new(move || theirs.clear());
        beside_a_reader(|| value.retire());
        cache.clear();
        // The housekeeper removes the entries.
        while runtime.root().usage() > ByteSize::ZERO {
            runtime.tree().drain_stock();
            thread::sleep(Duration::from_millis(1));
        }
        value.wait();
    });
}

#[test]
fn a_value_that_a_sweep_drops_may_advance_the_clock() {
    ends(|| {
        let clock = ManualClock::new();
        let runtime = Runtime::builder().unlimited().clock(&clock).build().unwrap();
        let cache = full_cache(&runtime, Some(HOUR));
        let theirs = clock.clone();
        let value = Retiring::new(move || theirs.advance(HOUR));
        beside_a_reader(|| value.retire());
        clock.advance(2 * HOUR);
        assert!(cache.is_empty());
        value.wait();
    });
}

/// With crossbeam-epoch, the value is dropped with the next guard on any thread.
#[test]
fn a_value_that_is_dropped_when_a_clear_begins_may_clear_the_cache() {
    ends(|| {
        let runtime = Runtime::builder().unlimited().build().unwrap();
        let cache = full_cache(&runtime, None);
        let theirs = cache.clone();
        let value = Retiring::new(move || theirs.clear());
        value.retire();
        let grace_period = start_poll();
        while !grace_period.poll() {}
        cache.clear();
        assert!(cache.is_empty());
        value.wait();
    });
}
