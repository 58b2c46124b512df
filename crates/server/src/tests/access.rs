//! Access: tenants by listener and by login, unix sockets, and shutdown.
//!
//! A restricted client must see no key and no figure of another tenant, and can run no command that
//! concerns all tenants.

use super::*;

#[test]
fn a_tagged_listener_serves_only_its_tenant() {
    let server = TestServer::start(|settings| {
        settings.listen.push(ListenAddress::parse("tag_shop_:127.0.0.1", 0, b':').unwrap());
    });
    let mut all = server.connect();
    let mut shop = server.connect_to(server.addresses[1]);
    shop.exchange("set cart 0 0 3\r\nown\r\n", "STORED\r\n");
    shop.exchange("get cart\r\n", "VALUE cart 0 3\r\nown\r\nEND\r\n");
    all.exchange("get cart shop:cart\r\n", "VALUE shop:cart 0 3\r\nown\r\nEND\r\n");
    all.exchange("set other:k 0 0 1\r\nx\r\nset n 0 0 1\r\n1\r\n", "STORED\r\nSTORED\r\n");
    let refused = "CLIENT_ERROR not allowed on a tenant's own connection\r\n";
    shop.exchange_all(&[
        ("get other:k n\r\n", "END\r\n"),
        ("mg cart k v\r\n", "VA 3 kcart\r\nown\r\n"),
        ("ms num 1 k\r\n5\r\n", "HD knum\r\n"),
        ("ma num v\r\n", "VA 1\r\n6\r\n"),
        ("incr num 1\r\n", "7\r\n"),
        ("touch num 0\r\n", "TOUCHED\r\n"),
        ("gat 0 num\r\n", "VALUE num 0 1\r\n7\r\nEND\r\n"),
        ("me num\r\n", "ME num exp=-1 la=0 cas=6 fetch=yes cls=1 size=63\r\n"),
        ("md num\r\n", "HD\r\n"),
        ("delete cart\r\n", "DELETED\r\n"),
        ("flush_all\r\n", refused),
        ("flush_all noreply\r\n", ""),
        ("cache_memlimit 100\r\n", refused),
        ("tenant list\r\n", refused),
        ("stats tenants\r\n", refused),
        ("stats sizes\r\nstats conns\r\nstats cachedump 1 0\r\n", &refused.repeat(3)),
        ("stats shrinkers\r\nstats reclaim\r\n", &refused.repeat(2)),
        ("watch evictions\r\n", refused),
    ]);
    all.exchange("get n shop:cart\r\n", "VALUE n 0 1\r\n1\r\nEND\r\n");
    assert_eq!(all.stat("stats tenants", "shop:items"), "0");
}

/// The replies to a full input would be 30 times its length.
#[test]
fn lines_before_a_login_yield_to_others() {
    const LINES: usize = 1000;
    let server = TestServer::start_with_users("lines", |_| {});
    let mut client = server.connect();
    client.0.write_all(&b"\n".repeat(LINES)).unwrap();
    client.expect(&"CLIENT_ERROR unauthenticated\r\n".repeat(LINES));
    let mut administrator = server.connect();
    administrator.0.write_all(b"set auth 0 0 12\r\ndefault root\r\n").unwrap();
    administrator.expect("STORED\r\n");
    let yields: u64 = administrator.stat("stats", "conn_yields").parse().unwrap();
    assert!(yields >= 40, "{yields} yields in {LINES} lines");
}

