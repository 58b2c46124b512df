//! The server: the state that all connections share, and the bound on their number.
//!
//! Shared by all connections through an `Arc`, so each part that changes is atomic or behind a
//! short lock. The exception is `crawl_lock`, which a crawl (a visit of all values or tenants)
//! holds to its end.
//!
//! A change must ensure that no other lock is held across an `await`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{watch, Notify};
use tokio::task::AbortHandle;

use crate::connections::ConnectionTable;
use crate::counters::{Counter, Counters};
use crate::http::history::History;
use crate::http::tenant_metrics::ListedTenants;
use crate::log;
use crate::net::tls::Tls;
use crate::protocol::expiry::Expiry;
use crate::receive_budget::ReceiveBudget;
use crate::recent::Recent;
use crate::settings::users::Users;
use crate::settings::Settings;
use crate::store::prefix_stats::PrefixStats;
use crate::store::tenant::created_by_keys_max;
use crate::store::Store;
use crate::timers;
use crate::traffic::unread_replies::AllUnreadReplies;
use crate::value::piece_pool::{PiecePool, POOL_SHARE};

/// After a stop signal, the time in which clients can receive the replies of commands that have
/// begun.
pub const CLOSE_TIME_MAX: Duration = Duration::from_millis(500);

/// How the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The values are saved, if there is a file for them.
    Save,
    /// The values are not saved.
    Discard,
}

/// The number of values of each size that occurs, by the size in bytes.
pub type SizeCounts = BTreeMap<usize, u64>;

/// The names and values of a topic of `stats`.
pub type StatLines = Vec<(String, String)>;

/// A `flush_all` that is to take effect later.
#[derive(Debug)]
struct DelayedFlush {
    due: Instant,
    task: AbortHandle,
}

/// The state that all connections share.
#[derive(Debug)]
pub struct Server {
    pub settings: Settings,
    pub store: Store,
    pub piece_pool: Arc<PiecePool>,
    pub receive_budget: Arc<ReceiveBudget>,
    pub unread_replies: AllUnreadReplies,
    pub counters: Counters,
    /// The statistics of `stats detail`.
    pub prefix_stats: PrefixStats,
    /// When the server was created.
    pub started: Instant,
    /// The TCP addresses that are bound, with their actual ports.
    pub addresses: Vec<SocketAddr>,
    /// The address that is bound for HTTP, if any.
    pub http: Option<SocketAddr>,
    /// The number of open connections: of [`ConnectionPermit`]s.
    connections: AtomicU64,
    /// The open listeners and connections of the cache.
    pub open_connections: Arc<ConnectionTable>,
    verbosity: AtomicU8,
    /// The certificate and key of TLS, if it is on.
    pub tls: Option<Tls>,
    /// The users of `settings`, or those of the latest reload.
    pub users: RwLock<Option<Users>>,
    /// The tenants that had limits in the file that was read last.
    pub limited_tenants: Mutex<Vec<String>>,
    /// The figures of the last two minutes, if there is an HTTP endpoint.
    pub history: History,
    /// The tenants that `/metrics` lists.
    pub listed_tenants: ListedTenants,
    /// The `flush_all` with a delay that is not over.
    delayed_flush: Mutex<Option<DelayedFlush>>,
    /// Held during a crawl: only one crawl runs at a time.
    pub crawl_lock: Arc<tokio::sync::Mutex<()>>,
    /// The counts of the last `stats sizes`.
    pub last_sizes: Recent<SizeCounts>,
    /// The lines of the last `stats shrinkers`.
    pub last_shrinkers: Recent<StatLines>,
    /// The lines of the last `stats reclaim`.
    pub last_reclaim: Recent<StatLines>,
    /// Notified when the last open connection closes.
    idle: Notify,
    /// A client's request to end the server; `None` until there is one.
    stop: watch::Sender<Option<Stop>>,
    /// Whether the clients' time to end is over.
    has_ended: AtomicBool,
}

