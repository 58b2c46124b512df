//! The server: what all connections share, and the bound on their number.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::counters::{Counter, Counters};
use crate::protocol::expiry::Expiry;
use crate::receive_budget::ReceiveBudget;
use crate::settings::Settings;
use crate::store::prefix_stats::PrefixStats;
use crate::store::Store;
use crate::value::piece_pool::PiecePool;

/// After a signal, clients get this long to take the replies of commands that had begun.
pub const CLOSE_TIME_MAX: Duration = Duration::from_millis(500);

/// The pool of pieces may hold this part of the budget, in addition to it.
const POOL_SHARE: u64 = 16;

/// The server that all connections share.
#[derive(Debug)]
pub struct Server {
    pub settings: Settings,
    pub store: Store,
    pub piece_pool: Arc<PiecePool>,
    pub receive_budget: Arc<ReceiveBudget>,
    pub counters: Counters,
    /// What `stats detail` shows.
    pub prefix_stats: PrefixStats,
    pub started: Instant,
    /// Where it really listens.
    pub addresses: Vec<SocketAddr>,
    /// Where it really listens for HTTP, if it does.
    pub http: Option<SocketAddr>,
    connections: AtomicU64,
    verbosity: AtomicU8,
    /// The `flush_all` that waits for its time.
    delayed_flush: Mutex<Option<AbortHandle>>,
    /// Held by the crawl that runs: one at a time.
    pub crawl_lock: Arc<tokio::sync::Mutex<()>>,
    /// Notified when the last connection closes.
    idle: Notify,
}

impl Server {
    /// A server without a socket.
    ///
    /// # Errors
    ///
    /// The cache cannot be made.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let piece_pool = Arc::new(PiecePool::new(settings.budget.get() / POOL_SHARE));
        let store = Store::new(&settings, &piece_pool)?;
        Ok(Self {
            receive_budget: ReceiveBudget::new(store.runtime(), settings.evict, settings.item_bytes_max),
            store,
            piece_pool,
            counters: Counters::default(),
            prefix_stats: PrefixStats::new(settings.delimiter),
            started: Instant::now(),
            addresses: Vec::new(),
            http: None,
            connections: AtomicU64::new(0),
            verbosity: AtomicU8::new(settings.verbosity),
            delayed_flush: Mutex::default(),
            crawl_lock: Arc::default(),
            idle: Notify::new(),
            settings,
        })
    }

    /// Connections open now.
    pub fn connections(&self) -> u64 {
        // Relaxed: a number for people.
        self.connections.load(Ordering::Relaxed)
    }

    pub fn verbosity(&self) -> u8 {
        // Relaxed: it guards nothing.
        self.verbosity.load(Ordering::Relaxed)
    }

    pub fn set_verbosity(&self, level: u8) {
        // Relaxed: as above.
        self.verbosity.store(level, Ordering::Relaxed);
    }

    /// Writes a line to stderr, if the verbosity is at least `level`.
    pub fn log(&self, level: u8, text: std::fmt::Arguments<'_>) {
        if self.verbosity() >= level {
            // A closed stderr is no reason to stop serving.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Empties the store now, which is done when this resolves, or when `exptime` comes. The last
    /// one counts: one that was waiting for its time is forgotten.
    pub async fn flush(self: &Arc<Self>, exptime: i64) {
        let later = match Expiry::of(exptime) {
            Expiry::Never | Expiry::Past => None,
            Expiry::In(time) => {
                let server = Arc::downgrade(self);
                let task = tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    if let Some(server) = server.upgrade() {
                        server.flush_now().await;
                    }
                });
                Some(task.abort_handle())
            }
        };
        let is_now = later.is_none();
        if let Some(before) = std::mem::replace(&mut *self.delayed_flush.lock(), later) {
            before.abort();
        }
        if is_now {
            self.flush_now().await;
        }
    }

    async fn flush_now(self: &Arc<Self>) {
        self.store.flush();
        self.crawl(Store::drop_flushed).await;
    }

    /// Removes all expired values.
    pub async fn reap_expired(self: &Arc<Self>) {
        self.crawl(Store::reap_expired).await;
    }

    /// Visits all values on a thread that serves no client, one crawl at a time: with many values a
    /// crawl takes long.
    async fn crawl(self: &Arc<Self>, visit: fn(&Store)) {
        let alone = Arc::clone(&self.crawl_lock).lock_owned().await;
        let server = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            visit(&server.store);
            drop(alone);
        });
        // There is no answer; an error says that the server closes.
        let _ = done.await;
    }

    /// Returns a permit for one more connection, unless `connections_max` are open.
    pub fn try_admit(self: &Arc<Self>) -> Option<ConnectionPermit> {
        self.counters.count(Counter::TotalConnections);
        // Relaxed: a count that bounds, and guards no other memory.
        if self.connections.fetch_add(1, Ordering::Relaxed) >= self.settings.connections_max {
            drop(ConnectionPermit(Arc::clone(self)));
            self.counters.count(Counter::RejectedConnections);
            return None;
        }
        Some(ConnectionPermit(Arc::clone(self)))
    }

    /// Resolves when all connections have closed, or [`CLOSE_TIME_MAX`] is over.
    pub async fn wait_until_idle(&self) {
        let _ = tokio::time::timeout(CLOSE_TIME_MAX, async {
            while self.connections() > 0 {
                self.idle.notified().await;
            }
        })
        .await;
    }
}

/// A permit for one open connection, returned when it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<Server>);

impl ConnectionPermit {
    pub fn server(&self) -> &Arc<Server> {
        &self.0
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        // Relaxed: as in `try_admit`.
        if self.0.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.idle.notify_one();
        }
    }
}
