//! Values over TCP: large and incomplete ones, expiry, and flushes.
//!
//! A change must ensure that a test of memory waits until the server has received the bytes: a
//! client's write ends before.

use super::*;
use crate::value::piece_pool::PIECE_BYTES;

#[test]
fn large_values_are_returned_unchanged() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let value = |n: usize| format!("{n:06}").repeat(10_000 + n * 1000);
    let mut all = String::new();
    for n in 0..20 {
        let value = value(n);
        client.exchange(&format!("set big{n} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
        all += &format!("VALUE big{n} 0 {}\r\n{value}\r\n", value.len());
    }
    let keys: Vec<String> = (0..20).map(|n| format!("big{n}")).collect();
    client.exchange(&format!("get {}\r\n", keys.join(" ")), &format!("{all}END\r\n"));
}

#[test]
fn short_values_may_arrive_in_parts() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    // With values of these lengths, a connection's buffer ends in all parts of a `set`.
    let sets: Vec<_> = (0..40).map(|n| (n, format!("{n:04}").repeat(1024 - n % 7))).collect();
    let text: String = sets.iter().map(|(n, value)| format!("set k{n} 0 0 {}\r\n{value}\r\n", value.len())).collect();
    let stored: String = sets.iter().map(|(n, value)| format!("VALUE k{n} 0 {}\r\n{value}\r\n", value.len())).collect();
    let keys: Vec<_> = sets.iter().map(|(n, _)| format!("k{n}")).collect();
    for part in [1000, 4097, 20_000, text.len()] {
        client.exchange("flush_all\r\n", "OK\r\n");
        for bytes in text.as_bytes().chunks(part) {
            client.0.write_all(bytes).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        client.expect(&"STORED\r\n".repeat(sets.len()));
        client.exchange(&format!("get {}\r\n", keys.join(" ")), &format!("{stored}END\r\n"));
    }
    // A client that leaves in the middle of a value has stored nothing.
    let mut leaves = server.connect();
    leaves.0.write_all(b"set k0 0 0 3 noreply\r\nab").unwrap();
    leaves.wait_until_received();
    drop(leaves);
    client.exchange("get k0\r\n", &format!("VALUE k0 0 4096\r\n{}\r\nEND\r\n", sets[0].1));
}

#[test]
fn incomplete_values_are_bounded_and_released() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("set half 0 0 3\r\nold\r\nset other 0 0 3\r\nold\r\n", "STORED\r\nSTORED\r\n");
    let stalled = server.stall_in_values();
    let used = client.stat("stats", "bytes").parse::<u64>().unwrap();
    assert!(used > 2_900_000, "{used} bytes: received bytes are charged");

    drop(stalled);
    let wait_for_release = || {
        let left = Instant::now();
        while server.server.receive_budget.bytes() > ByteSize::ZERO {
            let reserved = server.server.receive_budget.bytes();
            assert!(left.elapsed() < Duration::from_secs(60), "{reserved} bytes are still reserved");
            thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for_release();

    let held = server.fill_receive_budget("default");
    let no_room = "SERVER_ERROR out of memory storing object\r\n";
    let large = "x".repeat(1_000_000);
    client.exchange(&format!("set half 0 0 1000000\r\n{large}\r\n"), no_room);
    client.exchange(&format!("ms half 1000000\r\n{large}\r\n"), no_room);
    client.exchange(&format!("add other 0 0 1000000\r\n{large}\r\n"), no_room);
    client.exchange("get half other\r\n", "VALUE other 0 3\r\nold\r\nEND\r\n");
    assert_eq!(client.stat("stats", "store_no_memory"), "3");
    client.exchange("set small 0 0 3\r\nnew\r\n", "STORED\r\n");
    drop(held);
    wait_for_release();
    client.exchange(&format!("set half 0 0 1000000\r\n{large}\r\n"), "STORED\r\n");
    client.exchange("flush_all\r\n", "OK\r\n");
    server.server.store.runtime().tree().drain_stock();
    assert_eq!(client.stat("stats", "bytes"), "0");
}

#[test]
fn each_value_of_an_input_waits_for_room() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let _held = server.fill_receive_budget("default");
    // Two values of 5,000 bytes are one input (`BUFFER_BYTES`), and are charged (`FREE_BYTES`).
    let add = format!("add k 0 0 5000\r\n{}\r\n", "x".repeat(5000));
    let mut second_waits = || {
        client.0.write_all(add.repeat(2).as_bytes()).unwrap();
        client.expect("SERVER_ERROR out of memory storing object\r\n");
        let refused = Instant::now();
        client.expect("SERVER_ERROR out of memory storing object\r\n");
        refused.elapsed() >= ROOM_PAUSE * ROOM_PAUSES_MAX
    };
    // A busy machine may delay the client's read of the first reply.
    assert!((0..10).any(|_| second_waits()));
}

#[test]
fn values_that_are_never_finished_do_not_keep_a_tenant_from_its_min() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("tenant set shop min=6M\r\n", "OK\r\n");
    let held = server.charge_received("default", &[999_000; 3]);
    let value = "v".repeat(10_000);
    for n in 0..600 {
        client.exchange(&format!("set shop:{n} 0 0 10000\r\n{value}\r\n"), "STORED\r\n");
    }
    assert_eq!(client.stat("stats tenants", "shop:evictions"), "0");
    assert_eq!(held.len(), 1, "half of what `min` leaves is room for one value");
}

