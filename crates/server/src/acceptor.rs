//! The acceptor: opens listeners, hands connections to worker threads, and closes them at the end.
//!
//! One task accepts for each listener and hands the socket, detached from its event loop, to the
//! next worker. A client above a limit of connections gets an error instead of silence.
//!
//! A change must ensure that no client waits without an answer, and that no client delays the next
//! `accept`, except by a bounded refusal while the process is out of file descriptors.

use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::counters::Counter;
use crate::net::descriptors::{self, SpareDescriptor};
use crate::net::listener::{bind_first, Listener};
use crate::net::stream::Stream;
use crate::server::{Server, Stop};
use crate::settings::Settings;
use crate::snapshot::SaveFile;
use crate::traffic::connection_permit::TenantPermit;
use crate::workers::RoundRobin;
use crate::{banner, connection, http, reload, snapshot, timers};
#[cfg(unix)]
use crate::{service_manager, start};

/// Pause before the next `accept` after one failed, and the bound on each step of the refusal of a
/// client for whom no file descriptor is left. Without the pause the loop would keep a processor
/// busy for as long as each `accept` fails.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The refusal of a client above `-c`, with memcached's text.
const SERVER_IS_FULL: &[u8] = b"ERROR Too many open connections\r\n";

/// The open listeners.
#[derive(Debug)]
pub struct Listeners {
    cache: Vec<Listener>,
    http: Option<TcpListener>,
}

/// The last steps of a server. Until then it keeps its PID file, and the lock of `--save-file`.
#[derive(Debug)]
pub struct Ending {
    server: Arc<Server>,
    how: Stop,
    /// Dropped before the lock of `save_file`, after which a second server may write its own.
    #[cfg(unix)]
    _pid_file: Option<start::PidFile>,
    save_file: Option<Arc<SaveFile>>,
}

impl Ending {
    /// Saves the values, if there is a file for them, and SIGTERM, SIGUSR1 or `shutdown graceful`
    /// has ended the server. The workers must have ended: what a client changes after the save
    /// began would be lost, although it was answered.
    ///
    /// # Errors
    ///
    /// A message for the user, if the values cannot be saved.
    pub fn finish(self) -> Result<(), String> {
        match (self.how, &self.save_file) {
            (Stop::Save, Some(file)) => snapshot::save_and_log(&self.server, file),
            _ => Ok(()),
        }
    }
}

/// Serves until SIGTERM, SIGINT, SIGUSR1 or the command `shutdown`; where there are no unix
/// signals, until Ctrl-C or `shutdown`. SIGHUP reads the files of the settings again. Values are
/// loaded before the first client is accepted. The caller ends the workers, and then finishes the
/// [`Ending`], which saves the values.
///
/// # Errors
///
/// A message for the user, if an address cannot be listened on, the cache cannot be created, or a
/// file of the settings cannot be used.
pub async fn serve(settings: Settings, round_robin: RoundRobin) -> Result<Ending, String> {
    // Before the first step that may take long: without a handler, SIGHUP ends the process.
    let hangups = reload::Hangups::new()?;
    let mut signal = pin!(stop_signal()?);
    let inherited = inherited()?;
    let (connections_max, threads, given) = (settings.connections_max, settings.threads, inherited.len());
    let (server, listeners) = match inherited.is_empty() {
        true => {
            descriptors::allow(connections_max, threads, settings.listen.len(), 0)?;
            open(settings).await?
        }
        false => {
            let restricted = settings.listen.iter().find_map(|listen| listen.tenant.as_deref());
            if let Some(tenant) = restricted {
                return Err(format!(
                    "-l: cannot restrict clients to the tenant {tenant}, as the service manager has opened the sockets \
                     (LISTEN_FDS); remove the tag, or the manager's socket"
                ));
            }
            open_with(Server::new(settings)?, inherited).await?
        }
    };
    // Again: a host name may have several addresses.
    descriptors::allow(connections_max, threads, listeners.cache.len(), given)?;
    // Locked until the values are saved, and before the file of `-P` is written: a second server
    // must not replace the first one's file.
    let save_file = on_blocking_thread(&server, lock_save_file).await??.map(Arc::new);
    #[cfg(unix)]
    let pid_file = server.settings.pid_file.as_deref().map(start::PidFile::write).transpose()?;
    let mut ending = Ending {
        server: Arc::clone(&server),
        how: Stop::Discard,
        #[cfg(unix)]
        _pid_file: pid_file,
        save_file,
    };
    // The last step that can fail: it removes the file of the values.
    if let Some(file) = &ending.save_file {
        if !load(&server, file, signal.as_mut()).await? {
            return Ok(ending);
        }
    }
    banner::print(&server);
    #[cfg(unix)]
    start::end_start(&server.settings);
    tokio::spawn(reload::on_hangup(hangups, Arc::clone(&server)));
    #[cfg(unix)]
    notify(&server, service_manager::State::Ready);
    let stopped = async {
        ending.how = tokio::select! {
            how = signal => how,
            how = server.stopped() => how,
        };
    };
    run(&server, listeners, round_robin, stopped).await;
    #[cfg(unix)]
    notify(&server, service_manager::State::Stopping);
    server.end();
    Ok(ending)
}

