//! Listeners: open sockets that accept clients, each with the namespace of its clients.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::net::{lookup_host, TcpListener};

use super::stream::Stream;
use crate::settings::listen_address::{Endpoint, ListenAddress};
use crate::store::namespace::Namespace;

/// An open socket that accepts clients.
#[derive(Debug)]
pub struct Listener {
    /// The keys that its clients can access.
    pub namespace: Namespace,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix {
        listener: UnixListener,
        path: PathBuf,
    },
}

impl Listener {
    /// Opens a listener for each address that the host name of `listen` resolves to.
    ///
    /// # Errors
    ///
    /// A sentence with the endpoint and the reason.
    pub async fn open(listen: &ListenAddress, delimiter: u8) -> Result<Vec<Self>, String> {
        let namespace =
            listen.tenant.as_deref().map_or_else(Namespace::default, |tenant| Namespace::of_tenant(tenant, delimiter));
        let sockets = match &listen.endpoint {
            Endpoint::Tcp(address) => tcp(address).await.map_err(|why| {
                format!(
                    "cannot listen on {address}: {why}; choose another address with -l, or port with -p (0: any free one)"
                )
            })?,
            #[cfg(unix)]
            Endpoint::Unix { path, mode } => {
                let socket = unix(path, *mode)
                    .map_err(|why| format!("cannot listen on {}: {why}; choose another path with -s", path.display()))?;
                vec![socket]
            }
            #[cfg(not(unix))]
            Endpoint::Unix { .. } => return Err("-s: there are no unix sockets on this system".into()),
        };
        Ok(sockets.into_iter().map(|socket| Self { namespace: namespace.clone(), socket }).collect())
    }

    /// Waits for the next client, and returns its stream and address.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor left, or the client has disconnected again.
    pub async fn accept(&self) -> io::Result<(Stream, String)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                listener.accept().await.map(|(stream, peer)| (Stream::Tcp(stream), peer.to_string()))
            }
            #[cfg(unix)]
            Socket::Unix { listener, path } => {
                listener.accept().await.map(|(stream, _)| (Stream::Unix(stream), path.display().to_string()))
            }
        }
    }

    /// Returns the address that the listener is bound to; `None` for a unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            #[cfg(unix)]
            Socket::Unix { .. } => None,
        }
    }
}

#[cfg(unix)]
impl Drop for Socket {
    fn drop(&mut self) {
        if let Self::Unix { path, .. } = self {
            // An error means that the file was removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn tcp(address: &str) -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::new();
    for address in lookup_host(address).await? {
        sockets.push(Socket::Tcp(TcpListener::bind(address).await?));
    }
    Ok(sockets)
}

/// Opens a unix socket. As in memcached, a socket file that an earlier server left behind is
/// replaced, but not one on which a server still listens.
///
/// No client is accepted before the permission bits are set: a client that connects earlier waits
/// in the queue.
#[cfg(unix)]
fn unix(path: &std::path::Path, mode: u32) -> io::Result<Socket> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    let socket = Socket::Unix { listener: UnixListener::bind(path)?, path: path.to_owned() };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(socket)
}
