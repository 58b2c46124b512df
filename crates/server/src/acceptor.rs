//! The acceptor: opens listeners, hands connections to worker threads, and closes them at the end.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::counters::Counter;
use crate::net::descriptors::SpareDescriptor;
use crate::net::listener::Listener;
use crate::net::stream::Stream;
use crate::server::Server;
use crate::settings::Settings;
#[cfg(unix)]
use crate::start;
use crate::workers::RoundRobin;
use crate::{banner, connection, http, reload};

/// Pause before the next `accept` after one failed, for example because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The open listeners.
#[derive(Debug)]
pub struct Listeners {
    cache: Vec<Listener>,
    http: Option<TcpListener>,
}

/// Serves until SIGTERM, SIGINT or SIGUSR1; where there are no unix signals, until Ctrl-C. SIGHUP
/// reads the files of the settings again.
///
/// # Errors
///
/// A message for the user, if an address cannot be listened on, or the cache cannot be created.
pub async fn serve(settings: Settings, round_robin: RoundRobin) -> Result<(), String> {
    let stopped = stopped()?;
    let (server, listeners) = open(settings).await?;
    #[cfg(unix)]
    let _pid_file = server.settings.pid_file.as_deref().map(start::PidFile::write).transpose()?;
    banner::print(&server);
    #[cfg(unix)]
    start::end_start(&server.settings);
    tokio::spawn(reload::on_hangup(Arc::clone(&server))?);
    run(&server, listeners, round_robin, stopped).await;
    Ok(())
}

/// Opens all listeners. Clients wait in the listeners' queues until [`run`] accepts them.
pub async fn open(settings: Settings) -> Result<(Arc<Server>, Listeners), String> {
    let mut cache = Vec::new();
    for listen in &settings.listen {
        cache.extend(Listener::open(listen, settings.delimiter).await?);
    }
    let http = match &settings.http {
        Some(address) => Some(TcpListener::bind(address).await.map_err(|why| {
            format!("cannot listen for HTTP on {address}: {why}; choose another address or port with --http")
        })?),
        None => None,
    };
    let mut server = Server::new(settings)?;
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

/// Returns a future that resolves on SIGTERM, SIGINT, or SIGUSR1, by which memcached is asked to end
/// gracefully: here all three do.
#[cfg(unix)]
fn stopped() -> Result<impl Future<Output = ()>, String> {
    use tokio::signal::unix::{signal, SignalKind};
    let wait_for = |kind| signal(kind).map_err(|why| format!("cannot wait for signals: {why}"));
    let (mut terminate, mut interrupt) = (wait_for(SignalKind::terminate())?, wait_for(SignalKind::interrupt())?);
    let mut graceful = wait_for(SignalKind::user_defined1())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = graceful.recv() => {}
        }
    })
}

/// Returns a future that resolves on Ctrl-C.
#[cfg(not(unix))]
fn stopped() -> Result<impl Future<Output = ()>, String> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// Accepts clients of one listener for ever; each is served on the next worker thread.
async fn accept(server: Arc<Server>, listener: Listener, round_robin: Arc<RoundRobin>, closing: watch::Receiver<()>) {
    let mut spare = SpareDescriptor::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match server.try_admit() {
                Some(permit) => {
                    server.log(1, format_args!("{peer} connected"));
                    let namespace = listener.namespace.clone();
                    let closing = closing.clone();
                    // A stream is registered with the event loop of the thread that accepted it,
                    // and must be registered with the worker's instead.
                    let moved = stream.detach().map(|stream| {
                        round_robin.pick().spawn(async move {
                            if let Ok(stream) = stream.attach() {
                                connection::serve(permit, stream, namespace, closing).await;
                            }
                        })
                    });
                    if let Err(why) = moved {
                        server.log(1, format_args!("connection closed: {why}"));
                    }
                }
                // Not awaited: a slow client must not delay the next `accept`.
                None => drop(tokio::spawn(reject(stream))),
            },
            Err(why) if SpareDescriptor::is_needed_for(&why) && spare.release() => {
                // A timeout means that another thread took the descriptor, or the client left.
                if let Ok(Ok((stream, _))) = tokio::time::timeout(ACCEPT_PAUSE, listener.accept()).await {
                    server.counters.count(Counter::RejectedConnections);
                    let _ = tokio::time::timeout(ACCEPT_PAUSE, reject(stream)).await;
                    if let Some(clients) = spare.note_refused(Instant::now()) {
                        server.log(0, format_args!("refused {clients} clients: {why}; see -c, and ulimit -n"));
                    }
                }
                spare.reserve();
            }
            Err(why) => {
                server.log(1, format_args!("cannot accept a connection: {why}"));
                spare.reserve();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Tells a client above the limit of connections that it is refused, and closes the stream.
async fn reject(mut stream: Stream) {
    // An error means that the client has left, so the refusal cannot be delivered.
    let _ = stream.write_all(b"ERROR Too many open connections\r\n").await;
}
