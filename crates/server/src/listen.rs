//! Where clients come in: addresses, a unix socket, and whose door it is.
//!
//! `-l` takes what memcached's takes: `host`, `host:port`, `[v6]:port`, and a tag in front, which names the tenant that comes in there:
//! `tag_shop_:127.0.0.1:11212`, or as later memcacheds write it, `tag[shop]:127.0.0.1:11212`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::net::{lookup_host, TcpListener};

use crate::config::check_name;
use crate::scope::Scope;
use crate::stream::Stream;

/// A door that is to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Whose it is; none: everybody's.
    pub tenant: Option<String>,
    pub place: Place,
}

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `host:port`
    Tcp(String),
    /// A socket of this path, which these permission bits guard.
    Unix { path: PathBuf, mode: u32 },
}

/// An open door.
#[derive(Debug)]
pub struct Listener {
    /// What those who come in may reach.
    pub scope: Scope,
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

impl Listen {
    /// Reads one `-l`; `port` is for those that name none.
    ///
    /// # Errors
    ///
    /// A sentence: what is wrong with it.
    pub fn parse(text: &str, port: u16, delimiter: u8) -> Result<Self, String> {
        let (tenant, place) = match split_tag(text) {
            None => (None, text),
            Some((tag, place)) => {
                check_name(tag, delimiter).map_err(|why| format!("-l: the tag in {text:?}: {why}"))?;
                (Some(tag.to_owned()), place)
            }
        };
        Ok(Self { tenant, place: Place::Tcp(address("-l", place, port)?) })
    }

    /// Opens it: one listener for each address that the host has.
    ///
    /// # Errors
    ///
    /// A sentence: which place, and why not.
    pub async fn open(&self, delimiter: u8) -> Result<Vec<Listener>, String> {
        let scope = self.tenant.as_deref().map_or_else(Scope::default, |tenant| Scope::of(tenant, delimiter));
        let sockets = match &self.place {
            Place::Tcp(address) => tcp(address).await.map_err(|why| {
                format!(
                    "cannot listen on {address}: {why}; choose another address with -l, or port with -p (0: any free one)"
                )
            })?,
            #[cfg(unix)]
            Place::Unix { path, mode } => {
                let socket = unix(path, *mode)
                    .map_err(|why| format!("cannot listen on {}: {why}; choose another path with -s", path.display()))?;
                vec![socket]
            }
            #[cfg(not(unix))]
            Place::Unix { .. } => return Err("-s: there are no unix sockets on this system".into()),
        };
        Ok(sockets.into_iter().map(|socket| Listener { scope: scope.clone(), socket }).collect())
    }
}

impl Listener {
    /// Waits for the next client, and says who it is.
    ///
    /// # Errors
    ///
    /// The system has no descriptor left, or the client has left again.
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

    /// Where it really is, if it is an address.
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
            // Somebody may have removed it; then nothing is left to do.
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

/// As memcached, in the place of a socket that an earlier server left behind; but not of one at which somebody answers.
///
/// Nobody is let in before the mode is set: until then, a client that came early waits in the queue.
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

/// `tag_NAME_:place` or `tag[NAME]:place`, to name and place.
fn split_tag(text: &str) -> Option<(&str, &str)> {
    let old = text.strip_prefix("tag_").and_then(|text| text.split_once("_:"));
    old.or_else(|| text.strip_prefix("tag[").and_then(|text| text.split_once("]:")))
}

/// `host`, `host:port`, `[v6]`, `[v6]:port` or plain `v6`, to `host:port`.
pub fn address(flag: &str, text: &str, port: u16) -> Result<String, String> {
    let is_v6 = |host: &str| host.parse::<std::net::Ipv6Addr>().is_ok();
    let (host, own_port) = if is_v6(text) {
        (format!("[{text}]"), None)
    } else if let Some((host, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        (format!("[{host}]"), rest.strip_prefix(':'))
    } else {
        match text.split_once(':') {
            Some((host, own_port)) => (host.to_owned(), Some(own_port)),
            None => (text.to_owned(), None),
        }
    };
    let port = match own_port {
        None => port,
        Some(own_port) => own_port.parse().map_err(|_| format!("{flag}: {own_port:?} in {text:?} is not a port"))?,
    };
    if host.is_empty() {
        return Err(format!("{flag}: {text:?} has no address"));
    }
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_read() {
        for (text, tenant, place) in [
            ("127.0.0.1", None, "127.0.0.1:11211"),
            ("tag_shop_:127.0.0.1:7", Some("shop"), "127.0.0.1:7"),
            ("tag[shop]:[::1]:7", Some("shop"), "[::1]:7"),
            ("tag_my_shop_:localhost", Some("my_shop"), "localhost:11211"),
            ("tagged.example", None, "tagged.example:11211"),
        ] {
            let listen = Listen::parse(text, 11211, b':').unwrap();
            assert_eq!(listen, Listen { tenant: tenant.map(Into::into), place: Place::Tcp(place.into()) }, "{text}");
        }
        for text in ["tag__:localhost", "tag[a:b]:localhost", "tag_a_:localhost:x", ""] {
            assert!(Listen::parse(text, 1, b':').unwrap_err().starts_with("-l: "), "{text}");
        }
    }
}
