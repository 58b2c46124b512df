//! The meta commands: flags and their order, quiet pipelines, keys in base64, and how exactly one
//! of several clients wins the right to store a value again.
//!
//! A change must ensure that in a race all clients send before the first reply is read, so that
//! several of the server's threads decide about one key.

use super::*;

/// The step of the access times.
const STEP: Duration = Duration::from_secs(1);
/// A time in which a value is not used.
const IDLE_TIME: Duration = Duration::from_secs(3);

/// Returns the time since the last use of a value that was never fetched.
fn idle_time(client: &mut Client, key: &str) -> Duration {
    client.0.write_all(format!("mg {key} h l u\r\n").as_bytes()).unwrap();
    let line = client.line();
    let seconds = line.trim_end().strip_prefix("HD h0 l").and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or_else(|| panic!("{key}: {line}")))
}

#[test]
fn mg_returns_the_requested_fields() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange_all(&[
        ("mg k v\r\n", "EN\r\n"),
        ("mg k v q\r\n", ""),
        ("mg k Oabc k\r\n", "EN Oabc kk\r\n"),
        ("set k 5 0 5\r\nhello\r\n", "STORED\r\n"),
        ("mg k\r\n", "HD\r\n"),
        ("set k 5 100 5\r\nhello\r\n", "STORED\r\n"),
        ("me k\r\n", "ME k exp=100 la=0 cas=2 fetch=no cls=1 size=69\r\n"),
        ("mg k s v f h\r\n", "VA 5 s5 f5 h0\r\nhello\r\n"),
        ("mg k h l t u\r\n", "HD h1 l0 t100\r\n"),
        ("mg k k Oq t T0 q\r\n", "HD kk Oq t100\r\n"),
        ("mg k t\r\n", "HD t-1\r\n"),
        ("me k\r\n", "ME k exp=-1 la=0 cas=2 fetch=yes cls=1 size=69\r\n"),
        ("me none\r\n", "EN\r\n"),
        ("mn\r\n", "MN\r\n"),
        ("mg k T-1\r\n", "HD\r\n"),
        ("mg k\r\n", "EN\r\n"),
        ("mg k v v\r\n", "CLIENT_ERROR duplicate flag\r\n"),
    ]);
    assert_eq!(client.stat("stats", "cmd_meta"), "3");
    assert_eq!(client.stat("stats", "cmd_touch"), "2");
}

#[test]
fn ms_stores_in_every_mode() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange_all(&[
        ("ms k 2 c Oo k\r\nab\r\n", "HD c1 Oo kk\r\n"),
        ("ms k 1 q\r\nx\r\n", ""),
        ("ms k 1 ME\r\ny\r\n", "NS\r\n"),
        ("ms k 1 ME q c\r\ny\r\n", "NS c0\r\n"),
        ("ms none 1 MR\r\ny\r\n", "NS\r\n"),
        ("ms none 1 C7\r\ny\r\n", "NF\r\n"),
        ("ms k 1 MA c\r\ny\r\n", "HD c3\r\n"),
        ("ms k 1 MP C1\r\nw\r\n", "EX\r\n"),
        ("ms k 1 MP C3\r\nw\r\n", "HD\r\n"),
        ("get k\r\n", "VALUE k 0 3\r\nwxy\r\nEND\r\n"),
        ("ms k 1 C3\r\nz\r\n", "EX\r\n"),
        ("ms k 1 C4 F9 T100\r\nz\r\n", "HD\r\n"),
        ("mg k v f t\r\n", "VA 1 f9 t100\r\nz\r\n"),
        ("ms k 1 q\r\nxyz\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
        ("ms k 3 Mz\r\nxyz\r\n", "CLIENT_ERROR invalid mode for ms M token\r\n"),
        ("ms k 1 T-1\r\nz\r\n", "HD\r\n"),
        ("mg k\r\n", "EN\r\n"),
    ]);
    let large = "x".repeat(1 << 20);
    client.exchange("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    client
        .exchange(&format!("ms k {} ME q\r\n{large}\r\n", large.len()), "SERVER_ERROR object too large for cache\r\n");
    client.exchange("mg k\r\n", "EN\r\n");
}

#[test]
fn an_add_is_a_use_of_the_value_that_it_finds() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("set a 0 0 1\r\nx\r\nset m 0 0 1\r\nx\r\n", &"STORED\r\n".repeat(2));
    thread::sleep(IDLE_TIME);
    let started = Instant::now();
    client.exchange("add a 0 0 1\r\ny\r\nms m 1 ME\r\ny\r\n", "NOT_STORED\r\nNS\r\n");
    for key in ["a", "m"] {
        assert!(idle_time(&mut client, key) <= started.elapsed() + STEP, "{key}");
    }
}

