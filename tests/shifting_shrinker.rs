//! A charge beside a shrinker that moves charges between two limits instead of freeing them: the
//! room that each scan makes below one limit is missing below the other.
//!
//! A change must ensure that the charge ends after a bounded number of scans, and counts scans
//! rather than time, which depends on the load of the machine.

use lowwater::topology::Fixed;
use lowwater::{ByteSize, Memcg, Runtime};
use lowwater_lru_core::NodeId;
use lowwater_shrinker::{Count, Reclaim, Scan, ShrinkControl, Shrinker};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::Arc;
use std::time::Duration;

const PART: ByteSize = ByteSize::kib(64);
const BUDGET: ByteSize = ByteSize::kib(256);
/// More than the scans of the eight rounds of a charge.
const SCANS_MAX: u32 = 10_000;

/// Keeps `small`, whose `max` is [`PART`], or else the whole budget full.
struct Shifting {
    small: Memcg,
    large: Memcg,
    root: Memcg,
    scans: AtomicU32,
}

impl Shrinker for Shifting {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Objects(100)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        if sc.flags().contains(Reclaim::BACKGROUND) || self.scans.fetch_add(1, SeqCst) >= SCANS_MAX {
            return Scan::Stop;
        }
        if self.small.usage() == PART {
            self.small.uncharge(PART);
            assert!(self.large.try_charge(BUDGET.saturating_sub(self.root.usage())).is_ok());
        } else {
            self.large.uncharge(ByteSize::new(2 * PART.get()));
            assert!(self.small.try_charge(PART).is_ok());
        }
        Scan::Freed(1)
    }
}

#[test]
fn a_charge_ends_beside_a_shrinker_that_takes_the_room_again() {
    let builder = Runtime::builder().budget(BUDGET).topology(Arc::new(Fixed::new(1)));
    let runtime = builder.direct_time_max(Duration::from_micros(500)).build().unwrap();
    let [small, large] = ["small", "large"].map(|name| runtime.group(name).unwrap());
    small.set_max(PART);
    assert!(small.try_charge(PART).is_ok());
    assert!(large.try_charge(ByteSize::new(2 * PART.get())).is_ok());
    let prepared = runtime.registry().builder("shifting").alloc().unwrap();
    let occupancy = prepared.occupancy();
    let root = runtime.root().clone();
    let shifting = Arc::new(Shifting { small: small.clone(), large: large.clone(), root, scans: AtomicU32::new(0) });
    let registration = prepared.register(Arc::clone(&shifting) as Arc<dyn Shrinker>);
    for group in [&small, &large] {
        occupancy.occupied(group, NodeId::ZERO);
    }
    let charged = runtime.charge(&small, PART);
    let scans = shifting.scans.load(SeqCst);
    assert!((1..SCANS_MAX).contains(&scans), "{scans} scans; {charged:?}");
    drop(registration);
}