/// Starts a server that has a listener more for each of these tenants.
fn start_with_tenants(tenants: &[&str]) -> TestServer {
    TestServer::start(|settings| {
        for tenant in tenants {
            settings.listen.push(ListenAddress::parse(&format!("tag_{tenant}_:127.0.0.1"), 0, b':').unwrap());
        }
    })
}

#[test]
fn unfinished_values_of_a_tenant_leave_room_for_another() {
    let server = start_with_tenants(&["evil", "good"]);
    let (evil, good) = (server.addresses[1], server.addresses[2]);
    // More than there is room for: first with long values, then with shorter ones.
    let _unfinished = server.charge_received("evil", [[900_000; 6], [70_000; 6]].as_flattened());
    let mut good = server.connect_to(good);
    for length in [5_000, 20_000, 400_000, 1_000_000] {
        let (line, value) = (format!("set k 0 0 {length}\r\n"), "y".repeat(length));
        // In two parts, as even 5,000 bytes are then charged.
        good.0.write_all(format!("{line}{}", &value[..length / 2]).as_bytes()).unwrap();
        good.wait_until_received();
        good.exchange(&format!("{}\r\n", &value[length / 2..]), "STORED\r\n");
    }
    // A value of the tenant that holds the others has no room.
    let more = format!("set k 0 0 20000\r\n{}\r\n", "x".repeat(20_000));
    server.connect_to(evil).exchange(&more, "SERVER_ERROR out of memory storing object\r\n");
}

/// Stores up to `count` values of `length` bytes through one connection of a tenant, as long as
/// there is room, and requests each through a connection of its own that does not read: the values
/// stay in memory after their eviction. Returns these connections.
fn leave_unread(server: &TestServer, tenant: SocketAddr, count: usize, length: usize) -> Vec<Client> {
    let (mut writer, value) = (server.connect_to(tenant), "x".repeat(length));
    let mut unread = Vec::new();
    for n in 0..count {
        writer.0.write_all(format!("set v{n} 0 0 {length}\r\n{value}\r\n").as_bytes()).unwrap();
        if writer.line() != "STORED\r\n" {
            break;
        }
        let mut reader = server.connect_to(tenant);
        // More than the buffers of both sockets have room for.
        reader.0.write_all(format!("get v{n}\r\n").repeat(20_000_000 / length).as_bytes()).unwrap();
        assert_eq!(reader.line(), format!("VALUE v{n} 0 {length}\r\n"));
        unread.push(reader);
    }
    unread
}