#[test]
fn keys_in_base64_may_be_any_bytes() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange_all(&[
        ("ms AAoN 1 b k c\r\nx\r\n", "HD kAAoN b c1\r\n"),
        ("mg AAoN b k v\r\n", "VA 1 kAAoN b\r\nx\r\n"),
        ("me AAoN b\r\n", "ME AAoN exp=-1 la=0 cas=1 fetch=yes cls=1 size=63\r\n"),
        ("ms Zm9v 1 b\r\ny\r\n", "HD\r\n"),
        ("get foo\r\n", "VALUE foo 0 1\r\ny\r\nEND\r\n"),
        ("mg foo k\r\n", "HD kZm9v b\r\n"),
        ("set foo 0 0 1\r\nz\r\n", "STORED\r\n"),
        ("mg Zm9v b k v\r\n", "VA 1 kfoo\r\nz\r\n"),
        ("md Zm9v b k\r\n", "HD kZm9v b\r\n"),
        ("ma Zm9v b N0 J7 v\r\n", "VA 1\r\n7\r\n"),
        ("incr foo 1\r\n", "8\r\n"),
        ("mg Zm9 b\r\n", "CLIENT_ERROR error decoding key\r\n"),
    ]);
}

#[test]
fn a_client_may_give_the_cas_number() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange_all(&[
        ("ms k 2 E100 c\r\nab\r\n", "HD c100\r\n"),
        ("gets k\r\n", "VALUE k 0 2 100\r\nab\r\nEND\r\n"),
        ("ms k 1 C99 E7\r\nx\r\n", "EX\r\n"),
        ("ms k 1 C100 E7 c\r\nx\r\n", "HD c7\r\n"),
        ("cas k 0 0 1 7\r\ny\r\n", "STORED\r\n"),
        ("ma zero N0 J1 E0 c\r\n", "HD c0\r\n"),
        ("cas zero 0 0 1 0\r\nb\r\n", "EXISTS\r\n"),
        ("ms zero 1 C0\r\nb\r\n", "EX\r\n"),
        ("get zero\r\n", "VALUE zero 0 1\r\n1\r\nEND\r\n"),
        ("ms zero 1 E0 c\r\na\r\n", "HD c5\r\n"),
        ("cas zero 0 0 1 5\r\nb\r\n", "STORED\r\n"),
        ("ma n N0 J5 E9 c v\r\n", "VA 1 c9\r\n5\r\n"),
        ("ma n E10 c v\r\n", "VA 1 c10\r\n6\r\n"),
        ("md k I E20\r\n", "HD\r\n"),
        ("mg k c v\r\n", "VA 1 c20 X W\r\ny\r\n"),
        ("mg k c v\r\n", "VA 1 c20 Z X\r\ny\r\n"),
        ("mg new N30 E55 c\r\n", "HD c55 W\r\n"),
        ("ms k 1 E18446744073709551615\r\nx\r\n", "HD\r\n"),
        ("me k\r\n", "ME k exp=-1 la=0 cas=18446744073709551615 fetch=no cls=1 size=61\r\n"),
        // A flush covers values with any numbers, and none that is stored later.
        ("flush_all\r\n", "OK\r\n"),
        ("mg k\r\n", "EN\r\n"),
        ("ms k 1 E1\r\nx\r\n", "HD\r\n"),
        ("mg k c\r\n", "HD c1\r\n"),
        ("ms k 1 Ex\r\nx\r\n", "CLIENT_ERROR bad token in command line format\r\n"),
    ]);
}

