//! An adapted cache of large entries beside a lowwater `Cache` in one budget.
//!
//! The cache is scanned in pages of 4 KiB and evicts whole entries, so each scan frees many more
//! pages than are requested. The weights are virtual: an entry of 64 MiB takes a few bytes here.
//!
//! A change must keep an entry much larger than 256 pages: a shrinker's report of more objects is
//! checked (`SCAN_MAX` in `least_useful/victim.rs` of the package `lowwater-shrinker`).

#[path = "common/ours.rs"]
mod ours;
#[path = "../../../tests/common/two_of_three.rs"]
mod two_of_three;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use lowwater::{ByteSize, Cache};
use lowwater_adapters::{adapt, evict_by};
use ours::{runtime, Keys};
use two_of_three::two_of_three;

/// 1,024 entries, so that many are evicted between two counts. Of few, each count differs by whole
/// entries, and the inserted ones show even if the evicted ones are not credited.
const BUDGET: ByteSize = ByteSize::gib(64);
/// The bytes of an entry: 16,384 pages.
const ENTRY: ByteSize = ByteSize::mib(64);
/// Keys of each cache: three times the budget.
const KEYS: u64 = 3 * (BUDGET.get() / ENTRY.get());

/// Returns the part of both caches' bytes that a queue behind two closures holds in equal use, as
/// the mean of three runs.
fn share(is_first: bool) -> f64 {
    let mut held = [0, 0];
    for seed in 2..5 {
        let runtime = runtime(BUDGET);
        let entries = Arc::new(Mutex::new(VecDeque::new()));
        let (weighed, shrunk) = (Arc::clone(&entries), Arc::clone(&entries));
        let evict = evict_by(
            move || ENTRY * weighed.lock().unwrap().len() as u64,
            move |target| {
                let mut entries = shrunk.lock().unwrap();
                let keep = entries.len().min((target.get() / ENTRY.get()) as usize);
                let gone = entries.len() - keep;
                entries.drain(..gone);
            },
        );
        let queue = adapt(&runtime, "queue", evict).unwrap();
        let ours = Cache::builder(&runtime).name("ours").weigher(|_: &u64, _: &()| ENTRY).build().unwrap();
        let ask_queue = |key: u64| {
            if !entries.lock().unwrap().contains(&key) {
                queue.update(|_| entries.lock().unwrap().push_back(key));
            }
        };
        let ask_ours = |key: u64| {
            if ours.get(&key).is_none() {
                ours.insert(key, ()).unwrap();
            }
        };
        (0..KEYS).for_each(|key| if is_first { ask_queue(key) } else { ask_ours(key) });
        let mut random = Keys::new(seed, KEYS);
        for n in 0..16 * KEYS {
            ask_queue(random.next());
            ask_ours(random.next());
            if n >= 8 * KEYS {
                held[0] += entries.lock().unwrap().len();
                held[1] += ours.len();
            }
        }
    }
    let share = held[0] as f64 / (held[0] + held[1]) as f64;
    println!("share {share:.3}, first {is_first}");
    share
}

#[test]
fn a_cache_of_large_entries_takes_its_share() {
    for is_first in [true, false] {
        assert!(two_of_three(|| (0.35..=0.65).contains(&share(is_first))), "first {is_first}");
    }
}
