//! The block cache of a RocksDB database beside a lowwater `Cache` in one budget.
//!
//! The weight is the cache's usage. A lower capacity evicts the blocks that were used longest ago,
//! and the old capacity follows. Blocks that an iterator or a pinned value holds stay.
//!
//! A change must ensure that the rows are read from a table: rows in the memory table are no
//! blocks.

#[path = "../../../crates/adapters/tests/common/ours.rs"]
mod ours;

use std::path::PathBuf;

use lowwater::ByteSize;
use lowwater_adapters::{adapt, Adapted, Evict};
use ours::{ask_ours, ours, runtime, Keys};
use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, Options, DB};

const BUDGET: ByteSize = ByteSize::mib(4);
/// The bytes of a value: one row fills a block.
const VALUE: usize = 4000;
/// Rows, and keys of the cache: three times the budget.
const KEYS: u64 = 3 * BUDGET.get() / VALUE as u64;
/// The capacity with which the block cache is made: the runtime alone bounds it.
const UNBOUNDED: usize = 1 << 30;

/// A database and its folder, which is removed with it.
struct Blocks {
    /// `None` once it is closed.
    database: Option<DB>,
    cache: Cache,
    folder: PathBuf,
}

impl Blocks {
    /// Writes the rows into a table, and opens it again, so that no block is cached.
    fn open(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lowwater-{name}-{}.rocksdb", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let cache = Cache::new_lru_cache(UNBOUNDED).unwrap();
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_block_size(VALUE);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_compression_type(DBCompressionType::None);
        let database = DB::open(&options, &folder).unwrap();
        for key in 0..=KEYS {
            database.put(key.to_be_bytes(), [0; VALUE]).unwrap();
        }
        database.flush().unwrap();
        drop(database);
        let database = Some(DB::open(&options, &folder).unwrap());
        Self { database, cache, folder }
    }

    fn read(&self, key: u64) {
        let value = self.database.as_ref().unwrap().get_pinned(key.to_be_bytes()).unwrap();
        assert_eq!(value.unwrap().len(), VALUE);
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.database = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Evict for Blocks {
    fn weight(&self) -> ByteSize {
        ByteSize::new(self.cache.get_usage() as u64)
    }

    fn shrink_to(&self, target: ByteSize) {
        // A clone is the same cache.
        let mut cache = self.cache.clone();
        cache.set_capacity(target.get() as usize);
        cache.set_capacity(UNBOUNDED);
    }
}

fn read(blocks: &Adapted<Blocks>, key: u64) {
    blocks.update(|blocks| blocks.read(key));
}

#[test]
fn the_block_cache_gives_way() {
    let runtime = runtime(BUDGET);
    let blocks = adapt(&runtime, "rocksdb", Blocks::open("gives-way")).unwrap();
    (0..KEYS).for_each(|key| read(&blocks, key));
    let full = blocks.weight();
    assert!(full.get() * 10 >= BUDGET.get() * 8, "all rows were read, and the block cache holds {full:#}");
    assert!(full <= BUDGET, "the block cache holds {full:#}");
    let ours = ours(&runtime);
    let mut keys = Keys::new(1, KEYS);
    (0..6 * KEYS).for_each(|_| ask_ours(&ours, keys.next(), VALUE));
    let left = blocks.weight();
    println!("{left:#} of {full:#} are left");
    assert!(left.get() * 4 <= full.get(), "{left:#} of {full:#} are left, though no row is read");
}

#[test]
fn the_block_cache_takes_its_share() {
    for is_first in [true, false] {
        let runtime = runtime(BUDGET);
        let blocks = adapt(&runtime, "rocksdb", Blocks::open("share")).unwrap();
        let ours = ours(&runtime);
        for key in 0..KEYS {
            match is_first {
                true => read(&blocks, key),
                false => ask_ours(&ours, key, VALUE),
            }
        }
        let (mut keys, mut held) = (Keys::new(2, KEYS), [0, 0]);
        for n in 0..16 * KEYS {
            read(&blocks, keys.next());
            ask_ours(&ours, keys.next(), VALUE);
            if n >= 8 * KEYS && n % 20 == 0 {
                held[0] += blocks.weight().get();
                held[1] += ours.stats().bytes.get();
            }
        }
        assert!(runtime.root().usage() <= BUDGET);
        let share = held[0] as f64 / (held[0] + held[1]) as f64;
        println!("share {share:.2}, first {is_first}");
        assert!((0.40..=0.60).contains(&share), "the block cache holds {share} of both, first {is_first}");
    }
}
