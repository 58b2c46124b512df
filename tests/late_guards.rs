//! Pinned caches that outlive their thread's read-side state: in thread-locals that are destroyed
//! later, and leaked. In a process of its own: the last one holds memory back for ever.
//!
//! Each of the two was a use after free when a thread's registration ended before its guards.
//!
//! Both cases must stay: a sanitizer run finds the defect if it comes back.
#![forbid(unsafe_code)]

use lowwater::cache::RejectReason;
use lowwater::{ByteSize, Cache, Runtime};
use std::cell::RefCell;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

type Texts = Cache<u64, Arc<Vec<u8>>>;

/// Destroyed after the library's thread-locals, because it is created first.
struct Late(Option<Box<dyn FnOnce()>>);

impl Drop for Late {
    fn drop(&mut self) {
        self.0.take().unwrap()();
    }
}

thread_local! { static LATE: RefCell<Option<Late>> = const { RefCell::new(None) }; }

fn put(cache: &Texts, key: u64) -> Weak<Vec<u8>> {
    let text = Arc::new(vec![key as u8; 4_000]);
    let weak = Arc::downgrade(&text);
    let begin = Instant::now();
    // The housekeeper may have lost its processor as a reader, and hold back much memory.
    while cache.insert(key, Arc::clone(&text)).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(60), "there is no room");
    }
    weak
}

/// Removes an entry, and then inserts and removes many others, so that memory is freed that no
/// reader holds back.
fn take(cache: &Texts, key: u64) {
    assert!(cache.remove(&key).is_some());
    for other in 1_000..1_200 {
        put(cache, other);
        cache.remove(&other).unwrap();
    }
    cache.collect();
}

#[test]
fn a_late_dropped_pin_is_a_reader_until_its_drop() {
    let runtime =
        Runtime::builder().budget(ByteSize::mib(2)).direct_time_max(Duration::from_millis(2)).build().unwrap();
    let weigher = |_: &u64, text: &Arc<Vec<u8>>| ByteSize::new(text.capacity() as u64);
    let cache: Texts = Cache::builder(&runtime).weigher(weigher).build().unwrap();
    let cache: &'static Texts = Box::leak(Box::new(cache));

    let weak = put(cache, 7);
    let (tell, told) = channel();
    let (end, ended) = channel();
    let late = thread::spawn(move || {
        LATE.set(Some(Late(Some(Box::new(|| ())))));
        let pinned = cache.pin();
        let at_end = move || {
            let text = pinned.get(&7).unwrap();
            tell.send(()).unwrap();
            ended.recv().unwrap();
            assert_eq!(**text, [7; 4_000]);
            drop(pinned);
        };
        LATE.with_borrow_mut(|late| late.as_mut().unwrap().0 = Some(Box::new(at_end)));
    });
    told.recv().unwrap();
    take(cache, 7);
    assert!(weak.upgrade().is_some(), "a reader looks at it");
    end.send(()).unwrap();
    late.join().unwrap();
    let begin = Instant::now();
    while weak.upgrade().is_some() {
        put(cache, 1);
        take(cache, 1);
        assert!(begin.elapsed() < Duration::from_secs(60), "no reader is left");
    }

    let weak = put(cache, 8);
    let leak = || Box::leak(Box::new(cache.pin())).get(&8).unwrap();
    let text: &'static Arc<Vec<u8>> = thread::spawn(leak).join().unwrap();
    take(cache, 8);
    assert!(weak.upgrade().is_some(), "a leaked reader may use it for ever");
    assert_eq!(**text, [8; 4_000]);
    // The memory that waits for that reader is bounded.
    let refused = (2_000..).find_map(|key| cache.insert(key, Arc::new(vec![0; 4_000])).err()).unwrap();
    assert!(matches!(refused.reason, RejectReason::HeldByReaders { .. }), "{refused}");
    assert!(cache.collect() < ByteSize::mib(20) && weak.upgrade().is_some());
    assert_eq!(**text, [8; 4_000]);
}
