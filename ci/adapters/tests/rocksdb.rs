//! The block cache of a RocksDB database beside a lowwater `Cache` in one budget.
//!
//! The weight is the cache's usage. A lower capacity evicts the blocks that were used longest ago,
//! and the old capacity follows. Blocks that an iterator or a pinned value holds stay.
//!
//! A change must ensure that the rows are read from a table: rows in the memory table are no
//! blocks.

mod rows;

use std::path::PathBuf;

use lowwater::ByteSize;
use lowwater_adapters::Evict;
use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, Options, DB};
use rows::{Rows, KEYS, VALUE};

/// The capacity with which the block cache is made: the runtime alone bounds it.
const UNBOUNDED: usize = 1 << 30;

/// A database and its folder, which is removed with it.
struct Blocks {
    /// `None` once it is closed.
    database: Option<DB>,
    cache: Cache,
    folder: PathBuf,
}

impl Rows for Blocks {
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

#[test]
fn the_block_cache_gives_way() {
    rows::gives_way::<Blocks>();
}

#[test]
fn the_block_cache_takes_its_share() {
    rows::takes_its_share::<Blocks>();
}