#[test]
fn a_required_login_must_come_first() {
    let server = TestServer::start_with_users("users", |_| {});
    let mut shop = server.connect();
    for (text, expected) in [
        ("get k\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        ("set auth 0 0 10\r\nshop wrong\r\n", "CLIENT_ERROR authentication failure\r\n"),
        ("set auth 0 0 4\r\nshop\r\n", "CLIENT_ERROR bad authentication token format\r\n"),
    ] {
        shop.0.write_all(text.as_bytes()).unwrap();
        shop.expect(expected);
    }
    shop.0.write_all(b"set auth 0 0 11\r\nshop secret\r\nset k 0 0 1\r\nx\r\n").unwrap();
    shop.expect("STORED\r\nSTORED\r\n");
    let mut administrator = server.connect();
    administrator.0.write_all(b"set auth 0 0 12\r\ndefault root\r\n").unwrap();
    administrator.expect("STORED\r\n");
    administrator.exchange("get k shop:k\r\n", "VALUE shop:k 0 1\r\nx\r\nEND\r\n");
    administrator.exchange("flush_all\r\n", "OK\r\n");
    shop.exchange("get k\r\n", "END\r\n");
    assert_eq!(administrator.stat("stats", "auth_cmds"), "3");
    assert_eq!(administrator.stat("stats", "auth_errors"), "1");
}

#[cfg(unix)]
#[test]
fn a_unix_socket_is_guarded_and_cleaned_up() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    use crate::settings::listen_address::Endpoint;

    let path = std::env::temp_dir().join(format!("lowwater-server_{}.sock", std::process::id()));
    // A socket file that an earlier server left behind is replaced.
    drop(UnixListener::bind(&path).unwrap());
    let unix =
        ListenAddress { tenant: None, is_plain: true, endpoint: Endpoint::Unix { path: path.clone(), mode: 0o600 } };
    let mut server = TestServer::start(|settings| settings.listen.push(unix.clone()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"set k 0 0 1\r\nx\r\nget k\r\n").unwrap();
    let mut answer = [0; 29];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let why = runtime.block_on(crate::net::listener::Listener::open(&unix, b':')).unwrap_err();
    assert!(why.contains("-s"), "{why}");
    server.stop();
    assert!(!path.exists());
}

#[test]
fn a_star_is_all_addresses() {
    let server = TestServer::start(|settings| {
        settings.listen.push(ListenAddress::parse("*", 0, b':').unwrap());
    });
    let port = server.addresses[1].port();
    server.connect_to((std::net::Ipv4Addr::LOCALHOST, port).into()).exchange("mn\r\n", "MN\r\n");
    if has_ipv6() {
        assert_eq!(server.addresses[2].port(), port);
        server.connect_to((std::net::Ipv6Addr::LOCALHOST, port).into()).exchange("mn\r\n", "MN\r\n");
    }
}

/// The limit of the tenant would delay each reply by a second.
#[test]
fn refused_commands_are_answered_at_shutdown() {
    until_ended_in_time(|| {
        let mut server = TestServer::start(|settings| {
            let traffic = TrafficLimits { requests: Some(1), ..TrafficLimits::default() };
            settings.limits = vec![("default".into(), Limits { traffic, ..Limits::default() })];
        });
        let mut client = server.connect();
        let refused = "SERVER_ERROR the tenant is above its limit of requests\r\n";
        client.0.write_all(b"mn\r\nmn\r\n").unwrap();
        client.expect(&format!("MN\r\n{refused}"));
        client.0.write_all(&b"mn\r\n".repeat(100)).unwrap();
        client.wait_until_received();
        if !server.stop_in_time() {
            return false;
        }
        let mut replies = String::new();
        client.0.read_to_string(&mut replies).unwrap();
        assert_eq!(replies.split_inclusive('\n').count(), 100, "{replies}");
        true
    });
}

#[test]
fn input_received_before_shutdown_is_answered() {
    until_ended_in_time(|| {
        let mut server = TestServer::start(|_| {});
        let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.exchange("set k 0 0 1\r\nx\r\n", "STORED\r\n");
            client.0.write_all(&b"get k\r\n".repeat(1000)).unwrap();
        }
        clients.iter().for_each(Client::wait_until_received);
        if !server.stop_in_time() {
            return false;
        }
        for client in &mut clients {
            client.expect(&"VALUE k 0 1\r\nx\r\nEND\r\n".repeat(1000));
            assert_eq!(client.0.read(&mut [0]).unwrap_or(0), 0);
        }
        true
    });
}

/// Clients choose the names of keys: they must not keep a new user, or a new certificate, out.
#[test]
fn tenants_of_the_configuration_exist_whatever_keys_clients_use() {
    let path = |name: &str| std::env::temp_dir().join(format!("lowwater-full_{name}_{}", std::process::id()));
    let (users, limits) = (path("users"), path("limits"));
    std::fs::write(&users, "default:root\nfirst:a\n").unwrap();
    std::fs::write(&limits, "shop low=1K\n").unwrap();
    let server = TestServer::start(|settings| {
        settings.users = Some(crate::settings::users::Users::read(&users, b':').unwrap());
        // Keys may create as many tenants as `tenant set`.
        settings.budget = ByteSize::gib(2);
        settings.files = Files { users: Some(users.clone()), limits: Some(limits.clone()) };
        settings.listen.push(ListenAddress::parse("tag_tagged_:127.0.0.1", 0, b':').unwrap());
    });
    let log_in = |user: &str| {
        let mut client = server.connect();
        client.0.write_all(format!("set auth 0 0 {}\r\n{user}\r\n", user.len()).as_bytes()).unwrap();
        client.expect("STORED\r\n");
        client
    };
    let mut all = log_in("default root");
    // In parts with a reply each: on a busy machine all sets may take longer than a reply may.
    for first in (0..66_000).step_by(6_000) {
        let fill: String = (first..first + 6_000).map(|n| format!("set t{n}:k 0 0 1 noreply\r\nx\r\n")).collect();
        all.exchange(&fill, "");
    }
    all.exchange("tenant set more low=1\r\n", "CLIENT_ERROR there are too many tenants already\r\n");
    std::fs::write(&users, "default:root\nfirst:a\nlate:b\n").unwrap();
    std::fs::write(&limits, "shop low=1K\nlate_limit low=1K\n").unwrap();
    assert_eq!(crate::reload::reload(&server.server), Ok("read limits of 2 tenants and users".to_owned()));
    for user in ["first a", "late b"] {
        log_in(user).exchange("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    }
    all.0.write_all(b"tenant list\r\n").unwrap();
    let mut names = Vec::new();
    loop {
        let line = all.line();
        let Some(tenant) = line.strip_prefix("TENANT ") else { break };
        names.push(tenant.split(' ').next().unwrap().to_owned());
    }
    for name in ["first", "late", "late_limit", "tagged"] {
        assert!(names.iter().any(|there| there == name), "{name}");
    }
    std::fs::remove_file(&users).unwrap();
    std::fs::remove_file(&limits).unwrap();
}
