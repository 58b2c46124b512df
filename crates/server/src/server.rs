//! Who is let in, and how everyone is sent home.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::{watch, Notify};
use tokio::task::{AbortHandle, JoinSet};

use crate::args::Settings;
use crate::arrival::Arrivals;
use crate::connection;
use crate::expiry::Expiry;
use crate::http;
use crate::listen::{Listener, Place};
use crate::prefix::Prefixes;
use crate::stash::Stash;
use crate::stats::{Counter, Counters};
use crate::store::Store;
use crate::stream::Stream;
use crate::threads::Turns;

/// After a signal, clients get this long to take the replies of commands that had begun.
pub const CLOSE_TIME_MAX: Duration = Duration::from_millis(500);

/// When no connection can be accepted (no file descriptors left), the next try waits so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The stash of pieces may hold this part of the budget, in addition to it.
const STASH_SHARE: u64 = 16;

/// What all connections share.
#[derive(Debug)]
pub struct Server {
    pub settings: Settings,
    pub store: Store,
    pub stash: Arc<Stash>,
    pub arrivals: Arc<Arrivals>,
    pub counters: Counters,
    /// What `stats detail` shows.
    pub prefixes: Prefixes,
    pub started: Instant,
    /// Where it really listens.
    pub addresses: Vec<SocketAddr>,
    /// Where it really listens for HTTP, if it does.
    pub http: Option<SocketAddr>,
    connections: AtomicU64,
    verbosity: AtomicU8,
    /// The `flush_all` that waits for its time.
    flush_later: Mutex<Option<AbortHandle>>,
    /// Who goes over all values.
    pub walking: Arc<tokio::sync::Mutex<()>>,
    /// Told when the last connection closed.
    idle: Notify,
}

