// SPDX-License-Identifier: GPL-2.0

//! Many caches, few of which hold an object: the cost of caches that are empty in most groups. One
//! source for the kernel's lists and lowwater's.
//!
//! It takes the place of `../one_cache/load.rs` under `proc.rs`, so a change must keep its names.
//! Commands: `add N` adds an object of the current task's group to cache N, `count` reports the
//! listed objects. `guest.sh` compares the results with its own texts, and adds to the caches 300,
//! 600 and 900.

use super::lists::{self, Count, Isolated, ListLru, Scan, ShrinkControl, Shrinker};
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of caches; `ci/rust-kernel.sh` and README.md name it.
pub(crate) const CACHES: usize = 1000;
/// The number of workers, which `proc.rs` needs; they do not differ here.
pub(crate) const WORKERS: usize = 1;

/// The live objects.
static ALIVE: AtomicU64 = AtomicU64::new(0);

/// Returns the number of live objects.
pub(crate) fn alive() -> u64 {
    ALIVE.load(Relaxed)
}

/// An object.
pub(crate) struct Object;

impl Drop for Object {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Relaxed);
    }
}

/// A cache.
pub(crate) struct Few {
    pub(crate) entries: ListLru<Object>,
}

impl Shrinker for Few {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.entries.count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let (mut left, mut old) = (sc.nr_to_scan(), Isolated::new());
        self.entries
            .walk_one(sc.memcg(), sc.node(), &mut left, |it| it.isolate(&mut old));
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        Scan::Freed(old.len() as u64)
    }
}

/// The registered caches.
pub(crate) trait Caches {
    /// Returns a cache; `None` if there is none of that number.
    fn at(&self, number: usize) -> Option<&Few>;
}

/// The caches, and their commands.
pub(crate) struct Load<C>(pub(crate) C);

/// Why a command failed.
pub(crate) enum Failure {
    /// There is no such command or cache.
    Unknown,
    /// There is no memory.
    NoMemory,
}

impl<C: Caches> Load<C> {
    /// Runs a command, and writes its result.
    pub(crate) fn run(
        &self,
        _worker: usize,
        command: &str,
        said: &mut dyn Write,
    ) -> Result<(), Failure> {
        let mut words = command.split_ascii_whitespace();
        let result = match (
            words.next(),
            words.next().and_then(|word| word.parse().ok()),
        ) {
            (Some("add"), Some(number)) => {
                let cache = self.0.at(number).ok_or(Failure::Unknown)?;
                ALIVE.fetch_add(1, Relaxed);
                // Without memory `alloc` drops the object.
                let entry = lists::alloc(&cache.entries, Object).map_err(|_| Failure::NoMemory)?;
                let added = lists::add(&cache.entries, entry.clone(), &entry);
                writeln!(said, "added {}", u8::from(added))
            }
            (Some("count"), None) => {
                let caches = (0..CACHES).filter_map(|number| self.0.at(number));
                let listed: u64 = caches.map(|cache| lists::count(&cache.entries)).sum();
                writeln!(said, "listed {listed} alive {}", alive())
            }
            _ => return Err(Failure::Unknown),
        };
        result.map_err(|_| Failure::Unknown)
    }
}

/// Reports the objects that the caches left behind. Dropped last.
pub(crate) struct End;

impl Drop for End {
    fn drop(&mut self) {
        kernel::pr_info!("{} entries left\n", alive());
    }
}
