//! The page cache of an SQLite connection beside a lowwater `Cache` in one budget.
//!
//! The weight is `SQLITE_DBSTATUS_CACHE_USED`. A lower `PRAGMA cache_size` evicts the pages that
//! were used longest ago, and the old size follows. Pages that a transaction has changed stay.
//! `Connection::release_memory` would evict all pages.
//!
//! A change must ensure that the database is in a file: pages of a database in memory are the data,
//! and cannot be evicted.

mod rows;

use std::path::PathBuf;
use std::sync::Mutex;

use lowwater::ByteSize;
use lowwater_adapters::Evict;
use rows::{Rows, KEYS, VALUE};
use rusqlite::{ffi, Connection};

/// The size in pages with which the connection is opened: the runtime alone bounds it.
const UNBOUNDED: u64 = 1 << 20;
/// The bytes of a page of 4096 bytes with SQLite's headers, rounded up.
const PAGE: u64 = 4608;

/// A connection and its file, which is removed with it.
struct Pages {
    connection: Mutex<Connection>,
    file: PathBuf,
}

impl Rows for Pages {
    /// Writes the rows, and opens the file again, so that no page is cached.
    fn open(name: &str) -> Self {
        let file = std::env::temp_dir().join(format!("lowwater-{name}-{}.sqlite", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let mut connection = Connection::open(&file).unwrap();
        connection
            .execute_batch("PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
            .unwrap();
        let change = connection.transaction().unwrap();
        change.execute_batch("CREATE TABLE entry (id INTEGER PRIMARY KEY, value BLOB NOT NULL)").unwrap();
        for key in 0..=KEYS {
            change.execute("INSERT INTO entry VALUES (?1, zeroblob(?2))", (key as i64, VALUE)).unwrap();
        }
        change.commit().unwrap();
        drop(connection);
        let connection = Connection::open(&file).unwrap();
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").unwrap();
        connection.pragma_update(None, "cache_size", UNBOUNDED).unwrap();
        Self { connection: Mutex::new(connection), file }
    }

    fn read(&self, key: u64) {
        let connection = self.connection.lock().unwrap();
        let mut statement = connection.prepare_cached("SELECT length(value) FROM entry WHERE id = ?1").unwrap();
        let length: usize = statement.query_row([key as i64], |row| row.get(0)).unwrap();
        assert_eq!(length, VALUE);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

impl Evict for Pages {
    fn weight(&self) -> ByteSize {
        let connection = self.connection.lock().unwrap();
        let (mut used, mut peak) = (0, 0);
        // SAFETY: the handle is only read, and no reference to it is kept.
        let handle = unsafe { connection.handle() };
        // SAFETY: the connection is open and locked, and both integers live until the return.
        let status =
            unsafe { ffi::sqlite3_db_status(handle, ffi::SQLITE_DBSTATUS_CACHE_USED, &mut used, &mut peak, 0) };
        assert_eq!(status, ffi::SQLITE_OK);
        ByteSize::new(used.try_into().unwrap())
    }

    fn shrink_to(&self, target: ByteSize) {
        let connection = self.connection.lock().unwrap();
        let resize = |pages: u64| connection.pragma_update(None, "cache_size", pages).unwrap();
        resize(target.get() / PAGE);
        resize(UNBOUNDED);
    }
}

#[test]
fn the_page_cache_gives_way() {
    rows::gives_way::<Pages>();
}

#[test]
fn the_page_cache_takes_its_share() {
    rows::takes_its_share::<Pages>();
}