/// Where clients come in.
#[derive(Debug)]
pub struct Listeners {
    cache: Vec<Listener>,
    http: Option<TcpListener>,
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
///
/// An address cannot be listened on, or the cache cannot be made.
pub async fn serve(settings: Settings, turns: Turns) -> Result<(), String> {
    let stopped = stopped()?;
    let (server, listeners) = Server::open(settings).await?;
    server.greet();
    server.run(listeners, turns, stopped).await;
    Ok(())
}

/// Resolves when the process is told to stop.
#[cfg(unix)]
fn stopped() -> Result<impl Future<Output = ()>, String> {
    use tokio::signal::unix::{signal, SignalKind};
    let wait_for = |kind| signal(kind).map_err(|why| format!("cannot wait for signals: {why}"));
    let (mut terminate, mut interrupt) = (wait_for(SignalKind::terminate())?, wait_for(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Resolves when the process is told to stop.
#[cfg(not(unix))]
fn stopped() -> Result<impl Future<Output = ()>, String> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

async fn accept(server: Arc<Server>, listener: Listener, turns: Arc<Turns>, closing: watch::Receiver<()>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match server.admit() {
                Some(seat) => {
                    server.note(1, format_args!("{peer} connected"));
                    let scope = listener.scope.clone();
                    let closing = closing.clone();
                    let moved = stream.leave().map(|stream| {
                        turns.next().spawn(async move {
                            if let Ok(stream) = stream.arrive() {
                                connection::serve(seat, stream, scope, closing).await;
                            }
                        })
                    });
                    if let Err(why) = moved {
                        server.note(1, format_args!("connection closed: {why}"));
                    }
                }
                None => drop(tokio::spawn(turn_away(stream))),
            },
            Err(why) => {
                server.note(1, format_args!("cannot accept a connection: {why}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn turn_away(mut stream: Stream) {
    // The client may be gone already; then nobody is left to be told.
    let _ = stream.write_all(b"ERROR Too many open connections\r\n").await;
}

// === impl Server ===

impl Server {
    /// A server that listens, and accepts nobody yet.
    pub async fn open(settings: Settings) -> Result<(Arc<Self>, Listeners), String> {
        let mut cache = Vec::new();
        for listen in &settings.listen {
            cache.extend(listen.open(settings.delimiter).await?);
        }
        let http = match &settings.http {
            Some(address) => Some(TcpListener::bind(address).await.map_err(|why| {
                format!("cannot listen for HTTP on {address}: {why}; choose another address or port with --http")
            })?),
            None => None,
        };
        let mut server = Self::new(settings)?;
        server.addresses = cache.iter().filter_map(Listener::address).collect();
        server.http = http.as_ref().and_then(|listener| listener.local_addr().ok());
        Ok((Arc::new(server), Listeners { cache, http }))
    }

    /// Lets clients in until `stopped` resolves; then lets the commands that run end, within [`CLOSE_TIME_MAX`].
    pub async fn run(self: &Arc<Self>, listeners: Listeners, turns: Turns, stopped: impl Future<Output = ()>) {
        let turns = Arc::new(turns);
        let (close, closing) = watch::channel(());
        let mut doors = JoinSet::new();
        for listener in listeners.cache {
            doors.spawn(accept(Arc::clone(self), listener, Arc::clone(&turns), closing.clone()));
        }
        if let Some(listener) = listeners.http {
            doors.spawn(http::serve(Arc::clone(self), listener, closing.clone()));
        }
        stopped.await;
        doors.shutdown().await;
        drop(close);
        self.wait_until_idle().await;
    }

    fn new(settings: Settings) -> Result<Self, String> {
        let stash = Arc::new(Stash::new(settings.budget.get() / STASH_SHARE));
        let store = Store::new(&settings, &stash)?;
        Ok(Self {
            arrivals: Arrivals::new(store.runtime(), settings.evict, settings.item_bytes_max),
            store,
            stash,
            counters: Counters::default(),
            prefixes: Prefixes::new(settings.delimiter),
            started: Instant::now(),
            addresses: Vec::new(),
            http: None,
            connections: AtomicU64::new(0),
            verbosity: AtomicU8::new(settings.verbosity),
            flush_later: Mutex::default(),
            walking: Arc::default(),
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
    pub fn note(&self, level: u8, text: std::fmt::Arguments<'_>) {
        if self.verbosity() >= level {
            // A closed stderr is no reason to stop serving.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Empties the store now, which is done when this resolves, or when `exptime` comes. The last one counts: one that was waiting for
    /// its time is forgotten.
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
        if let Some(before) = std::mem::replace(&mut *self.flush_later.lock(), later) {
            before.abort();
        }
        if is_now {
            self.flush_now().await;
        }
    }

    async fn flush_now(self: &Arc<Self>) {
        self.store.flush();
        self.walk(Store::drop_flushed).await;
    }

    /// Lets go of every value whose time is over.
    pub async fn expire_all(self: &Arc<Self>) {
        self.walk(Store::expire_all).await;
    }

    /// Goes over all values, which takes long where there are many: on a thread that serves nobody, one walk at a time.
    async fn walk(self: &Arc<Self>, walk: fn(&Store)) {
        let alone = Arc::clone(&self.walking).lock_owned().await;
        let server = Arc::clone(self);
        let walked = tokio::task::spawn_blocking(move || {
            walk(&server.store);
            drop(alone);
        });
        // There is no answer; an error says that the server closes.
        let _ = walked.await;
    }

    fn admit(self: &Arc<Self>) -> Option<Seat> {
        self.counters.count(Counter::TotalConnections);
        // Relaxed: a count that bounds, and guards no other memory.
        if self.connections.fetch_add(1, Ordering::Relaxed) >= self.settings.connections_max {
            drop(Seat(Arc::clone(self)));
            self.counters.count(Counter::RejectedConnections);
            return None;
        }
        Some(Seat(Arc::clone(self)))
    }

    async fn wait_until_idle(&self) {
        let _ = tokio::time::timeout(CLOSE_TIME_MAX, async {
            while self.connections() > 0 {
                self.idle.notified().await;
            }
        })
        .await;
    }

    /// Says what is served, and how to talk to it.
    fn greet(&self) {
        let settings = &self.settings;
        let mut places: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let mut reach = self.addresses.first().map(|first| format!("{} {}", first.ip(), first.port()));
        for listen in &settings.listen {
            if let Place::Unix { path, .. } = &listen.place {
                places.push(path.display().to_string());
                reach.get_or_insert_with(|| format!("-U {}", path.display()));
            }
        }
        let (delimiter, limited) = (char::from(settings.delimiter), settings.limits.len());
        let text = format!(
            "lowwater-server {version}, memcached text protocol on {places}\n\
             memory   {memory} MiB for all tenants, items up to {item} bytes; {connections} connections, {threads} threads\n\
             tenants  a key's tenant is what stands before its first '{delimiter}', else \"default\"; {limited} with limits\n\
             try      printf 'set team{delimiter}greeting 0 0 5\\r\\nhello\\r\\nget team{delimiter}greeting\\r\\nstats tenants\\r\\nquit\\r\\n' | nc {reach}\n{http}",
            http = self.http.map_or(String::new(), |http| format!("http     http://{http}/ and {http}/metrics\n")),
            version = env!("CARGO_PKG_VERSION"),
            places = places.join(" "),
            memory = settings.budget.get() >> 20,
            item = settings.item_bytes_max,
            connections = settings.connections_max,
            threads = settings.threads,
            reach = reach.unwrap_or_default(),
        );
        let mut stdout = std::io::stdout();
        // Nobody may be reading; the clients do not care.
        let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    }
}

/// A connection's right to be here; given back when it is dropped.
#[derive(Debug)]
pub struct Seat(Arc<Server>);

impl Seat {
    pub fn server(&self) -> &Arc<Server> {
        &self.0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Relaxed: as in `admit`.
        if self.0.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.idle.notify_one();
        }
    }
}