#[test]
fn ms_tells_the_length_and_an_append_may_create() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange_all(&[
        ("ms k 3 s\r\nabc\r\n", "HD s3\r\n"),
        ("ms k 2 MA s Oa k\r\nde\r\n", "HD s5 Oa kk\r\n"),
        ("ms k 2 ME s\r\nde\r\n", "NS s2\r\n"),
        ("ms none 2 MA\r\nab\r\n", "NS\r\n"),
        ("ms none 2 MR N30\r\nab\r\n", "NS\r\n"),
        ("ms a 2 MA N30 T90 s\r\nab\r\n", "HD s2\r\n"),
        ("mg a t v\r\n", "VA 2 t30\r\nab\r\n"),
        ("ms a 2 MA N60 s\r\ncd\r\n", "HD s4\r\n"),
        ("mg a t v\r\n", "VA 4 t30\r\nabcd\r\n"),
        ("ms p 2 MP N30\r\nab\r\n", "HD\r\n"),
        ("ms q 2 MP N-1\r\nab\r\n", "HD\r\n"),
        ("mg q\r\n", "EN\r\n"),
        ("ma c N0 q\r\n", ""),
        ("ma c v\r\n", "VA 1\r\n1\r\n"),
    ]);
}

#[test]
fn bytes_that_the_client_has_are_not_sent() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange_all(&[
        ("ms k 3 E5 T100\r\nabc\r\n", "HD\r\n"),
        ("mg k v C5 c s\r\n", "HD c5 s3\r\n"),
        ("mg k v C4 c s\r\n", "VA 3 c5 s3\r\nabc\r\n"),
        ("mg k v C5 T200\r\n", "HD\r\n"),
        ("mg k t v\r\n", "VA 3 t200\r\nabc\r\n"),
        ("mg k C5\r\n", "HD\r\n"),
        ("mg none v C5 Oa\r\n", "EN Oa\r\n"),
    ]);
}

#[test]
fn md_may_remove_the_bytes_alone() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange_all(&[
        ("ms k 3 E5 T100 F7\r\nabc\r\n", "HD\r\n"),
        ("md k x C4\r\n", "EX\r\n"),
        ("md k x\r\n", "HD\r\n"),
        ("mg k v c t f\r\n", "VA 0 c5 t-1 f0\r\n\r\n"),
        ("ms k 3\r\nabc\r\n", "HD\r\n"),
        ("md k x I T30 E9 F3\r\n", "HD\r\n"),
        ("mg k v c t f\r\n", "VA 0 c9 t30 f3 X W\r\n\r\n"),
        ("ms k 3\r\nabc\r\n", "HD\r\n"),
        ("md k x E8 q\r\n", ""),
        ("mg k v c\r\n", "VA 0 c8\r\n\r\n"),
        ("md none x\r\n", "NF\r\n"),
        // A flush covers a value that kept its number.
        ("ms k 3\r\nabc\r\n", "HD\r\n"),
        ("md k x\r\n", "HD\r\n"),
        ("flush_all\r\n", "OK\r\n"),
        ("mg k\r\n", "EN\r\n"),
    ]);
}

#[test]
fn a_value_without_bytes_was_just_used() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    thread::sleep(IDLE_TIME);
    let started = Instant::now();
    client.exchange("ms k 2\r\nhi\r\nmd k x\r\n", "HD\r\nHD\r\n");
    assert!(idle_time(&mut client, "k") <= started.elapsed() + STEP);
}

#[test]
fn without_room_md_deletes_only_what_it_would_mark_stale() {
    let server = TestServer::start(|settings| settings.evict = false);
    let mut client = server.connect();
    // Longer keys than those of the other values: no copy of these values fits.
    let [kept, stale] = ["kept", "stale"].map(|name| name.repeat(40));
    client.exchange(&format!("set {kept} 0 0 1\r\nx\r\nms {stale} 1 E5\r\nx\r\n"), "STORED\r\nHD\r\n");
    for length in [10_000, 1] {
        let value = "x".repeat(length);
        let is_stored = |n: u32| {
            client.0.write_all(format!("set {length}-{n} 0 0 {length}\r\n{value}\r\n").as_bytes()).unwrap();
            client.line() == "STORED\r\n"
        };
        assert!((0..100_000).map(is_stored).any(|is_stored| !is_stored));
    }
    for (request, reply) in [
        (format!("md {kept} x\r\n"), "SERVER_ERROR out of memory\r\n"),
        (format!("md {kept} x q\r\n"), "SERVER_ERROR out of memory\r\n"),
        (format!("mg {kept} v\r\n"), "VA 1\r\nx\r\n"),
        (format!("md {stale} I C6\r\n"), "EX\r\n"),
        (format!("mg {stale} v c\r\n"), "VA 1 c5\r\nx\r\n"),
        (format!("md {stale} I C5\r\n"), "HD\r\n"),
        (format!("mg {stale}\r\n"), "EN\r\n"),
    ] {
        client.exchange(&request, reply);
    }
    assert_eq!(client.stat("stats", "delete_hits"), "1");
}