#[test]
fn unread_replies_of_a_tenant_leave_room_for_another() {
    let server = start_with_tenants(&["evil", "good"]);
    let (evil, good) = (server.addresses[1], server.addresses[2]);
    let (unread, value) = (leave_unread(&server, evil, 16, 1_000_000), "x".repeat(1_000_000));
    let mut good = server.connect_to(good);
    for length in [17_000, 100_000, 1_000_000] {
        good.store_with_patience(&format!("set k 0 0 {length}\r\n{}\r\n", &value[..length]));
    }
    // Connections are closed only until the stores have room.
    let left = server.connect().stat("stats tenants", "evil:connections").parse::<usize>().unwrap();
    assert!((1..unread.len()).contains(&left), "{left} connections of {} are left", unread.len());
}

/// No tenant alone has many unread replies.
#[test]
fn unread_replies_of_several_tenants_leave_room_for_another() {
    let server = start_with_tenants(&["t1", "t2", "t3", "t4", "good"]);
    let (good, many) = server.addresses[1..].split_last().unwrap();
    let mut unread = leave_unread(&server, *good, 1, 100_000);
    unread.extend(many.iter().flat_map(|tenant| leave_unread(&server, *tenant, 2, 1_000_000)));
    let (mut writer, value) = (server.connect(), "x".repeat(1_000_000));
    writer.exchange("flush_all\r\n", "OK\r\n");
    for n in 0..16 {
        writer.0.write_all(format!("set k{n} 0 0 1000000\r\n{value}\r\n").as_bytes()).unwrap();
        if writer.line() != "STORED\r\n" {
            break;
        }
    }
    for length in [17_000, 100_000, 1_000_000] {
        let set = format!("set k 0 0 {length}\r\n{}\r\n", &value[..length]);
        server.connect_to(*good).store_with_patience(&set);
    }
    let left = |tenant: &str| writer.stat("stats tenants", &format!("{tenant}:connections")).parse::<usize>().unwrap();
    let left = ["t1", "t2", "t3", "t4"].map(left);
    assert!((1..8).contains(&left.iter().sum::<usize>()), "{left:?} connections of 2 each are left");
    // The client that leaves few replies unread gets them all.
    let (reader, mut replies) = (&mut unread[0].0, Vec::new());
    reader.write_all(b"mn\r\nquit\r\n").unwrap();
    reader.read_to_end(&mut replies).unwrap();
    assert!(replies.ends_with(b"END\r\nMN\r\n"), "{} bytes of replies", replies.len());
}

/// Stores of short values do not wait for pieces.
#[test]
fn unread_replies_do_not_keep_removed_values_while_short_values_are_stored() {
    let server = TestServer::start(|_| {});
    let _unread = leave_unread(&server, server.address, 16, 1_000_000);
    let (mut writer, value) = (server.connect(), "x".repeat(16_000));
    writer.exchange("flush_all\r\n", "OK\r\n");
    let (max, begun) = (server.server.settings.budget.get() * 3 / 2, Instant::now());
    let mut n = 0;
    while n < 2_000 || server.server.piece_pool.outstanding_bytes() > max {
        writer.store_with_patience(&format!("set k{n} 0 0 16000\r\n{value}\r\n"));
        n += 1;
        let outstanding = server.server.piece_pool.outstanding_bytes();
        assert!(begun.elapsed() < Duration::from_secs(60), "{outstanding} bytes after {n} stores");
    }
}

#[test]
fn a_large_value_waits_for_other_receptions() {
    let server = TestServer::start(|_| {});
    let large = "x".repeat(1_000_000);
    thread::scope(|scope| {
        for n in 0..12 {
            let mut client = server.connect();
            let text = format!("set k{n} 0 0 1000000\r\n{large}\r\n");
            scope.spawn(move || (0..5).for_each(|_| client.store_with_patience(&text)));
        }
    });
    assert_eq!(server.server.receive_budget.bytes(), ByteSize::ZERO);
}