impl Server {
    /// Creates a server without sockets.
    ///
    /// # Errors
    ///
    /// A sentence, if the cache cannot be created, or a file of TLS is not valid.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let tls = settings.tls.as_ref().map(Tls::open).transpose()?;
        let piece_pool = Arc::new(PiecePool::new(settings.budget.get() / POOL_SHARE));
        let store = Store::new(&settings, &piece_pool)?;
        store.create_tenants(settings.tenants_with_connections())?;
        Ok(Self {
            receive_budget: store.receive_budget(),
            store,
            piece_pool,
            unread_replies: AllUnreadReplies::default(),
            counters: Counters::default(),
            prefix_stats: PrefixStats::new(settings.delimiter, created_by_keys_max(settings.budget)),
            started: Instant::now(),
            addresses: Vec::new(),
            http: None,
            connections: AtomicU64::new(0),
            open_connections: Arc::default(),
            verbosity: AtomicU8::new(settings.verbosity),
            tls,
            users: RwLock::new(settings.users.clone()),
            limited_tenants: Mutex::new(settings.limits.iter().map(|(name, _)| name.clone()).collect()),
            history: History::default(),
            listed_tenants: ListedTenants::new(settings.metrics_tenants),
            delayed_flush: Mutex::default(),
            crawl_lock: Arc::default(),
            last_sizes: Recent::default(),
            last_shrinkers: Recent::default(),
            last_reclaim: Recent::default(),
            idle: Notify::new(),
            stop: watch::Sender::new(None),
            has_ended: AtomicBool::new(false),
            settings,
        })
    }

    /// Asks the server to end.
    pub fn stop(&self, how: Stop) {
        self.stop.send_replace(Some(how));
    }

    /// Resolves when [`stop`](Self::stop) has been called.
    pub async fn stopped(&self) -> Stop {
        let mut requests = self.stop.subscribe();
        // The sender lives as long as `self`, so there is no error.
        let request = requests.wait_for(Option::is_some).await;
        request.ok().and_then(|how| *how).unwrap_or(Stop::Discard)
    }

    /// Ends the service: no connection runs another command or writes another reply.
    pub fn end(&self) {
        // Relaxed: the values are saved after the workers have ended, which orders their changes;
        // one that did not end has had `CLOSE_TIME_MAX`, in which the flag has reached it.
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Returns whether the service has [ended](Self::end).
    pub fn has_ended(&self) -> bool {
        // Relaxed: see `end`.
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> u64 {
        // Relaxed: a count that guards no other memory.
        self.connections.load(Ordering::Relaxed)
    }

    pub fn verbosity(&self) -> u8 {
        // Relaxed: the level guards no other memory.
        self.verbosity.load(Ordering::Relaxed)
    }

    pub fn set_verbosity(&self, level: u8) {
        // Relaxed: the level guards no other memory.
        self.verbosity.store(level, Ordering::Relaxed);
    }

    /// Logs a line if the verbosity is at least `level`.
    pub fn log(&self, level: u8, text: std::fmt::Arguments<'_>) {
        if self.verbosity() >= level {
            log::write(text);
        }
    }

    /// Flushes the store at the time `exptime`. If that is now, resolves when the memory has been
    /// reclaimed. Only the latest flush counts: it cancels an earlier one that is still delayed.
    pub async fn flush(self: &Arc<Self>, exptime: i64) {
        match Expiry::of(exptime) {
            Expiry::Never | Expiry::Past => self.flush_after(Duration::ZERO).await,
            Expiry::In(time) => self.flush_after(time).await,
        }
    }

    /// Flushes the store after `time`, as [`flush`](Self::flush) does.
    pub async fn flush_after(self: &Arc<Self>, time: Duration) {
        let later = (!time.is_zero()).then_some(time);
        self.delay_flush(later);
        if later.is_none() {
            self.store.flush();
            self.crawl(Store::drop_flushed).await;
        }
    }

    /// Replaces the delayed flush by one after `time`, or by none.
    fn delay_flush(self: &Arc<Self>, time: Option<Duration>) {
        let later = time.map(|time| {
            let (server, due) = (Arc::downgrade(self), Instant::now() + time);
            let task = tokio::spawn(async move {
                timers::sleep(time).await;
                if let Some(server) = server.upgrade() {
                    server.store.flush();
                    // Afterwards: a save in between finds either the flush or its time.
                    server.delayed_flush.lock().take_if(|flush| flush.due == due);
                    // In a task of its own: a later `flush_all` aborts the delayed task.
                    tokio::spawn(async move { server.crawl(Store::drop_flushed).await });
                }
            });
            DelayedFlush { due, task: task.abort_handle() }
        });
        if let Some(before) = std::mem::replace(&mut *self.delayed_flush.lock(), later) {
            before.task.abort();
        }
    }

    /// Returns the time until a delayed flush, if there is one.
    pub fn flush_left(&self) -> Option<Duration> {
        let delayed = self.delayed_flush.lock();
        delayed.as_ref().map(|flush| flush.due.saturating_duration_since(Instant::now()))
    }

    /// Removes all expired values, and resolves afterwards.
    pub async fn reap_expired(self: &Arc<Self>) {
        self.crawl(Store::reap_expired).await;
    }

    /// Runs `visit` on a blocking thread, as it may take long with many values, and resolves when
    /// `visit` has returned. One crawl runs at a time.
    async fn crawl(self: &Arc<Self>, visit: fn(&Store)) {
        let alone = Arc::clone(&self.crawl_lock).lock_owned().await;
        let server = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            visit(&server.store);
            drop(alone);
        });
        // There is no result to return; an error means that the server is shutting down.
        let _ = done.await;
    }

    /// Returns the lines of `last`, if they are recent, and otherwise those that `walk` returns. It
    /// runs as a crawl on a blocking thread. `None` if the server is shutting down.
    pub async fn stat_lines(
        self: &Arc<Self>,
        last: fn(&Self) -> &Recent<StatLines>,
        walk: fn(&Self) -> StatLines,
    ) -> Option<Arc<StatLines>> {
        let alone = Arc::clone(&self.crawl_lock).lock_owned().await;
        if let Some(recent) = last(self).at(Instant::now()) {
            return Some(recent);
        }
        let server = Arc::clone(self);
        let walk = tokio::task::spawn_blocking(move || {
            let lines = Arc::new(walk(&server));
            last(&server).set(Instant::now(), &lines);
            drop(alone);
            lines
        });
        walk.await.ok()
    }

    /// Returns a permit for one more connection, unless `connections_max` connections are open.
    pub fn try_admit(self: &Arc<Self>) -> Option<ConnectionPermit> {
        // Relaxed: the count bounds the connections, and guards no other memory.
        if self.connections.fetch_add(1, Ordering::Relaxed) >= self.settings.connections_max {
            drop(ConnectionPermit(Arc::clone(self)));
            self.counters.count(Counter::RejectedConnections);
            return None;
        }
        Some(ConnectionPermit(Arc::clone(self)))
    }

    /// Resolves when all connections have closed, or after [`CLOSE_TIME_MAX`].
    pub async fn wait_until_idle(&self) {
        let _ = timers::timeout(CLOSE_TIME_MAX, async {
            while self.connections() > 0 {
                self.idle.notified().await;
            }
        })
        .await;
    }
}

/// A permit for one open connection, returned on drop.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<Server>);

impl ConnectionPermit {
    pub fn server(&self) -> &Arc<Server> {
        &self.0
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        // Relaxed: the count guards no other memory.
        if self.0.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.idle.notify_one();
        }
    }
}