#[test]
fn one_client_wins_a_stale_value() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange_all(&[
        ("ms k 3 T1000 c\r\nold\r\n", "HD c1\r\n"),
        ("md k I T30 C9\r\n", "EX\r\n"),
        ("md k I T30 q Oa\r\n", ""),
        ("mg k v c t\r\n", "VA 3 c2 t30 X W\r\nold\r\n"),
        ("mg k v\r\n", "VA 3 Z X\r\nold\r\n"),
        ("get k\r\n", "VALUE k 0 3\r\nold\r\nEND\r\n"),
        ("ms k 4 C1\r\nlate\r\n", "EX\r\n"),
        ("ms k 4 C1 I\r\nlate\r\n", "HD\r\n"),
        ("mg k v c t\r\n", "VA 4 c3 t30 Z X\r\nlate\r\n"),
        ("ms k 3 C3\r\nnew\r\n", "HD\r\n"),
        ("mg k v c t\r\n", "VA 3 c4 t-1\r\nnew\r\n"),
        ("md k I\r\n", "HD\r\n"),
        ("md k C4\r\n", "EX\r\n"),
        ("md k C5 k\r\n", "HD kk\r\n"),
        ("md k q\r\n", "NF\r\n"),
    ]);
}

#[test]
fn one_client_wins_a_miss_or_an_expiring_value() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange_all(&[
        ("mg k N30 v t\r\n", "VA 0 t30 W\r\n\r\n"),
        ("mg k N30 v t\r\n", "VA 0 t30 Z\r\n\r\n"),
        ("ms k 1 T100\r\nx\r\n", "HD\r\n"),
        ("mg k R50 t\r\n", "HD t100\r\n"),
        ("mg k R200 t v\r\n", "VA 1 t100 W\r\nx\r\n"),
        ("mg k R200 t v\r\n", "VA 1 t100 Z\r\nx\r\n"),
        ("ms k 1 T100\r\nx\r\n", "HD\r\n"),
        ("mg k T300 R200\r\n", "HD\r\n"),
        ("mg k R400 T10 t\r\n", "HD t10 W\r\n"),
    ]);
}

#[test]
fn exactly_one_of_many_concurrent_clients_wins() {
    const CLIENTS: usize = 8;
    let server = TestServer::start(|_| {});
    let mut owner = server.connect();
    owner.exchange("ms k 1\r\nx\r\n", "HD\r\n");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for _ in 0..50 {
        owner.exchange("md k I\r\n", "HD\r\n");
        for client in &mut clients {
            client.0.write_all(b"mg k\r\n").unwrap();
        }
        let mut wins = 0;
        for client in &mut clients {
            let mut line = [0; 8];
            client.0.read_exact(&mut line).unwrap();
            match &line {
                b"HD X W\r\n" => wins += 1,
                b"HD Z X\r\n" => {}
                other => panic!("{}", other.escape_ascii()),
            }
        }
        assert_eq!(wins, 1);
    }
}