/// A client that gives a time may rely on one: `t-1` means that there is none.
#[test]
fn a_time_far_ahead_stays_a_time() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    for exptime in [9_999_999_999, i64::MAX] {
        client.exchange(&format!("set k 0 {exptime} 1\r\nx\r\n"), "STORED\r\n");
        client.0.write_all(b"mg k t\r\n").unwrap();
        let line = client.line();
        let left = line.trim_end().strip_prefix("HD t").and_then(|left| left.parse::<i64>().ok());
        assert!(left.is_some_and(|left| left > 29 * 365 * 24 * 60 * 60), "{exptime}: {line}");
    }
}

#[test]
fn values_expire() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange_all(&[
        ("set k 0 1 1\r\nx\r\n", "STORED\r\n"),
        ("append k 0 0 1\r\ny\r\n", "STORED\r\n"),
        ("set kept 0 1 1\r\nx\r\n", "STORED\r\n"),
        ("touch kept 0\r\n", "TOUCHED\r\n"),
        ("get k kept\r\n", "VALUE k 0 2\r\nxy\r\nVALUE kept 0 1\r\nx\r\nEND\r\n"),
    ]);
    thread::sleep(Duration::from_millis(1200));
    client.exchange("get k kept\r\n", "VALUE kept 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn the_last_flush_counts() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let set = "set k 0 0 1\r\nx\r\n";
    let got = "VALUE k 0 1\r\nx\r\nEND\r\n";
    // A thousand delayed flushes count as one.
    client.exchange(&"flush_all 1\r\n".repeat(1000), &"OK\r\n".repeat(1000));
    client.exchange("flush_all 1000\r\n", "OK\r\n");
    client.exchange(set, "STORED\r\n");
    thread::sleep(Duration::from_millis(1200));
    client.exchange("get k\r\n", got);
    client.exchange("flush_all 1 noreply\r\n", "");
    client.exchange("flush_all noreply\r\n", "");
    client.exchange("get k\r\n", "END\r\n");
    client.exchange(set, "STORED\r\n");
    thread::sleep(Duration::from_millis(1200));
    client.exchange("get k\r\n", got);
    client.exchange("flush_all 1\r\nget k\r\n", &format!("OK\r\n{got}"));
    let begun = Instant::now();
    while client.stat("stats", "curr_items") != "0" {
        assert!(begun.elapsed() < Duration::from_secs(60), "the flush has no effect");
        thread::sleep(Duration::from_millis(20));
    }
    client.exchange("get k\r\n", "END\r\n");
}

#[test]
fn a_flush_that_never_comes_only_cancels_another() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    // A time in ms, as clients pass by mistake. In one request, so that the first flush does not
    // come before it.
    client.exchange("flush_all 1\r\nflush_all 1790000000000\r\n", "OK\r\nOK\r\n");
    thread::sleep(Duration::from_millis(1200));
    client.exchange("get k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn numbers_of_any_length_can_be_counted() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    for length in [65_535, 65_536, 200_000] {
        let text = format!("1{}", " ".repeat(length - 1));
        client.exchange(&format!("set n 0 0 {length}\r\n{text}\r\n"), "STORED\r\n");
        client.exchange("incr n 1\r\nma n\r\ndecr n 2\r\n", "2\r\nHD\r\n1\r\n");
        client.exchange("get n\r\n", &format!("VALUE n 0 {length}\r\n{text}\r\nEND\r\n"));
    }
}

#[test]
fn a_number_may_begin_behind_the_first_piece_of_a_value() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let mut counts = |text: &str, number: Option<&str>| {
        let (length, no_number) = (text.len(), "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
        let reply = number.map_or(no_number.to_owned(), |number| format!("{number}\r\n"));
        let after = number.map_or(text.to_owned(), |number| format!("{number:length$}"));
        for (command, head) in [("incr k 1\r\n", ""), ("ma k v\r\n", "VA 1\r\n")] {
            client.exchange(&format!("set k 0 0 {length}\r\n{text}\r\n"), "STORED\r\n");
            let head = if number.is_some() { head } else { "" };
            client.exchange(command, &format!("{head}{reply}"));
            client.exchange("get k\r\n", &format!("VALUE k 0 {length}\r\n{after}\r\nEND\r\n"));
        }
    };
    for length in [PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES] {
        for fill in ["0", " "].map(|byte| byte.repeat(length)) {
            counts(&format!("{fill}abc"), None);
            counts(&format!("{fill}5x"), None);
            counts(&format!("{fill}18446744073709551616"), None);
            counts(&format!("{fill}5"), Some("6"));
            counts(&format!("{fill}5 x"), Some("6"));
            counts(&format!("{fill}5\0x"), Some("6"));
        }
        let spaces = " ".repeat(length);
        counts(&spaces, None);
        counts(&format!("{spaces}-0"), Some("1"));
        counts(&format!("{spaces}-1"), None);
    }
}

