//! Listeners: open sockets that accept clients, each with the namespace of its clients.
//!
//! A namespace at the listener restricts clients without a login: a container gets its own port.
//!
//! A change must ensure that a client of such a port cannot leave its namespace.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
#[cfg(unix)]
use std::path::{Path, PathBuf};

use tokio::net::{lookup_host, TcpListener, TcpSocket};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};

use super::stream::Stream;
use crate::connections::Addresses;
use crate::settings::listen_address::{Endpoint, ListenAddress};
use crate::store::namespace::Namespace;

/// The most clients that wait to be accepted at one TCP address.
const BACKLOG: u32 = 128;
/// The most free ports that are tried for a host name with several addresses.
const FREE_PORTS_TRIED: usize = 16;

/// An open socket that accepts clients.
#[derive(Debug)]
pub struct Listener {
    /// The keys that its clients can access.
    pub namespace: Namespace,
    /// Whether the clients of this listener use no TLS, even if the server has TLS.
    pub is_plain: bool,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix {
        listener: UnixListener,
        path: PathBuf,
        /// The file that this server has created, and removes when the socket is dropped.
        own: Option<FileId>,
    },
}

/// The device and the number of a file, which a later file at the same path does not have while
/// the socket is open.
#[cfg(unix)]
type FileId = (u64, u64);

impl Listener {
    /// Opens a listener for each address that the host name of `listen` resolves to.
    ///
    /// # Errors
    ///
    /// A sentence with the endpoint and the reason.
    pub async fn open(listen: &ListenAddress, delimiter: u8) -> Result<Vec<Self>, String> {
        let namespace =
            listen.tenant.as_deref().map_or_else(Namespace::default, |tenant| Namespace::of_tenant(tenant, delimiter));
        let sockets: Vec<_> = match &listen.endpoint {
            Endpoint::Tcp(address) => {
                let refused = |why| {
                    format!(
                        "cannot listen on {address}: {why}; choose another address with -l, or port with -p (0: any free one)"
                    )
                };
                let sockets = match address.strip_prefix("*:") {
                    Some(port) => bind_each(&all_addresses(port).map_err(refused)?, bind),
                    None => bind_each(&lookup_host(address).await.map_err(refused)?.collect::<Vec<_>>(), bind),
                };
                sockets.map_err(refused)?.into_iter().map(Socket::Tcp).collect()
            }
            #[cfg(unix)]
            Endpoint::Unix { path, mode } => {
                let socket = unix(path, *mode).await.map_err(|why| {
                    format!("cannot listen on {}: {why}; choose another path with -s", path.display())
                })?;
                vec![socket]
            }
            #[cfg(not(unix))]
            Endpoint::Unix { .. } => return Err("-s: there are no unix sockets on this system".into()),
        };
        Ok(sockets
            .into_iter()
            .map(|socket| Self { namespace: namespace.clone(), is_plain: listen.is_plain, socket })
            .collect())
    }

    /// Takes a listening socket that the service manager has opened.
    ///
    /// # Errors
    ///
    /// A sentence with the reason, such as that the socket is no listening stream socket.
    #[cfg(unix)]
    pub fn inherit(socket: std::os::fd::OwnedFd) -> Result<Self, String> {
        use rustix::net::{sockopt, SocketType};
        let refused = |why: io::Error| format!("LISTEN_FDS: cannot listen on a given socket: {why}");
        // For another kind of socket, each `accept` would fail.
        let kind = sockopt::socket_type(&socket).map_err(|why| refused(why.into()))?;
        #[cfg(not(target_vendor = "apple"))]
        let listens = sockopt::socket_acceptconn(&socket).map_err(|why| refused(why.into()))?;
        // Apple's systems do not implement `SO_ACCEPTCONN`.
        #[cfg(target_vendor = "apple")]
        let listens = true;
        if kind != SocketType::STREAM || !listens {
            return Err("LISTEN_FDS: a given socket is no listening stream socket".to_owned());
        }
        let tcp = std::net::TcpListener::from(socket);
        tcp.set_nonblocking(true).map_err(refused)?;
        let socket = match tcp.local_addr() {
            Ok(_) => {
                let listener = TcpListener::from_std(tcp).map_err(refused)?;
                keep_alive(&listener);
                Socket::Tcp(listener)
            }
            Err(_) => {
                // The socket has no TCP address, so it is a unix socket.
                let unix = std::os::unix::net::UnixListener::from(std::os::fd::OwnedFd::from(tcp));
                let address = unix.local_addr().map_err(refused)?;
                let path = address.as_pathname().map(Path::to_owned).unwrap_or_default();
                Socket::Unix { listener: UnixListener::from_std(unix).map_err(refused)?, path, own: None }
            }
        };
        // Unix streams have no TLS.
        let is_plain = matches!(socket, Socket::Unix { .. });
        Ok(Self { namespace: Namespace::default(), is_plain, socket })
    }