/// Loads the values of `file`, if there is one, and removes it; returns whether the server is to
/// serve. After a `signal` during the load it is not: no client has changed a value yet, so the
/// file stays as it is, for the next start.
///
/// # Errors
///
/// A message for the user, if the file cannot be used or removed.
async fn load(
    server: &Arc<Server>,
    file: &Arc<SaveFile>,
    mut signal: Pin<&mut impl Future<Output = Stop>>,
) -> Result<bool, String> {
    let of_load = Arc::clone(file);
    let loaded = on_blocking_thread(server, move |server| snapshot::load_and_log(server, &of_load)).await??;
    let Some(loaded) = loaded else { return Ok(true) };
    // The runtime looks for signals when no task is ready.
    tokio::task::yield_now().await;
    let is_stopped = poll_fn(|cx| Poll::Ready(signal.as_mut().poll(cx).is_ready())).await;
    if is_stopped {
        let shown = file.path().display();
        server.log(0, format_args!("--save-file: {shown}: left as it is, as a signal has ended the start"));
        return Ok(false);
    }
    let (file, flush_due) = (Arc::clone(file), loaded.flush_due);
    on_blocking_thread(server, move |server| snapshot::remove_and_log(server, &file, loaded)).await??;
    if let Some(due) = flush_due {
        // If it is due, this call returns when the values are gone: no client may see them.
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            server.log(0, format_args!("flushes the loaded values: the delay of a flush_all is over"));
        }
        server.flush_after(left).await;
    }
    Ok(true)
}

/// Tells the service manager a state, if there is one.
#[cfg(unix)]
fn notify(server: &Server, state: service_manager::State) {
    if let Err(why) = service_manager::notify(state) {
        server.log(0, format_args!("{why}"));
    }
}

/// Runs `work`, which waits for disks, where no event loop waits for it.
///
/// # Errors
///
/// A sentence, if `work` panics.
async fn on_blocking_thread<T: Send + 'static>(
    server: &Arc<Server>,
    work: impl FnOnce(&Server) -> T + Send + 'static,
) -> Result<T, String> {
    let server = Arc::clone(server);
    tokio::task::spawn_blocking(move || work(&server)).await.map_err(|why| why.to_string())
}

/// Locks the file of `--save-file`, if there is one.
fn lock_save_file(server: &Server) -> Result<Option<SaveFile>, String> {
    server.settings.save_file.as_deref().map(SaveFile::lock).transpose()
}

/// Returns the listeners that the service manager has opened.
#[cfg(unix)]
fn inherited() -> Result<Vec<Listener>, String> {
    service_manager::listeners()?.into_iter().map(Listener::inherit).collect()
}

/// Elsewhere, there is no such manager.
#[cfg(not(unix))]
fn inherited() -> Result<Vec<Listener>, String> {
    Ok(Vec::new())
}

/// Opens all listeners. Clients wait in the listeners' queues until [`run`] accepts them.
pub async fn open(settings: Settings) -> Result<(Arc<Server>, Listeners), String> {
    let server = Server::new(settings)?;
    let mut cache = Vec::new();
    for listen in &server.settings.listen {
        cache.extend(Listener::open(listen, server.settings.delimiter).await?);
    }
    open_with(server, cache).await
}

/// Gives the server these listeners, and opens the one for HTTP.
async fn open_with(mut server: Server, cache: Vec<Listener>) -> Result<(Arc<Server>, Listeners), String> {
    let http = match &server.settings.http {
        Some(address) => Some(bind_first(address).await.map_err(|why| {
            format!("cannot listen for HTTP on {address}: {why}; choose another address or port with --http")
        })?),
        None => None,
    };
    server.addresses = cache.iter().filter_map(Listener::address).collect();
    server.http = http.as_ref().and_then(|listener| listener.local_addr().ok());
    Ok((Arc::new(server), Listeners { cache, http }))
}

/// Accepts clients until `stopped` resolves; then closes the listeners, and waits up to
/// [`CLOSE_TIME_MAX`](crate::server::CLOSE_TIME_MAX) for the commands that still run.
pub async fn run(
    server: &Arc<Server>,
    listeners: Listeners,
    round_robin: RoundRobin,
    stopped: impl Future<Output = ()>,
) {
    let round_robin = Arc::new(round_robin);
    let (close, closing) = watch::channel(());
    let mut acceptors = JoinSet::new();
    for listener in listeners.cache {
        acceptors.spawn(accept(Arc::clone(server), listener, Arc::clone(&round_robin), closing.clone()));
    }
    if let Some(listener) = listeners.http {
        acceptors.spawn(http::serve(Arc::clone(server), listener, closing.clone()));
    }
    stopped.await;
    acceptors.shutdown().await;
    // Notifies all connections: HTTP connections close at once, the others after they have served
    // the input that they had received.
    drop(close);
    server.wait_until_idle().await;
}

