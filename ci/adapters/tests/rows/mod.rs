//! A store of rows and a lowwater `Cache` in one budget: memory moves to the one that is used, and
//! is shared if both are used alike.
//!
//! A change must ensure that a row takes about as many bytes in the store's cache as an entry does
//! in ours.

#[path = "../../../../crates/adapters/tests/common/ours.rs"]
mod ours;

use lowwater::ByteSize;
use lowwater_adapters::{adapt, Adapted, Evict};
use ours::{ask_ours, ours, runtime, Keys};

const BUDGET: ByteSize = ByteSize::mib(4);
/// The bytes of a value: one row fills a page or a block of the store.
pub const VALUE: usize = 4000;
/// Rows, and keys of the cache: three times the budget.
pub const KEYS: u64 = 3 * BUDGET.get() / VALUE as u64;

/// A store on disk with a cache in memory.
pub trait Rows: Evict + Sized {
    /// Writes the rows 0 to [`KEYS`] to files of this name, with [`VALUE`] bytes each. No row is
    /// cached.
    fn open(name: &str) -> Self;

    fn read(&self, key: u64);
}

fn read<R: Rows>(rows: &Adapted<R>, key: u64) {
    rows.update(|rows| rows.read(key));
}

/// Checks that the store's cache gives way when only ours is used.
pub fn gives_way<R: Rows>() {
    let runtime = runtime(BUDGET);
    let rows = adapt(&runtime, "rows", R::open("gives-way")).unwrap();
    (0..KEYS).for_each(|key| read(&rows, key));
    let full = rows.weight();
    assert!(full.get() * 10 >= BUDGET.get() * 8, "all rows were read, and {full:#} are cached");
    assert!(full <= BUDGET, "{full:#} are cached");
    let ours = ours(&runtime);
    let mut keys = Keys::new(1, KEYS);
    (0..6 * KEYS).for_each(|_| ask_ours(&ours, keys.next(), VALUE));
    let left = rows.weight();
    println!("{left:#} of {full:#} are left");
    assert!(left.get() * 4 <= full.get(), "{left:#} of {full:#} are left, though no row is read");
}

/// Checks that the store's cache has its share when both are used alike, whichever was filled
/// first.
pub fn takes_its_share<R: Rows>() {
    for is_first in [true, false] {
        let runtime = runtime(BUDGET);
        let rows = adapt(&runtime, "rows", R::open("share")).unwrap();
        let ours = ours(&runtime);
        for key in 0..KEYS {
            match is_first {
                true => read(&rows, key),
                false => ask_ours(&ours, key, VALUE),
            }
        }
        let (mut keys, mut held) = (Keys::new(2, KEYS), [0, 0]);
        for n in 0..16 * KEYS {
            read(&rows, keys.next());
            ask_ours(&ours, keys.next(), VALUE);
            if n >= 8 * KEYS && n % 20 == 0 {
                held[0] += rows.weight().get();
                held[1] += ours.stats().bytes.get();
            }
        }
        assert!(runtime.root().usage() <= BUDGET);
        let share = held[0] as f64 / (held[0] + held[1]) as f64;
        println!("share {share:.2}, first {is_first}");
        assert!((0.40..=0.60).contains(&share), "the rows hold {share} of both, first {is_first}");
    }
}
