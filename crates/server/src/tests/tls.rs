//! TLS: a client of rustls against the server. The certificates are made by `tls/make.sh`.
//!
//! No byte of a plain client may be run as a command, a client in its handshake may delay no other
//! client, and a reload must take a certificate and its key together or not at all.

use std::io;
use std::path::{Path, PathBuf};

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{version, ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, StreamOwned};

use super::*;
use crate::reload::reload;
use crate::settings::tls::{ClientCertificates, TlsSettings};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/tls").join(name)
}

fn tls(clients: ClientCertificates) -> TlsSettings {
    TlsSettings { chain: file("server.pem"), key: file("server.key"), clients, is_13_only: false }
}

fn start(settings: TlsSettings) -> TestServer {
    TestServer::start(|all| all.tls = Some(settings))
}

fn address(text: &str) -> ListenAddress {
    ListenAddress::parse(text, 0, b':').unwrap()
}

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file(name)).unwrap()
}

/// A client that knows the authority, with the certificate of `name`, if it has one.
fn client_config(
    name: Option<&str>,
    versions: &[&'static tokio_rustls::rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate("authority.pem")).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    match name {
        None => config.with_no_client_auth(),
        Some(name) => {
            let key = PrivateKeyDer::from_pem_file(file(&format!("{name}.key"))).unwrap();
            config.with_client_auth_cert(vec![certificate(&format!("{name}.pem"))], key).unwrap()
        }
    }
}

struct TlsClient(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    fn connect(server: &TestServer, name: Option<&str>) -> Self {
        Self::connect_with(server, client_config(name, &[&version::TLS12, &version::TLS13]))
    }

    fn connect_with(server: &TestServer, config: ClientConfig) -> Self {
        let connection = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
        Self(StreamOwned::new(connection, server.connect().0))
    }

    /// Sends `text`, and checks the beginning of the reply.
    fn exchange(&mut self, text: &[u8], expected: &[u8]) -> io::Result<()> {
        self.0.write_all(text)?;
        let mut reply = vec![0; expected.len()];
        self.0.read_exact(&mut reply)?;
        assert!(reply == expected, "{:?}", String::from_utf8_lossy(&reply[..reply.len().min(200)]));
        Ok(())
    }
}