#[test]
fn ma_changes_and_creates_numbers() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange_all(&[
        ("ma n\r\n", "NF\r\n"),
        ("ma n q Ox\r\n", "NF Ox\r\n"),
        ("ma n t N100 J13 v c k\r\n", "VA 2 t-1 c1 kn\r\n13\r\n"),
        ("ma quiet N100 q\r\n", ""),
        ("ma n v t\r\n", "VA 2 t100\r\n14\r\n"),
        ("ma n MD D10 v\r\n", "VA 1\r\n4\r\n"),
        ("get n\r\n", "VALUE n 0 2\r\n4 \r\nEND\r\n"),
        ("ma n M- D10 v q\r\n", ""),
        ("ma n M+ D18446744073709551615 v\r\n", "VA 20\r\n18446744073709551615\r\n"),
        ("ma n v\r\n", "VA 1\r\n0\r\n"),
        ("ma n C1 Oz\r\n", "EX Oz\r\n"),
        ("ma n T0 t c\r\n", "HD t-1 c8\r\n"),
        ("ma new N30 T90\r\nmg new t\r\n", "HD\r\nHD t90\r\n"),
        ("ma new T60 N30\r\nmg new t\r\n", "HD\r\nHD t60\r\n"),
        ("ma other T60 N30\r\nmg other t\r\n", "HD\r\nHD t30\r\n"),
        ("ma other T-1 v\r\nmg other\r\n", "VA 1\r\n1\r\nEN\r\n"),
        ("ma n Mx\r\n", "CLIENT_ERROR invalid mode for ma M token\r\n"),
        ("set k 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("ma k q\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
    ]);
}

#[test]
fn no_reader_sees_a_change_without_its_exptime() {
    let server = TestServer::start(|_| {});
    let lines_to_mn = |client: &mut Client| {
        let lines = std::iter::from_fn(|| Some(client.line()).filter(|line| line != "MN\r\n"));
        lines.collect::<String>()
    };
    // The server's two threads have one client each.
    let (mut writer, mut reader) = (server.connect(), server.connect());
    for (changes, without_exptime) in [
        ("set n 0 0 1\r\n5\r\nma n T1000\r\n", " t-1\r\n6\r\n"),
        ("md n\r\nma n N1000 T0\r\n", " t1000"),
        ("md n\r\nma n T1000 N0\r\n", " t1000"),
        ("md n\r\nmg n N1000 T0\r\n", " t1000"),
    ] {
        server.server.store.remove(b"n");
        for _ in 0..20 {
            writer.0.write_all(format!("{}mn\r\n", changes.repeat(200)).as_bytes()).unwrap();
            reader.0.write_all(format!("{}mn\r\n", "mg n t v\r\n".repeat(200)).as_bytes()).unwrap();
            let seen = lines_to_mn(&mut reader);
            assert!(!seen.contains(without_exptime), "{changes}: {seen}");
            lines_to_mn(&mut writer);
        }
    }
}

#[test]
fn a_new_exptime_is_set_on_the_value_that_is_returned() {
    let server = TestServer::start(|_| {});
    let lines_to_mn = |client: &mut Client| {
        let lines = std::iter::from_fn(|| Some(client.line()).filter(|line| line != "MN\r\n"));
        lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
    };
    // The server's two threads have one client each.
    let (mut writer, mut toucher) = (server.connect(), server.connect());
    let mut number = 1000;
    // The writer stores even numbers, and `ma` odd ones.
    for touch in ["mg k T1000 v\r\n", "ma k T1000 N0 v\r\n"] {
        server.server.store.remove(b"k");
        for _ in 0..50 {
            let mut sets = String::new();
            for _ in 0..200 {
                sets += &format!("set k 0 0 4\r\n{number}\r\nmg k t v\r\n");
                number = 1000 + (number + 2) % 9000;
            }
            writer.0.write_all(format!("{sets}mn\r\n").as_bytes()).unwrap();
            toucher.0.write_all(format!("{}mn\r\n", touch.repeat(200)).as_bytes()).unwrap();
            let returned = lines_to_mn(&mut toucher);
            for pair in lines_to_mn(&mut writer).windows(2).filter(|pair| pair[0] == "VA 4 t1000") {
                assert!(returned.contains(&pair[1]), "{touch}: {} has an exptime", pair[1]);
            }
        }
    }
}

#[test]
fn a_quiet_pipeline_ends_with_mn() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange(
        "ms a 1 q\r\n1\r\nms b 1 q\r\n2\r\nmg a v q Oa\r\nmg none v q Ob\r\nmg b v q Oc\r\nmd a q\r\nma b q\r\nmn\r\n",
        "VA 1 Oa\r\n1\r\nVA 1 Oc\r\n2\r\nMN\r\n",
    );
}