/// Returns a future that resolves on SIGTERM, SIGINT, or SIGUSR1. All three end the server
/// gracefully; SIGINT, by which a user at a terminal ends it, does not save the values.
#[cfg(unix)]
fn stop_signal() -> Result<impl Future<Output = Stop>, String> {
    use tokio::signal::unix::{signal, SignalKind};
    let wait_for = |kind| signal(kind).map_err(|why| format!("cannot wait for signals: {why}"));
    let (mut terminate, mut interrupt) = (wait_for(SignalKind::terminate())?, wait_for(SignalKind::interrupt())?);
    let mut graceful = wait_for(SignalKind::user_defined1())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => Stop::Save,
            _ = interrupt.recv() => Stop::Discard,
            _ = graceful.recv() => Stop::Save,
        }
    })
}

/// Returns a future that resolves on Ctrl-C.
#[cfg(not(unix))]
fn stop_signal() -> Result<impl Future<Output = Stop>, String> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
        Stop::Discard
    })
}

/// Accepts clients of one listener for ever; each is served on the next worker thread.
async fn accept(server: Arc<Server>, listener: Listener, round_robin: Arc<RoundRobin>, closing: watch::Receiver<()>) {
    let mut spare = SpareDescriptor::new();
    let listed = server.open_connections.add_listener(listener.shown_address(), 0);
    server.log(2, format_args!("<{} server listening on {}", listed.number(), listed.peer()));
    loop {
        match listener.accept().await {
            Ok((stream, addresses)) => match server.try_admit() {
                Some(permit) => {
                    let (namespace, is_plain) = (listener.namespace.clone(), listener.is_plain);
                    // Before a login, a connection belongs to no tenant. With TLS, it takes a
                    // permit and is counted after its handshake.
                    let has_handshake = !is_plain && server.tls.is_some();
                    let is_open = server.settings.users.is_none() && !has_handshake;
                    let tenant_permit = is_open.then(|| server.store.admit_connection(&namespace));
                    if let Some(None) = tenant_permit {
                        server.counters.count(Counter::RejectedConnections);
                        drop(tokio::spawn(reject(stream, TenantPermit::REFUSAL)));
                        continue;
                    }
                    if !has_handshake {
                        server.counters.count(Counter::TotalConnections);
                    }
                    let owner = (namespace, tenant_permit.flatten());
                    server.store.update_clock();
                    let entry = server.open_connections.add_client(addresses, server.store.now_seconds());
                    let protocol = server.settings.protocol.of_connection();
                    let (number, peer) = (entry.number(), entry.peer());
                    server.log(1, format_args!("<{number} new {protocol} client connection from {peer}"));
                    entry.publish_begin(server.store.watchers());
                    let closing = closing.clone();
                    // A stream is registered with the event loop of the thread that accepted it,
                    // and must be registered with the worker's instead.
                    let moved = stream.detach().map(|stream| {
                        round_robin.pick().spawn(async move {
                            if let Ok(stream) = stream.attach() {
                                connection::serve(permit, entry, (stream, is_plain), owner, closing).await;
                            }
                        })
                    });
                    if let Err(why) = moved {
                        server.log(1, format_args!("connection closed (error: {why})"));
                    }
                }
                // Not awaited: a slow client must not delay the next `accept`.
                None => drop(tokio::spawn(reject(stream, SERVER_IS_FULL))),
            },
            Err(why) if SpareDescriptor::is_needed_for(&why) && spare.release() => {
                // A timeout means that another thread took the descriptor, or the client left.
                if let Ok(Ok((stream, _))) = timers::timeout(ACCEPT_PAUSE, listener.accept()).await {
                    server.counters.count(Counter::RejectedConnections);
                    let _ = timers::timeout(ACCEPT_PAUSE, reject(stream, SERVER_IS_FULL)).await;
                    if let Some(clients) = spare.note_refused(Instant::now()) {
                        server.log(0, format_args!("refused {clients} clients: {why}; see -c, and ulimit -n"));
                    }
                }
                spare.reserve();
            }
            Err(why) => {
                server.log(1, format_args!("cannot accept a connection: {why}"));
                spare.reserve();
                timers::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Tells a client above a limit of connections that it is refused, and closes the stream.
async fn reject(mut stream: Stream, why: &'static [u8]) {
    // An error means that the client has left, so the refusal cannot be delivered.
    let _ = stream.write_all(why).await;
}
