//! Limits of a tenant's connections: requests and bytes per second, connections, denied commands.
//!
//! A client of another tenant must not notice the limits.

use super::*;
use crate::counters::Counter;

/// Starts a server with a listener for the tenant `shop`, and returns it with a client of all
/// tenants and one of the shop.
fn start(change: impl FnOnce(&mut Settings)) -> (TestServer, Client, Client) {
    let server = TestServer::start(|settings| {
        settings.listen.push(ListenAddress::parse("tag_shop_:127.0.0.1", 0, b':').unwrap());
        change(settings);
    });
    let (all, shop) = (server.connect(), server.connect_to(server.addresses[1]));
    (server, all, shop)
}

/// The client has pipelined commands without replies, which are refused one after the other.
#[test]
fn a_client_that_leaves_in_a_pause_returns_its_permit() {
    let (server, mut all, _shop) = start(|_| {});
    all.exchange("tenant set shop requests=1\r\n", "OK\r\n");
    // Of both: what is left fits into the connection's buffer, or stays in the socket.
    for commands in [300, 2_000] {
        let mut leaves = server.connect_to(server.addresses[1]);
        leaves.0.write_all(&b"set k 0 0 1 noreply\r\nx\r\n".repeat(commands)).unwrap();
        let sent = Instant::now();
        let refused = count(&mut all, "shop:refused_requests");
        while count(&mut all, "shop:refused_requests") == refused {
            assert!(sent.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(count(&mut all, "shop:connections"), 2);
        drop(leaves);
        let left = Instant::now();
        while count(&mut all, "shop:connections") > 1 {
            assert!(left.elapsed() < Duration::from_secs(60), "{commands}: the connection is still open");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A client that has sent all of its commands may end its stream, and read the replies then.
#[test]
fn a_client_that_ends_its_stream_in_a_pause_gets_all_replies() {
    let (server, mut all, _shop) = start(|_| {});
    all.exchange("tenant set shop requests=1\r\n", "OK\r\n");
    // More than the buffer of a connection has room for, and less than that of the socket: a larger
    // input hides the stream's end.
    for (binary, noops) in [(false, 10_000), (true, 2_000)] {
        let mut client = server.connect_to(server.addresses[1]);
        let noop = [&[0x80, 0x0a][..], &[0; 22]].concat();
        client.0.write_all(&if binary { noop } else { b"mn\r\n".to_vec() }.repeat(noops)).unwrap();
        client.0.shutdown(std::net::Shutdown::Write).unwrap();
        let mut replies = Vec::new();
        client.0.read_to_end(&mut replies).unwrap();
        let count = match binary {
            true => replies.split(|byte| *byte == 0x81).count() - 1,
            false => replies.split(|byte| *byte == b'\n').count() - 1,
        };
        assert_eq!(count, noops);
    }
}

/// A `gat` without keys looks nothing up, and still takes the server's time.
#[test]
fn a_gat_without_keys_is_a_request() {
    let (_server, mut all, mut shop) = start(|_| {});
    all.exchange("tenant set shop requests=1\r\n", "OK\r\n");
    shop.0.write_all(&b"gat 0\r\n".repeat(3)).unwrap();
    let over = "SERVER_ERROR the tenant is above its limit of requests\r\n";
    shop.expect(&format!("END\r\n{over}"));
}

fn count(client: &mut Client, name: &str) -> u64 {
    client.stat("stats tenants", name).parse().unwrap()
}

#[test]
fn denied_commands_are_refused_and_counted() {
    let (server, mut all, mut shop) = start(|_| {});
    shop.exchange("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    all.exchange("tenant set shop deny=set,incr,stats\r\n", "OK\r\n");
    let denied = |name: &str| format!("CLIENT_ERROR {name} is denied to this tenant\r\n");
    for (text, expected) in [
        ("set k 0 0 1\r\n2\r\n", denied("set")),
        ("set k 0 0 1 noreply\r\n2\r\n", String::new()),
        ("ms k 1\r\n2\r\n", denied("set")),
        // With `N`, `mg` creates a value that is missing.
        ("mg other N5\r\n", denied("set")),
        ("incr k 1\r\nma k\r\n", denied("incr").repeat(2)),
        ("incr k 1 noreply\r\n", String::new()),
        ("stats\r\nstats items\r\n", denied("stats").repeat(2)),
        ("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n".into()),
        ("mg k v\r\nversion\r\n", format!("VA 1\r\n1\r\nVERSION {}\r\n", crate::version::VERSION)),
    ] {
        shop.exchange(text, &expected);
    }
    let large = "x".repeat(10_000);
    shop.exchange(
        &format!("set k 0 0 10000\r\n{large}\r\nget k\r\n"),
        &format!("{}VALUE k 0 1\r\n1\r\nEND\r\n", denied("set")),
    );
    all.exchange("set shop:k 0 0 1\r\n3\r\n", "STORED\r\n");
    assert_eq!(count(&mut all, "shop:denied_commands"), 10);
    assert_eq!(server.server.counters.get(Counter::DeniedCommands), 10);
    all.exchange("tenant set shop deny=none\r\n", "OK\r\n");
    shop.exchange("set k 0 0 1\r\n4\r\n", "STORED\r\n");
    let why = "CLIENT_ERROR deny=sets: \"sets\" cannot be denied; the commands are ";
    all.0.write_all(b"tenant set shop deny=sets\r\n").unwrap();
    assert!(all.line().starts_with(why));
}

#[test]
fn the_default_tenant_has_the_connections_without_a_tenant() {
    let (_server, mut all, mut shop) = start(|settings| {
        let deny = crate::protocol::command_set::CommandSet::parse("flush_all").unwrap();
        let traffic = TrafficLimits { deny, ..TrafficLimits::default() };
        settings.limits = vec![("default".into(), Limits { traffic, ..Limits::default() })];
    });
    all.exchange("flush_all\r\nflush_all noreply\r\n", "CLIENT_ERROR flush_all is denied to this tenant\r\n");
    shop.exchange("flush_all\r\n", "CLIENT_ERROR not allowed on a tenant's own connection\r\n");
}

#[test]
fn connections_of_a_tenant_are_bounded() {
    let (server, mut all, mut shop) = start(|_| {});
    shop.exchange("get k\r\n", "END\r\n");
    all.exchange("tenant set shop connections=2\r\n", "OK\r\n");
    let mut second = server.connect_to(server.addresses[1]);
    second.exchange("get k\r\n", "END\r\n");
    let mut third = server.connect_to(server.addresses[1]);
    third.expect("ERROR Too many open connections of this tenant\r\n");
    assert_eq!(third.0.read(&mut [0]).unwrap(), 0, "it is closed");
    server.connect().exchange("get k\r\n", "END\r\n");
    assert_eq!((count(&mut all, "shop:connections"), count(&mut all, "shop:rejected_connections")), (2, 1));
    assert_eq!(all.stat("stats", "rejected_connections"), "1");
    drop(second);
    let left = Instant::now();
    while count(&mut all, "shop:connections") > 1 {
        assert!(left.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    server.connect_to(server.addresses[1]).exchange("get k\r\n", "END\r\n");
}

#[test]
fn a_login_takes_a_connection_of_its_tenant() {
    let traffic = TrafficLimits { connections: Some(1), ..TrafficLimits::default() };
    let server = TestServer::start_with_users("traffic", |settings| {
        settings.limits = vec![("shop".into(), Limits { traffic, ..Limits::default() })];
    });
    let login = b"set auth 0 0 11\r\nshop secret\r\n";
    let (mut first, mut second) = (server.connect(), server.connect());
    first.0.write_all(login).unwrap();
    first.expect("STORED\r\n");
    second.0.write_all(login).unwrap();
    second.expect("SERVER_ERROR too many open connections of this tenant\r\n");
    second.0.write_all(b"get k\r\n").unwrap();
    second.expect("CLIENT_ERROR unauthenticated\r\n");
    drop(first);
    let left = Instant::now();
    loop {
        second.0.write_all(login).unwrap();
        if second.line() == "STORED\r\n" {
            break;
        }
        assert!(left.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    second.exchange("get k\r\n", "END\r\n");
}

#[test]
fn bytes_behind_a_login_are_charged() {
    let traffic = TrafficLimits { bandwidth: ByteSize::kib(1), ..TrafficLimits::default() };
    let server = TestServer::start_with_users("behind", |settings| {
        settings.limits = vec![("shop".into(), Limits { traffic, ..Limits::default() })];
    });
    let mut client = server.connect();
    let value = "x".repeat(10_000);
    let begun = Instant::now();
    let text = format!("set auth 0 0 11\r\nshop secret\r\nset k 0 0 10000\r\n{value}\r\n");
    client.0.write_all(text.as_bytes()).unwrap();
    client.expect("STORED\r\nSTORED\r\n");
    let charged = server.time_charged("shop", begun);
    assert!(charged > Duration::from_secs(9), "{charged:?} of 9.8 s");
}

#[test]
fn requests_above_the_rate_are_refused_until_they_are_paid_for() {
    let (server, mut all, mut shop) = start(|_| {});
    all.exchange("set shop:k 0 0 1\r\n1\r\n", "STORED\r\n");
    all.exchange("tenant set shop requests=20\r\n", "OK\r\n");
    // A burst of 3: a tenth of a second's, and the one that reaches the limit.
    let begun = Instant::now();
    shop.0.write_all(&b"incr k 1\r\n".repeat(60)).unwrap();
    let replies: Vec<String> = (0..60).map(|_| shop.line()).collect();
    let refused = "SERVER_ERROR the tenant is above its limit of requests\r\n";
    let done = replies.iter().filter(|reply| *reply != refused).count();
    let paid = 3 + (begun.elapsed().as_secs_f64() * 20.0) as usize;
    assert!((3..60).contains(&done) && done <= paid, "{replies:?}");
    assert_eq!(replies[..3], ["2\r\n", "3\r\n", "4\r\n"]);
    all.exchange(
        "get shop:k\r\n",
        &format!("VALUE shop:k 0 {}\r\n{}\r\nEND\r\n", (done + 1).to_string().len(), done + 1),
    );
    assert_eq!(count(&mut all, "shop:refused_requests"), 60 - done as u64);
    assert_eq!(server.server.counters.get(Counter::RefusedRequests), 60 - done as u64);
    // Each key of a `get` counts.
    thread::sleep(Duration::from_millis(300));
    shop.0.write_all(format!("get{}\r\n", " none".repeat(100)).as_bytes()).unwrap();
    assert_eq!(shop.line(), "END\r\n");
    shop.0.write_all(b"get none\r\n").unwrap();
    assert_eq!(shop.line(), refused);
    all.exchange("tenant set shop requests=max\r\n", "OK\r\n");
    shop.exchange("get none\r\n", "END\r\n");
}

#[test]
fn a_line_that_is_too_long_ends_a_connection_above_its_rate() {
    let (_server, mut all, mut shop) = start(|_| {});
    // A burst of one request; the next one is paid for after a second.
    all.exchange("tenant set shop requests=1\r\n", "OK\r\n");
    shop.0.write_all(&[b"mn\r\n", &[b'x'; 3000][..]].concat()).unwrap();
    shop.expect("MN\r\nSERVER_ERROR the tenant is above its limit of requests\r\n");
    assert_eq!(shop.0.read(&mut [0]).unwrap(), 0, "an end of the stream");
}

#[test]
fn a_value_without_room_counts_as_a_store() {
    let (server, mut all, mut shop) = start(|_| {});
    let _held = server.fill_receive_budget("shop");
    shop.exchange("set k 0 0 3\r\nold\r\n", "STORED\r\n");
    let large = "x".repeat(20_000);
    let store = format!("set k 0 0 20000\r\n{large}\r\n");
    all.exchange("tenant set shop deny=set\r\n", "OK\r\n");
    let denied = "CLIENT_ERROR set is denied to this tenant\r\n";
    shop.exchange(&store, denied);
    shop.exchange(&format!("ms k 20000\r\n{large}\r\n"), denied);
    shop.exchange("get k\r\n", "VALUE k 0 3\r\nold\r\nEND\r\n");
    all.exchange("tenant set shop deny=none requests=1\r\n", "OK\r\n");
    // Each key is a request, so the next command is admitted after 100 s.
    shop.0.write_all(format!("get{}\r\n{store}", " none".repeat(100)).as_bytes()).unwrap();
    shop.expect("END\r\nSERVER_ERROR the tenant is above its limit of requests\r\n");
    all.exchange("tenant set shop requests=max\r\n", "OK\r\n");
    shop.exchange("get k\r\n", "VALUE k 0 3\r\nold\r\nEND\r\n");
    assert_eq!((count(&mut all, "shop:refused_requests"), count(&mut all, "shop:denied_commands")), (1, 2));
}

#[test]
fn bytes_above_the_rate_are_refused_until_they_are_paid_for() {
    let (_server, mut all, mut shop) = start(|_| {});
    all.exchange("tenant set shop bandwidth=50K\r\n", "OK\r\n");
    let value = "x".repeat(20_000);
    let begun = Instant::now();
    let (mut stored, mut refused) = (0, 0);
    while stored < 5 {
        shop.0.write_all(format!("set k 0 0 20000\r\n{value}\r\n").as_bytes()).unwrap();
        match &*shop.line() {
            "STORED\r\n" => stored += 1,
            "SERVER_ERROR the tenant is above its limit of bandwidth\r\n" => refused += 1,
            other => panic!("{other}"),
        }
    }
    // The last one was admitted when 80,000 bytes were paid for, at 51,200 a second, less the
    // burst.
    assert!(begun.elapsed() > Duration::from_millis(1_400), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(60), "refused bytes are not charged");
    assert!(refused > 0);
    all.exchange("get none\r\n", "END\r\n");
}

/// Of both: a value that is stored, and one that is too large and discarded.
#[test]
fn a_long_value_arrives_at_the_rate() {
    let (_server, mut all, mut shop) = start(|_| {});
    all.exchange("tenant set shop bandwidth=600K\r\n", "OK\r\n");
    let too_large = "SERVER_ERROR object too large for cache\r\nMN\r\n";
    for (bytes, next, replies) in [(1_000_000, "", "STORED\r\n"), (1_200_000, "mn\r\n", too_large)] {
        let begun = Instant::now();
        let value = "x".repeat(bytes);
        shop.0.write_all(format!("set k 0 0 {bytes}\r\n{value}\r\n{next}").as_bytes()).unwrap();
        shop.expect(replies);
        // All but the last 64 KiB, one read, and the burst are paid for.
        let paid = (bytes - (64 << 10) - (64 << 10) - (60 << 10)) as f64 / f64::from(600 << 10);
        assert!(begun.elapsed().as_secs_f64() > paid, "{bytes}: {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(30), "{bytes}: {:?}", begun.elapsed());
        // Until the rest is paid for.
        thread::sleep(Duration::from_millis(500));
    }
}

/// Each of them has paid for its own bytes, although the others use the limit up meanwhile.
#[test]
fn long_values_of_several_clients_are_stored() {
    let (server, mut all, _shop) = start(|_| {});
    all.exchange("tenant set shop bandwidth=600K\r\n", "OK\r\n");
    thread::scope(|scope| {
        for n in 0..3 {
            let mut client = server.connect_to(server.addresses[1]);
            scope.spawn(move || {
                let value = "x".repeat(300_000);
                client.0.write_all(format!("set k{n} 0 0 300000\r\n{value}\r\n").as_bytes()).unwrap();
                client.expect("STORED\r\n");
            });
        }
    });
}

#[test]
fn bytes_of_a_client_that_leaves_are_charged() {
    // Of a value that is charged with its command, and of one that is charged as it arrives.
    for bytes in [50_000, 100_000] {
        let (server, mut all, mut shop) = start(|_| {});
        all.exchange("tenant set shop bandwidth=1K\r\n", "OK\r\n");
        let mut leaves = server.connect_to(server.addresses[1]);
        leaves.0.write_all(format!("set k 0 0 1000000\r\n{}", "x".repeat(bytes)).as_bytes()).unwrap();
        leaves.wait_until_received();
        drop(leaves);
        let left = Instant::now();
        while count(&mut all, "shop:connections") > 1 {
            assert!(left.elapsed() < Duration::from_secs(60), "{bytes}: the connection is still open");
            thread::sleep(Duration::from_millis(5));
        }
        shop.0.write_all(b"mn\r\n").unwrap();
        shop.expect("SERVER_ERROR the tenant is above its limit of bandwidth\r\n");
    }
}

/// The client reads half of a reply, and leaves. The socket accepts far less at once.
#[test]
fn bytes_of_a_reply_are_charged_as_they_are_sent() {
    const READ: usize = 16 << 20;
    let (server, mut all, mut shop) = start(|settings| {
        settings.budget = ByteSize::mib(256);
        settings.item_bytes_max = 64 << 20;
    });
    let value = "x".repeat(2 * READ);
    all.exchange(&format!("set shop:k 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    all.exchange("tenant set shop bandwidth=16K\r\n", "OK\r\n");
    let begun = Instant::now();
    let mut leaves = server.connect_to(server.addresses[1]);
    leaves.0.write_all(b"get k\r\n").unwrap();
    leaves.0.read_exact(&mut vec![0; READ]).unwrap();
    // The client may have read the last bytes before they are charged.
    while server.time_charged("shop", begun) < Duration::from_secs(1023) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the reply is being sent, and not charged");
        thread::sleep(Duration::from_millis(5));
    }
    shop.0.write_all(b"get none\r\n").unwrap();
    assert_eq!(shop.line(), "SERVER_ERROR the tenant is above its limit of bandwidth\r\n");
    drop(leaves);
    let left = Instant::now();
    while count(&mut all, "shop:connections") > 1 {
        assert!(left.elapsed() < Duration::from_secs(60), "the connection is still open");
        thread::sleep(Duration::from_millis(5));
    }
    let written = server.server.counters.get(Counter::BytesWritten);
    assert!(written >= READ as u64, "{written}");
}

/// Each refusal is 57 bytes, and comes once a second at most: more than the limit.
#[test]
fn replies_to_refused_commands_are_not_charged() {
    let (_server, mut all, mut shop) = start(|_| {});
    all.exchange("tenant set shop bandwidth=50\r\n", "OK\r\n");
    let begun = Instant::now();
    let mut admitted = 0;
    while admitted < 3 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{admitted} commands were admitted");
        shop.0.write_all(b"get k\r\n").unwrap();
        admitted += usize::from(shop.line() == "END\r\n");
    }
}

/// Returns the times of 500 lookups, the shortest first.
fn exchange_times(client: &mut Client) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..500)
        .map(|_| {
            let begun = Instant::now();
            client.exchange("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");
            begun.elapsed()
        })
        .collect();
    times.sort();
    times
}

/// As [`exchange_times`], while a hostile tenant, `shop`, has four connections more, and sends
/// without waiting for replies.
fn exchange_times_in_a_flood(server: &TestServer, client: &mut Client) -> Vec<Duration> {
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut hostile = TcpStream::connect(server.addresses[1]).unwrap();
                hostile.set_nonblocking(true).unwrap();
                let (flood, mut replies) = (b"get k\r\n".repeat(1000), vec![0; 1 << 16]);
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    // An error means that the call would block.
                    let _sent = hostile.write(&flood);
                    let _received = hostile.read(&mut replies);
                    thread::sleep(Duration::from_micros(200));
                }
            });
        }
        let times = exchange_times(client);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        times
    })
}

/// The requests of both tenants run on the same thread.
#[test]
fn a_tenant_at_its_limit_does_not_delay_another() {
    let (server, mut all, _shop) = start(|settings| settings.threads = 1);
    all.exchange("set k 0 0 1\r\n1\r\ntenant set shop requests=1000\r\n", "STORED\r\nOK\r\n");
    let begun = Instant::now();
    // On a busy machine each exchange waits for processors, and the load changes: so the times
    // without the flood are measured before and after it.
    let is_undelayed = || {
        let before = exchange_times(&mut all)[250];
        let times = exchange_times_in_a_flood(&server, &mut all);
        let ended = Instant::now();
        while count(&mut all, "shop:connections") > 1 {
            assert!(ended.elapsed() < Duration::from_secs(60), "the connections of the flood are still open");
            thread::sleep(Duration::from_millis(5));
        }
        let quiet = before.max(exchange_times(&mut all)[250]);
        let (median, worst) = (times[250], times[499]);
        println!("{median:?} in the median, {worst:?} at most; {quiet:?} without the flood");
        median < Duration::from_millis(50) + 10 * quiet
    };
    assert!(std::iter::repeat_with(is_undelayed).take(3).any(|is| is), "delayed three times: see the output");
    let refused = count(&mut all, "shop:refused_requests");
    let served = all.stat("stats tenants", "shop:hits").parse::<u64>().unwrap() + count(&mut all, "shop:misses");
    assert!(served <= 1000 * (begun.elapsed().as_secs() + 1) + 200, "{served} served");
    assert!(refused > 0, "the tenant was at its limit");
}

/// Returns a client that has sent a value which is too large, and `next` behind it. The limit was
/// set before the last 100,000 bytes: what the server has not received is so short that it does not
/// hide the end of the stream.
fn send_too_large(server: &TestServer, all: &mut Client, next: &str) -> Client {
    let mut client = server.connect_to(server.addresses[1]);
    client.0.write_all(format!("set k 0 0 1200000\r\n{}", "x".repeat(1_100_000)).as_bytes()).unwrap();
    client.expect("SERVER_ERROR object too large for cache\r\n");
    let sent = Instant::now();
    while server.server.counters.get(Counter::BytesRead) < 1_100_000 {
        assert!(sent.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    all.exchange("tenant set shop bandwidth=100\r\n", "OK\r\n");
    client.0.write_all(format!("{}\r\n{next}", "x".repeat(100_000)).as_bytes()).unwrap();
    client
}

/// The long value is paid for after minutes.
#[test]
fn a_client_that_leaves_in_a_command_behind_a_long_value_returns_its_permit() {
    let (server, mut all, _shop) = start(|_| {});
    drop(send_too_large(&server, &mut all, "set a 0 0 100\r\nab"));
    let left = Instant::now();
    while count(&mut all, "shop:connections") > 1 {
        assert!(left.elapsed() < Duration::from_secs(30), "the connection is still open");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The rest of the value would be paid for after minutes.
#[test]
fn a_long_value_that_has_arrived_is_stored_when_the_server_ends() {
    until_ended_in_time(|| {
        let (mut server, mut all, mut shop) = start(|_| {});
        all.exchange("tenant set shop bandwidth=100\r\n", "OK\r\n");
        shop.0.write_all(format!("set k 0 0 100000\r\n{}\r\nmn\r\n", "x".repeat(100_000)).as_bytes()).unwrap();
        shop.wait_until_received();
        let sent = Instant::now();
        while server.server.receive_budget.bytes() < ByteSize::kib(60) {
            assert!(sent.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(5));
        }
        // The pause begins.
        thread::sleep(Duration::from_millis(100));
        if !server.stop_in_time() {
            return false;
        }
        let mut replies = String::new();
        shop.0.read_to_string(&mut replies).unwrap();
        assert_eq!(replies, "STORED\r\nSERVER_ERROR the tenant is above its limit of bandwidth\r\n");
        true
    });
}

/// They are received until the client has read the reply.
#[test]
fn bytes_behind_a_line_too_long_are_charged_and_bounded() {
    for bytes in [500_000, 16 << 20] {
        let (server, mut all, mut shop) = start(|_| {});
        all.exchange("tenant set shop bandwidth=20K\r\n", "OK\r\n");
        let began = Instant::now();
        let read = loop {
            let read_before = server.server.counters.get(Counter::BytesRead);
            let sent = Instant::now();
            let mut sends_on = server.connect_to(server.addresses[1]);
            sends_on.0.write_all(&[b'x'; 3000]).unwrap();
            sends_on.0.read_exact(&mut [0]).unwrap();
            // An error means that the connection was reset.
            let _ = sends_on.0.write_all(&vec![b'x'; bytes]);
            drop(sends_on);
            while count(&mut all, "shop:connections") > 1 {
                assert!(began.elapsed() < Duration::from_secs(60), "{bytes}: the connection is still open");
                thread::sleep(Duration::from_millis(5));
            }
            let read = server.server.counters.get(Counter::BytesRead) - read_before;
            // On a busy machine the server may have closed the connection before.
            if read > 60_000 {
                // The lines are paid for by then, and the bytes behind them are not.
                thread::sleep(Duration::from_millis(200));
                shop.0.write_all(b"mn\r\n").unwrap();
                let reply = shop.line();
                if reply == "SERVER_ERROR the tenant is above its limit of bandwidth\r\n" {
                    break read;
                }
                // 60,000 bytes take longer at the rate, and a busy machine may take them all.
                assert!(sent.elapsed() >= Duration::from_secs(2), "{bytes}: {reply}");
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{bytes}: {read} are counted");
        };
        assert!(read < 2 << 20, "{bytes}: {read}");
    }
}

#[test]
fn a_watcher_is_read_at_the_rate_and_noticed_when_it_leaves() {
    const SENT: u64 = 1_000_000;
    let server = TestServer::start(|_| {});
    let (mut all, mut watcher) = (server.connect(), server.connect());
    watcher.0.write_all(b"watch evictions\r\n").unwrap();
    watcher.expect("OK\r\n");
    let read = || server.server.counters.get(Counter::BytesRead);
    let before = read();
    watcher.0.write_all(&vec![b'x'; SENT as usize]).unwrap();
    let sent = Instant::now();
    while read() - before < SENT {
        assert!(sent.elapsed() < Duration::from_secs(60), "{} bytes are counted", read() - before);
        thread::sleep(Duration::from_millis(5));
    }
    all.exchange("tenant set default bandwidth=100\r\n", "OK\r\n");
    let (before, begun) = (read(), Instant::now());
    // So few that they do not hide the end of the stream.
    watcher.0.write_all(&[b'x'; 50_000]).unwrap();
    while read() == before {
        assert!(begun.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(500));
    // At most a kibibyte is read, then the watcher pauses for a second.
    let counted = read() - before;
    let most = (begun.elapsed().as_secs() + 2) * 1024;
    assert!(counted <= most, "{counted} of {most}");
    all.0.write_all(b"get none\r\n").unwrap();
    assert_eq!(all.line(), "SERVER_ERROR the tenant is above its limit of bandwidth\r\n");
    let permits = server.server.connections();
    drop(watcher);
    let left = Instant::now();
    while server.server.connections() == permits {
        assert!(left.elapsed() < Duration::from_secs(30), "the watcher's connection is still open");
        thread::sleep(Duration::from_millis(20));
    }
}

/// It has paid for none of them. The second one is decoded in one step with the end of the value.
#[test]
fn a_discarded_value_admits_no_command_behind_it() {
    for next in ["mn\r\n", "add a 0 0 1\r\nx\r\n"] {
        let (server, mut all, _shop) = start(|_| {});
        let mut client = send_too_large(&server, &mut all, next);
        client.0.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = String::new();
        client.0.read_to_string(&mut reply).unwrap();
        assert_eq!(reply, "SERVER_ERROR the tenant is above its limit of bandwidth\r\n", "{next}");
    }
}