#[test]
fn a_number_in_a_value_may_end_at_a_zero_byte() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let no_number = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    client.exchange_all(&[
        ("set k 0 0 2\r\n5\0\r\nincr k 1\r\n", "STORED\r\n6\r\n"),
        ("get k\r\n", "VALUE k 0 2\r\n6 \r\nEND\r\n"),
        ("set k 0 0 6\r\n+5\0yyy\r\nma k v\r\n", "STORED\r\nVA 1\r\n6\r\n"),
        ("get k\r\n", "VALUE k 0 6\r\n6     \r\nEND\r\n"),
        ("set k 0 0 1\r\n\0\r\nincr k 1\r\n", &format!("STORED\r\n{no_number}")),
        ("set k 0 0 3\r\n \x005\r\nincr k 1\r\n", &format!("STORED\r\n{no_number}")),
        ("get k\r\n", "VALUE k 0 3\r\n \x005\r\nEND\r\n"),
    ]);
    // Not so in a word of a line.
    client.exchange("incr k 1\0\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n");
}

#[test]
fn a_client_with_many_slow_commands_yields_to_others() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    client.exchange(&"append k 0 0 0\r\n\r\n".repeat(200), &"STORED\r\n".repeat(200));
    let yields: u64 = client.stat("stats", "conn_yields").parse().unwrap();
    // The commands of up to a few reads begin to be counted anew.
    assert!(yields >= 5, "{yields} yields in 200 commands");
}

#[test]
fn a_flush_takes_effect_at_once_and_delays_no_other_client() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    // Holds the crawl lock, like a crawl over very many values.
    let crawl_lock = server.server.crawl_lock.blocking_lock();
    // More clients than the server has threads.
    let mut others: Vec<_> = (0..6).map(|_| server.connect()).collect();
    for other in &mut others {
        other.0.write_all(b"flush_all\r\nlru_crawler crawl all\r\n").unwrap();
    }
    let sent = Instant::now();
    while server.server.store.peek(b"k").is_some() {
        assert!(sent.elapsed() < Duration::from_secs(60), "the flush has no effect");
    }
    client.exchange("mn\r\nget k\r\nset new 0 0 1\r\nx\r\n", "MN\r\nEND\r\nSTORED\r\n");
    assert_eq!(client.stat("stats", "curr_items"), "2");
    drop(crawl_lock);
    for other in &mut others {
        other.expect("OK\r\nOK\r\n");
    }
    assert!(server.server.store.totals().items < 2, "flushed values are removed");
}

#[test]
fn a_later_flush_does_not_stop_the_crawl_of_an_earlier_one() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    // Holds the crawl lock, like a crawl over very many values.
    let crawl_lock = server.server.crawl_lock.blocking_lock();
    client.exchange("flush_all 1\r\n", "OK\r\n");
    let sent = Instant::now();
    while server.server.store.peek(b"k").is_some() {
        assert!(sent.elapsed() < Duration::from_secs(60), "the flush has no effect");
        thread::sleep(Duration::from_millis(5));
    }
    client.exchange("flush_all 1000\r\n", "OK\r\n");
    drop(crawl_lock);
    let dropped = Instant::now();
    while server.server.store.totals().items > 0 {
        assert!(dropped.elapsed() < Duration::from_secs(60), "flushed values are not removed");
        thread::sleep(Duration::from_millis(5));
    }
}
