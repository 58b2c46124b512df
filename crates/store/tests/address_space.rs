//! A process without free address space: the first object is refused, and nothing is lost. A single
//! test, because the limit applies to the whole process.
//!
//! The chunk table (32 MiB of address space) is mapped at the first object; if that fails, the
//! caller must get an error, and the process must not abort.

// On other systems the chunk table is allocated from the heap: see `slab_alloc.rs`.
#![cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]

use lowwater_lru_core::NodeId;
use lowwater_store::slab::{Slab, Slot, SlotState};
use lowwater_store::{slotted, CompressedLinks};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

struct Thing(CompressedLinks, SlotState);

slotted!(impl[] for Thing { 0, 1, weight: |thing| size_of_val(thing) as u64 });

fn thing(slab: &Slab<Thing>) -> Option<Slot<Thing>> {
    slab.alloc(Thing(CompressedLinks::new(), SlotState::new(0)), NodeId::ZERO).ok()
}

/// The bytes of address space in use by this process.
fn used() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    size.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn the_first_object_without_address_space_is_refused() {
    if std::env::var_os("LOWWATER_SANITIZER").is_some() {
        return println!("skipped: a sanitizer needs more addresses than it could be refused");
    }
    let slab = Slab::new();
    let before = getrlimit(Resource::As);
    // 16 MiB: enough for everything except the table.
    setrlimit(Resource::As, Rlimit { current: Some(used() + (16 << 20)), ..before }).unwrap();
    let first = thing(&slab);
    let refused = first.is_none() && thing(&slab).is_none();
    setrlimit(Resource::As, before).unwrap();
    assert!(refused, "there is no room for the table");
    let things: Vec<_> = (0..10_000).map(|_| thing(&slab).expect("the table has room now")).collect();
    drop(things);
}