    /// Waits for the next client, and returns its stream and addresses.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor left, or the client has disconnected again.
    pub async fn accept(&self) -> io::Result<(Stream, Addresses)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // An error means that the client has disconnected again.
                let local = stream.local_addr()?;
                Ok((Stream::Tcp(stream), Addresses { peer: shown(peer), local: shown(local) }))
            }
            #[cfg(unix)]
            Socket::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Unix(stream), Addresses { peer: "unix:".to_owned(), local: self.shown_address() }))
            }
        }
    }

    /// Returns the address that the listener is bound to, as `stats conns` shows it.
    pub fn shown_address(&self) -> String {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().map_or_else(|_| "tcp:".to_owned(), shown),
            #[cfg(unix)]
            Socket::Unix { path, .. } => format!("unix:{}", path.display()),
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

/// Returns an address as memcached shows it.
fn shown(address: SocketAddr) -> String {
    let name = if address.is_ipv6() { "tcp6" } else { "tcp" };
    format!("{name}:{address}")
}

#[cfg(unix)]
impl Drop for Socket {
    fn drop(&mut self) {
        if let Self::Unix { path, own: Some(own), .. } = self {
            // Another server may have replaced the file.
            if file_id(path).is_some_and(|there| there == *own) {
                // An error means that the user may not remove it.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Returns the addresses that stand for all of this system. The port was parsed before.
fn all_addresses(port: &str) -> io::Result<[SocketAddr; 2]> {
    let port: u16 = port.parse().map_err(io::Error::other)?;
    Ok([(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()])
}

/// Binds each address of a host name once; if any port will do, all to the same one. An address
/// that this system does not have is skipped if another one is bound; memcached skips one of a
/// family that is missing or one in use, and fails if `bind` returns `EADDRNOTAVAIL`.
///
/// A port that the system chooses for one address may be in use at another one, by a connection of
/// any program. Then all addresses are bound again, to another port.
fn bind_each(
    addresses: &[SocketAddr],
    mut bind: impl FnMut(SocketAddr) -> io::Result<TcpListener>,
) -> io::Result<Vec<TcpListener>> {
    let is_any_port = addresses.iter().all(|address| address.port() == 0);
    for _ in 1..FREE_PORTS_TRIED {
        match bind_once(addresses, &mut bind) {
            Err(why) if is_any_port && why.kind() == io::ErrorKind::AddrInUse => {}
            result => return result,
        }
    }
    bind_once(addresses, &mut bind)
}

/// Binds each address once, those without a port to the port of the first one.
fn bind_once(
    addresses: &[SocketAddr],
    bind: &mut impl FnMut(SocketAddr) -> io::Result<TcpListener>,
) -> io::Result<Vec<TcpListener>> {
    let (mut listeners, mut seen, mut missing) = (Vec::<TcpListener>::new(), Vec::new(), None);
    for mut address in addresses.iter().copied() {
        if seen.contains(&address) {
            continue;
        }
        seen.push(address);
        if let (0, Some(first)) = (address.port(), listeners.first()) {
            address.set_port(first.local_addr()?.port());
        }
        match bind(address) {
            Ok(listener) => {
                keep_alive(&listener);
                listeners.push(listener);
            }
            Err(why) if is_missing(&why) => missing = Some(why),
            Err(why) => return Err(why),
        }
    }
    match missing {
        Some(why) if listeners.is_empty() => Err(why),
        _ => Ok(listeners),
    }
}

/// Binds the first address of a host name that can be bound.
pub async fn bind_first(address: &str) -> io::Result<TcpListener> {
    let mut last = io::Error::other("the host has no address");
    for address in lookup_host(address).await? {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// Binds an address. As in memcached, one of IPv6 takes no connections of IPv4: `0.0.0.0` and `::`
/// can be bound to the same port, each for its own clients.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    #[cfg(unix)]
    {
        if address.is_ipv6() {
            rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
        }
        // Connections of a previous server do not keep the address in use. On Windows, the flag
        // would allow two servers at the same address.
        socket.set_reuseaddr(true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Makes the system end accepted connections of clients that have vanished, as in memcached.
#[cfg(unix)]
fn keep_alive(listener: &TcpListener) {
    // Accepted sockets inherit it. An error means that connections of such clients stay open.
    let _ = rustix::net::sockopt::set_socket_keepalive(listener, true);
}

#[cfg(not(unix))]
fn keep_alive(_: &TcpListener) {}

/// Returns whether the error of [`bind`] means that this system does not have the address, or its
/// family: mostly IPv6.
fn is_missing(why: &io::Error) -> bool {
    #[cfg(unix)]
    let is_of_unknown_family = why.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
    #[cfg(not(unix))]
    let is_of_unknown_family = why.kind() == io::ErrorKind::Unsupported;
    is_of_unknown_family || why.kind() == io::ErrorKind::AddrNotAvailable
}

/// Opens a unix socket. As in memcached, a socket file that an earlier server left behind is
/// replaced: one that refuses connections. One on which a server listens is not, even if this user
/// may not connect to it, or if its queue is full.
///
/// The socket is bound before the permission bits are set. A client that connects in between waits
/// in the queue and is accepted later, even if `mode` excludes it: until then the umask decides.
#[cfg(unix)]
async fn unix(path: &Path, mode: u32) -> io::Result<Socket> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket {
        match UnixStream::connect(path).await {
            Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            // On Linux, `WouldBlock` means that the queue is full.
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::AddrInUse.into()),
            Err(why) => return Err(why),
        }
    }
    let listener = UnixListener::bind(path)?;
    let socket = Socket::Unix { listener, path: path.to_owned(), own: file_id(path) };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(socket)
}

/// Returns the id of the file at `path`, if there is one.
#[cfg(unix)]
fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn each_address_that_exists_is_bound_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let address = |text: &str| text.parse::<SocketAddr>().unwrap();
            let any = address("127.0.0.1:0");
            // 192.0.2.1 is for documentation: no machine has it.
            let there = bind_each(&[any, address("192.0.2.1:0"), any], bind).unwrap();
            assert_eq!(there.len(), 1);
            let bound = there[0].local_addr().unwrap();
            let client = std::net::TcpStream::connect(bound).unwrap();
            let (accepted, _) = there[0].accept().await.unwrap();
            assert!(rustix::net::sockopt::socket_keepalive(&accepted).unwrap());
            drop(client);
            let missing = bind_each(&[address("192.0.2.1:0")], bind).unwrap_err();
            assert_eq!(missing.kind(), io::ErrorKind::AddrNotAvailable);
            let taken = bind_each(&[any, bound], bind).unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        });
    }

    /// Connections of other programs may have the port that the first address gets.
    #[test]
    fn a_port_in_use_at_another_address_is_replaced() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            // The listener of the second address has another port here, so that both are bound.
            let second = |port| SocketAddr::from((Ipv6Addr::LOCALHOST, port));
            let bind_after = |failures: usize, port| {
                let mut attempts = 0;
                let bound = bind_each(&[loopback(0), second(port)], |address| match address {
                    SocketAddr::V4(_) => bind(address),
                    SocketAddr::V6(_) if attempts == failures => bind(loopback(0)),
                    SocketAddr::V6(_) => {
                        attempts += 1;
                        Err(io::ErrorKind::AddrInUse.into())
                    }
                });
                (bound.map(|bound| bound.len()).map_err(|why| why.kind()), attempts)
            };
            assert_eq!(bind_after(3, 0), (Ok(2), 3));
            assert_eq!(bind_after(usize::MAX, 0), (Err(io::ErrorKind::AddrInUse), FREE_PORTS_TRIED));
            assert_eq!(bind_after(usize::MAX, 1), (Err(io::ErrorKind::AddrInUse), 1));
        });
    }

    #[test]
    fn all_addresses_of_ipv6_are_not_those_of_ipv4() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let of_v4 = bind_each(&[SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))], bind).unwrap();
            let port = of_v4[0].local_addr().unwrap().port();
            match bind_each(&[SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))], bind) {
                Err(why) if is_missing(&why) => eprintln!("skipped: there is no IPv6: {why}"),
                of_v6 => assert!(rustix::net::sockopt::ipv6_v6only(&of_v6.unwrap()[0]).unwrap()),
            }
        });
    }

    #[test]
    fn an_inherited_unix_socket_has_no_tls() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let path = std::env::temp_dir().join(format!("lowwater-inherited_{}.sock", std::process::id()));
        let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        runtime.block_on(async {
            let is_plain = [unix.into(), tcp.into()].map(|socket| Listener::inherit(socket).unwrap().is_plain);
            assert_eq!(is_plain, [true, false]);
        });
        std::fs::remove_file(&path).unwrap();
    }

    /// Opens the unix socket `path` on a thread, as a call that waits for a server would not end.
    fn open_unix(path: &Path) -> Result<Vec<Listener>, String> {
        let endpoint = Endpoint::Unix { path: path.to_owned(), mode: 0o600 };
        let listen = ListenAddress { tenant: None, is_plain: true, endpoint };
        let (sender, opened) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            sender.send(runtime.block_on(Listener::open(&listen, b':')))
        });
        opened.recv_timeout(std::time::Duration::from_secs(10)).expect("the call ends")
    }

    fn socket_path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("lowwater-{name}_{}.sock", std::process::id()))
    }

    #[test]
    fn only_a_socket_file_that_refuses_clients_is_replaced() {
        use std::os::unix::net::{UnixDatagram, UnixListener};

        let path = socket_path("kept");
        // A stream cannot connect to it, and nobody has left it behind.
        let datagram = UnixDatagram::bind(&path).unwrap();
        assert!(open_unix(&path).unwrap_err().contains("-s"));
        assert!(path.exists());
        drop(datagram);
        std::fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        drop(open_unix(&path).unwrap());
        assert!(!path.exists(), "it is removed at the end");
    }

    #[test]
    fn the_socket_file_of_another_server_is_not_removed() {
        let path = socket_path("other");
        let opened = open_unix(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(opened);
        assert!(path.exists());
        std::fs::remove_file(&path).unwrap();
    }

    /// Other systems refuse a client if the queue is full.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_server_with_a_full_queue_is_not_waited_for() {
        use rustix::net::{bind, connect, listen, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

        let path = socket_path("full");
        let address = SocketAddrUnix::new(&path).unwrap();
        let socket = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        let busy = socket();
        bind(&busy, &address).unwrap();
        listen(&busy, 1).unwrap();
        let mut clients = vec![socket()];
        while connect(&clients[clients.len() - 1], &address).is_ok() {
            clients.push(socket());
        }
        assert!(open_unix(&path).unwrap_err().contains("-s"));
        assert!(path.exists());
        std::fs::remove_file(&path).unwrap();
    }
}
