//! Charges and inserts beside a shrinker with slow scans that frees nothing: the time of direct
//! reclaim bounds them.
//!
//! Counts callbacks, as times depend on the load of the machine.
//!
//! A new way to charge belongs into the test.

use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Runtime};
use lowwater_shrinker::{Count, Scan, ShrinkControl, Shrinker};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

const BUDGET: ByteSize = ByteSize::kib(64);
/// Longer than the time of a whole charge below.
const SCAN_TIME: Duration = Duration::from_millis(2);
const DIRECT_TIME_MAX: Duration = Duration::from_micros(500);
/// Scans that one charge may make: in each of its eight rounds one by utility and one of direct
/// reclaim; and one for each of the two batches of an insert.
const SCANS_MAX: u32 = 18;

thread_local! {
    /// Scans that this thread has made; the reclaimer's are not counted.
    static SCANS: Cell<u32> = const { Cell::new(0) };
}

/// A shrinker with objects that are all in use.
struct InUse(u64);

impl Shrinker for InUse {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Objects(self.0)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        SCANS.set(SCANS.get() + 1);
        std::thread::sleep(SCAN_TIME);
        sc.set_nr_scanned(sc.nr_to_scan().min(self.0));
        Scan::Freed(0)
    }
}

#[test]
fn slow_scans_that_free_nothing_end_with_the_time_of_a_charge() {
    for (objects, time) in [(20, DIRECT_TIME_MAX), (1_000, DIRECT_TIME_MAX), (20, Duration::ZERO)] {
        let topology = Arc::new(Fixed::new(1));
        let runtime = Runtime::builder().budget(BUDGET).topology(topology).direct_time_max(time).build().unwrap();
        let prepared = runtime.registry().builder("in use").memcg_aware(false).numa_aware(false).alloc().unwrap();
        let _registration = prepared.register(Arc::new(InUse(objects)) as Arc<dyn Shrinker>);
        let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| 0_u64).build().unwrap();
        runtime.charge(runtime.root(), BUDGET).unwrap();
        for charge in 0..3 {
            SCANS.set(0);
            assert!(runtime.charge(runtime.root(), ByteSize::kib(4)).is_err());
            assert!(SCANS.get() <= SCANS_MAX, "{objects} objects, charge {charge}: {} scans", SCANS.get());
            SCANS.set(0);
            assert!(cache.insert(1, 1).is_err());
            assert!(SCANS.get() <= SCANS_MAX, "{objects} objects, insert {charge}: {} scans", SCANS.get());
        }
        runtime.root().uncharge(BUDGET);
    }
}
