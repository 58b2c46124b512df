//! The handshake of TLS, before a connection is served.
//!
//! A change must ensure that a client takes a connection of its tenant only after its handshake:
//! one without the certificate that is required could otherwise use up the tenant's limit.

use std::io;

use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

use super::end::end_after_answer;
use crate::counters::Counter;
use crate::net::input::Input;
use crate::net::stream::Stream;
use crate::net::tls::Tls;
use crate::server::{Server, CLOSE_TIME_MAX};
use crate::store::namespace::Namespace;
use crate::timers;
use crate::traffic::connection_permit::TenantPermit;

/// Does the handshake of TLS, and counts the connection. Returns the stream and the permit of the
/// namespace's tenant; no permit if a login is required.
///
/// # Errors
///
/// The client has failed or was too slow, the tenant has too many connections, or the server shuts
/// down.
pub(super) async fn shake_hands(
    server: &Server,
    tls: &Tls,
    stream: Stream,
    namespace: &Namespace,
    mut closing: watch::Receiver<()>,
) -> io::Result<(Stream, Option<TenantPermit>)> {
    let shaken = tokio::select! {
        // No message is ever sent: the sender is dropped when the server shuts down.
        _ = closing.changed() => return Err(io::Error::other("the server shuts down")),
        shaken = tls.accept(stream) => shaken,
    };
    let counter = if shaken.is_ok() { Counter::SslNewSessions } else { Counter::SslHandshakeErrors };
    server.counters.count(counter);
    let stream = shaken?;
    let permit = match server.settings.users {
        Some(_) => None,
        None => match server.store.admit_connection(namespace) {
            Some(permit) => Some(permit),
            // Boxed: all idle connections would hold room for it.
            None => return Err(Box::pin(refuse(server, stream)).await),
        },
    };
    server.counters.count(Counter::TotalConnections);
    Ok((stream, permit))
}

/// Tells a client above its tenant's limit of connections that it is refused, and returns an error.
async fn refuse(server: &Server, mut stream: Stream) -> io::Error {
    server.counters.count(Counter::RejectedConnections);
    // An error means that the client has left, or does not read.
    if let Ok(Ok(())) = timers::timeout(CLOSE_TIME_MAX, stream.write_all(TenantPermit::REFUSAL)).await {
        let _ = end_after_answer(&mut stream, &mut Input::default(), &mut 0).await;
    }
    io::Error::other("too many open connections of this tenant")
}