#[test]
fn commands_and_large_values_pass_through_tls() {
    let server = start(tls(ClientCertificates::None));
    for version in [&version::TLS12, &version::TLS13] {
        let mut client = TlsClient::connect_with(&server, client_config(None, &[version]));
        client.exchange(b"set a 0 0 1\r\nx\r\nget a\r\n", b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n").unwrap();
        // Many records of TLS, in both directions, and many commands at once.
        let value = vec![b'v'; 700_000];
        client.exchange(&[b"set b 0 0 700000\r\n", &*value, b"\r\n"].concat(), b"STORED\r\n").unwrap();
        client.exchange(b"get b\r\n", &[b"VALUE b 0 700000\r\n", &*value, b"\r\nEND\r\n"].concat()).unwrap();
        let (many, replies) = (b"get a\r\n".repeat(5_000), b"VALUE a 0 1\r\nx\r\nEND\r\n".repeat(5_000));
        client.exchange(&many, &replies).unwrap();
        // The stream ends as TLS demands, so that the client sees that nothing was cut off.
        client.0.write_all(b"quit\r\n").unwrap();
        assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
    }
    let mut client = TlsClient::connect(&server, None);
    client.exchange(b"version\r\n", b"VERSION ").unwrap();
    assert_eq!(server.server.counters.get(crate::counters::Counter::SslNewSessions), 3);
}

#[test]
fn an_idle_client_does_not_wait_for_the_rest_of_a_record() {
    // A record has at most 16,384 bytes. When the last bytes of a command have arrived, the client
    // gets the reply without sending more, however the command is divided into records.
    let server = start(tls(ClientCertificates::None));
    let mut client = TlsClient::connect(&server, None);
    for bytes in [1, 100, 16_384, 16_385, 40_000] {
        let value = vec![b'x'; bytes];
        let set = format!("set k 0 0 {bytes}\r\n");
        for part in [set.as_bytes(), &value[..bytes / 2], &value[bytes / 2..]] {
            client.0.write_all(part).unwrap();
            client.0.flush().unwrap();
        }
        client.exchange(b"\r\n", b"STORED\r\n").unwrap();
    }
}

/// Waits until one failed handshake is counted, which is after the close.
fn wait_for_a_failed_handshake(server: &TestServer) {
    let errors = || server.server.counters.get(crate::counters::Counter::SslHandshakeErrors);
    let closed = Instant::now();
    while errors() == 0 {
        assert!(closed.elapsed() < Duration::from_secs(60), "the failed handshake is not counted");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(errors(), 1);
}

#[test]
fn a_client_that_does_not_finish_its_handshake_is_closed() {
    let server = start(tls(ClientCertificates::None));
    let began = Instant::now();
    let mut silent = server.connect();
    silent.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(silent.0.read(&mut [0]).unwrap(), 0);
    assert!(began.elapsed() >= crate::net::tls::HANDSHAKE_TIME_MAX);
    wait_for_a_failed_handshake(&server);
    TlsClient::connect(&server, None).exchange(b"mn\r\n", b"MN\r\n").unwrap();
}

#[test]
fn a_client_without_tls_is_closed_and_counted_and_harms_no_other() {
    let server = start(tls(ClientCertificates::None));
    let mut plain = server.connect();
    plain.0.write_all(b"set a 0 0 1\r\nx\r\nget a\r\n").unwrap();
    let mut reply = Vec::new();
    // An alert of TLS, or a reset; never a reply.
    let _ = plain.0.read_to_end(&mut reply);
    assert!(!String::from_utf8_lossy(&reply).contains("STORED"), "{reply:?}");
    let silent = server.connect();
    let mut client = TlsClient::connect(&server, None);
    client.exchange(b"get a\r\n", b"END\r\n").unwrap();
    client.exchange(b"set b 0 0 1\r\nx\r\n", b"STORED\r\n").unwrap();
    wait_for_a_failed_handshake(&server);
    drop(silent);
}

#[test]
fn addresses_with_notls_are_plain() {
    let server = TestServer::start(|settings| {
        settings.tls = Some(tls(ClientCertificates::None));
        settings.listen = vec![address("127.0.0.1"), address("notls:127.0.0.1")];
    });
    let mut plain = server.connect_to(server.addresses[1]);
    plain.exchange("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    assert_eq!(plain.stat("stats settings", "ssl_enabled"), "yes");
    assert_eq!(plain.stat("stats", "ssl_handshake_errors"), "0");
    TlsClient::connect(&server, None).exchange(b"get a\r\n", b"VALUE a 0 1\r\nx\r\nEND\r\n").unwrap();
    let age: u64 = plain.stat("stats", "time_since_server_cert_refresh").parse().unwrap();
    assert!(age < 60);
}

#[test]
fn clients_need_a_certificate_if_it_is_required() {
    let authority = file("authority.pem");
    let required = start(tls(ClientCertificates::Required(authority.clone())));
    TlsClient::connect(&required, Some("client")).exchange(b"mn\r\n", b"MN\r\n").unwrap();
    assert!(TlsClient::connect(&required, None).exchange(b"mn\r\n", b"MN\r\n").is_err());
    let optional = start(tls(ClientCertificates::Optional(authority)));
    TlsClient::connect(&optional, Some("client")).exchange(b"mn\r\n", b"MN\r\n").unwrap();
    TlsClient::connect(&optional, None).exchange(b"mn\r\n", b"MN\r\n").unwrap();
    // `client.pem` as the only authority, which has not issued the certificate of `other`.
    let foreign = start(tls(ClientCertificates::Optional(file("client.pem"))));
    assert!(TlsClient::connect(&foreign, Some("other")).exchange(b"mn\r\n", b"MN\r\n").is_err());
}

#[test]
fn an_older_version_can_be_refused() {
    let server = start(TlsSettings { is_13_only: true, ..tls(ClientCertificates::None) });
    let mut client = TlsClient::connect_with(&server, client_config(None, &[&version::TLS12]));
    assert!(client.exchange(b"mn\r\n", b"MN\r\n").is_err());
    let mut client = TlsClient::connect(&server, None);
    client.exchange(b"mn\r\n", b"MN\r\n").unwrap();
    assert_eq!(client.0.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
}

#[test]
fn a_reload_takes_a_new_certificate_or_changes_nothing() {
    let folder = std::env::temp_dir().join(format!("lowwater-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (chain, key) = (folder.join("chain.pem"), folder.join("key.pem"));
    let put = |name: &str| {
        std::fs::copy(file(&format!("{name}.pem")), &chain).unwrap();
        std::fs::copy(file(&format!("{name}.key")), &key).unwrap();
    };
    put("server");
    let settings = TlsSettings { chain: chain.clone(), key: key.clone(), ..tls(ClientCertificates::None) };
    let server = start(settings);
    let shown = |client: &mut TlsClient| {
        client.exchange(b"mn\r\n", b"MN\r\n").unwrap();
        client.0.conn.peer_certificates().unwrap()[0].clone().into_owned()
    };
    let mut open = TlsClient::connect(&server, None);
    assert_eq!(shown(&mut open), certificate("server.pem"));
    put("other");
    assert_eq!(reload(&server.server), Ok("read the certificate".to_owned()));
    assert_eq!(shown(&mut TlsClient::connect(&server, None)), certificate("other.pem"));
    open.exchange(b"mn\r\n", b"MN\r\n").unwrap();
    // A key that is not the certificate's, an empty file, and none.
    std::fs::copy(file("server.key"), &key).unwrap();
    let why = reload(&server.server).unwrap_err();
    assert!(why.starts_with("-o: ssl_key: ") && why.contains("key.pem"), "{why}");
    put("server");
    std::fs::write(&chain, "").unwrap();
    let why = reload(&server.server).unwrap_err();
    assert!(why.starts_with("-o: ssl_chain_cert: ") && why.ends_with("there is no certificate in it"), "{why}");
    std::fs::remove_file(&chain).unwrap();
    assert!(reload(&server.server).unwrap_err().contains("chain.pem"));
    assert_eq!(shown(&mut TlsClient::connect(&server, None)), certificate("other.pem"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_label_of_a_key_need_not_name_its_encoding() {
    let pkcs8 = std::fs::read_to_string(file("server.key")).unwrap();
    assert!(pkcs8.starts_with("-----BEGIN PRIVATE KEY-----"));
    for label in ["RSA PRIVATE KEY", "EC PRIVATE KEY"] {
        let key = std::env::temp_dir().join(format!("lowwater-tls-{}.key", std::process::id()));
        std::fs::write(&key, pkcs8.replace("PRIVATE KEY", label)).unwrap();
        let server = start(TlsSettings { key: key.clone(), ..tls(ClientCertificates::None) });
        TlsClient::connect(&server, None).exchange(b"mn\r\n", b"MN\r\n").unwrap();
        std::fs::remove_file(&key).unwrap();
    }
}

#[test]
fn the_server_ends_while_clients_are_in_their_handshakes() {
    // Less than `HANDSHAKE_TIME_MAX`: the end does not wait for handshakes.
    let enough = Duration::from_secs(5);
    let time = shortest(enough, || {
        let mut server = start(tls(ClientCertificates::None));
        let _silent: Vec<_> = (0..5).map(|_| server.connect()).collect();
        TlsClient::connect(&server, None).exchange(b"mn\r\n", b"MN\r\n").unwrap();
        let began = Instant::now();
        server.stop();
        began.elapsed()
    });
    assert!(time < enough, "{time:?}");
}

#[test]
fn watchers_use_tls() {
    let server = start(tls(ClientCertificates::None));
    let mut watcher = TlsClient::connect(&server, None);
    watcher.exchange(b"watch mutations\r\n", b"OK\r\n").unwrap();
    let mut client = TlsClient::connect(&server, None);
    client.exchange(b"set a 0 0 1\r\nx\r\n", b"STORED\r\n").unwrap();
    watcher.exchange(b"", b"ts=").unwrap();
}

/// A client without the certificate must not use up the connections of a tenant.
#[test]
fn a_tenants_connections_are_taken_after_the_handshake() {
    let server = TestServer::start(|settings| {
        settings.tls = Some(tls(ClientCertificates::Required(file("authority.pem"))));
        settings.listen = vec![address("tag_shop_:127.0.0.1")];
        let traffic = TrafficLimits { connections: Some(1), ..TrafficLimits::default() };
        settings.limits = vec![("shop".into(), Limits { traffic, ..Limits::default() })];
    });
    let _silent = server.connect();
    let mut first = TlsClient::connect(&server, Some("client"));
    first.exchange(b"mn\r\n", b"MN\r\n").unwrap();
    let refused = || {
        let mut second = TlsClient::connect(&server, Some("client"));
        // A close with unread input would reset the connection: a write would fail.
        for _ in 0..4 {
            second.0.write_all(b"mn\r\n")?;
            thread::sleep(Duration::from_millis(20));
        }
        let mut refusal = String::new();
        second.0.read_to_string(&mut refusal).map(|_| refusal)
    };
    // Repeated, as the server waits half a second for a client on a busy machine.
    let refusal = (0..9).find_map(|_| refused().ok());
    assert_eq!(refusal.as_deref(), Some("ERROR Too many open connections of this tenant\r\n"));
    let counters = &server.server.counters;
    assert!(counters.get(crate::counters::Counter::RejectedConnections) > 0);
    let total = counters.get(crate::counters::Counter::TotalConnections);
    assert_eq!(total, 1, "without the refused ones, and the one without a handshake");
    drop(first);
    let left = Instant::now();
    loop {
        let mut third = TlsClient::connect(&server, Some("client"));
        let mut reply = [0; 4];
        // An error means that it was refused, and closed.
        let _ = third.0.write_all(b"mn\r\n").and_then(|()| third.0.read_exact(&mut reply));
        if reply == *b"MN\r\n" {
            break;
        }
        assert!(left.elapsed() < Duration::from_secs(60));
    }
}
