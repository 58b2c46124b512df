//! The acceptor: opens listeners, hands connections to worker threads, and closes them at the end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::net::listener::Listener;
use crate::net::stream::Stream;
use crate::server::Server;
use crate::settings::Settings;
use crate::workers::Turns;
use crate::{banner, connection, http};

/// When no connection can be accepted (no file descriptors left), the next try waits so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    let (server, listeners) = open(settings).await?;
    banner::print(&server);
    run(&server, listeners, turns, stopped).await;
    Ok(())
}

/// A server that listens, and accepts nobody yet.
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

/// Lets clients in until `stopped` resolves; then lets the commands that run end, within [`CLOSE_TIME_MAX`].
pub async fn run(server: &Arc<Server>, listeners: Listeners, turns: Turns, stopped: impl Future<Output = ()>) {
    let turns = Arc::new(turns);
    let (close, closing) = watch::channel(());
    let mut doors = JoinSet::new();
    for listener in listeners.cache {
        doors.spawn(accept(Arc::clone(server), listener, Arc::clone(&turns), closing.clone()));
    }
    if let Some(listener) = listeners.http {
        doors.spawn(http::serve(Arc::clone(server), listener, closing.clone()));
    }
    stopped.await;
    doors.shutdown().await;
    drop(close);
    server.wait_until_idle().await;
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
                    let namespace = listener.namespace.clone();
                    let closing = closing.clone();
                    let moved = stream.leave().map(|stream| {
                        turns.next().spawn(async move {
                            if let Ok(stream) = stream.arrive() {
                                connection::serve(seat, stream, namespace, closing).await;
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
