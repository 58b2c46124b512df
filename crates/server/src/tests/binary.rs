//! The binary protocol: replies of each request, quiet forms, errors, logins, limits.
//!
//! Texts and statuses are memcached's; `ci/suites.sh` runs memccapable's tests of the protocol on
//! both servers.

use super::*;
use crate::counters::Counter;
use crate::settings::limits::Limits;
use crate::settings::traffic_limits::TrafficLimits;

const SUCCESS: u16 = 0;

/// A request, written field by field.
#[derive(Clone, Debug, Default)]
struct Ask<'a> {
    opcode: u8,
    opaque: &'a [u8],
    unique: u64,
    extras: &'a [u8],
    key: &'a str,
    value: &'a [u8],
}

impl Ask<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x80, self.opcode];
        bytes.extend((self.key.len() as u16).to_be_bytes());
        bytes.extend([self.extras.len() as u8, 0, 0, 0]);
        bytes.extend(((self.extras.len() + self.key.len() + self.value.len()) as u32).to_be_bytes());
        bytes.extend(if self.opaque.is_empty() { b"opaq" } else { self.opaque });
        bytes.extend(self.unique.to_be_bytes());
        [&bytes, self.extras, self.key.as_bytes(), self.value].concat()
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    opcode: u8,
    status: u16,
    unique: u64,
    extras: Vec<u8>,
    key: String,
    value: String,
}

impl Client {
    fn told(&mut self) -> Told {
        let mut head = [0; 24];
        self.0.read_exact(&mut head).unwrap();
        let number = |range: std::ops::Range<usize>| head[range].iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
        assert_eq!((head[0], &head[12..16]), (0x81, &b"opaq"[..]));
        let mut body = vec![0; number(8..12) as usize];
        self.0.read_exact(&mut body).unwrap();
        let key = body.split_off(usize::from(head[4]));
        let (key, value) = key.split_at(number(2..4) as usize);
        Told {
            opcode: head[1],
            status: number(6..8) as u16,
            unique: number(16..24),
            extras: body,
            key: String::from_utf8(key.to_vec()).unwrap(),
            value: String::from_utf8(value.to_vec()).unwrap(),
        }
    }

    /// Sends a request, and returns its reply.
    fn ask(&mut self, ask: Ask<'_>) -> Told {
        self.0.write_all(&ask.bytes()).unwrap();
        let told = self.told();
        assert_eq!(told.opcode, ask.opcode);
        told
    }

    /// Sends a request and a `noop`, and returns the reply to the request, if there is one.
    fn ask_quietly(&mut self, ask: Ask<'_>) -> Option<Told> {
        self.0.write_all(&[ask.bytes(), Ask { opcode: NOOP, ..Ask::default() }.bytes()].concat()).unwrap();
        let first = self.told();
        (first.opcode != NOOP).then(|| {
            assert_eq!((first.opcode, self.told().opcode), (ask.opcode, NOOP));
            first
        })
    }

    /// Sends a request, and checks that it is answered with `status` and that the server closes.
    fn is_closed_after(&mut self, bytes: &[u8], status: u16, text: &str) {
        self.0.write_all(bytes).unwrap();
        let told = self.told();
        assert_eq!((told.status, &*told.value), (status, text));
        assert_eq!(self.0.read(&mut [0]).unwrap(), 0, "the connection is closed");
    }

    fn set(&mut self, key: &str, value: &str) -> u64 {
        let told = self.ask(Ask { opcode: SET, extras: &[0; 8], key, value: value.as_bytes(), ..Ask::default() });
        assert_eq!(told.status, SUCCESS);
        told.unique
    }

    fn value_of(&mut self, key: &str) -> Option<String> {
        let told = self.ask(Ask { opcode: GET, key, ..Ask::default() });
        (told.status == SUCCESS).then_some(told.value)
    }

    /// Returns all statistics of a topic.
    fn stats(&mut self, topic: &str) -> Vec<(String, String)> {
        self.0.write_all(&Ask { opcode: STAT, key: topic, ..Ask::default() }.bytes()).unwrap();
        let mut all = Vec::new();
        loop {
            let told = self.told();
            assert_eq!((told.opcode, told.status), (STAT, SUCCESS), "{told:?}");
            if told.key.is_empty() {
                return all;
            }
            all.push((told.key, told.value));
        }
    }
}

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const ADD: u8 = 0x02;
const REPLACE: u8 = 0x03;
const DELETE: u8 = 0x04;
const INCR: u8 = 0x05;
const DECR: u8 = 0x06;
const QUIT: u8 = 0x07;
const FLUSH: u8 = 0x08;
const GETQ: u8 = 0x09;
const NOOP: u8 = 0x0a;
const VERSION: u8 = 0x0b;
const GETK: u8 = 0x0c;
const GETKQ: u8 = 0x0d;
const APPEND: u8 = 0x0e;
const PREPEND: u8 = 0x0f;
const STAT: u8 = 0x10;
const TOUCH: u8 = 0x1c;
const GAT: u8 = 0x1d;
const GATK: u8 = 0x23;

/// Returns the extras of an `incr`.
fn change(delta: u64, initial: u64, exptime: u32) -> Vec<u8> {
    [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime.to_be_bytes()].concat()
}

#[test]
fn each_request_has_its_reply() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let flags = [1, 2, 3, 4];
    let extras = [1, 2, 3, 4, 0, 0, 0, 0];
    let stored = client.ask(Ask { opcode: SET, extras: &extras, key: "a b", value: b"hello", ..Ask::default() });
    assert_eq!((stored.status, &*stored.value), (SUCCESS, ""));
    assert!(stored.unique > 0);
    for (opcode, key) in [(GET, ""), (GETK, "a b"), (GETQ, ""), (GETKQ, "a b")] {
        let told = client.ask(Ask { opcode, key: "a b", ..Ask::default() });
        let expected = Told {
            opcode,
            status: SUCCESS,
            unique: stored.unique,
            extras: flags.to_vec(),
            key: key.into(),
            value: "hello".into(),
        };
        assert_eq!(told, expected);
    }
    let missed = client.ask(Ask { opcode: GET, key: "none", ..Ask::default() });
    assert_eq!((missed.status, &*missed.key, &*missed.value), (1, "", "Not found"));
    let missed = client.ask(Ask { opcode: GETK, key: "none", ..Ask::default() });
    assert_eq!((missed.status, &*missed.key, &*missed.value), (1, "none", ""));
    for (opcode, key, extras, value, status, text) in [
        (ADD, "a b", &extras[..], &b"x"[..], 2, "Data exists for key."),
        (ADD, "new", &extras, b"x", SUCCESS, ""),
        (REPLACE, "none", &extras, b"x", 1, "Not found"),
        (REPLACE, "new", &extras, b"y", SUCCESS, ""),
        (APPEND, "new", b"", b"z", SUCCESS, ""),
        (PREPEND, "new", b"", b"x", SUCCESS, ""),
        (APPEND, "none", b"", b"z", 5, "Not stored."),
        (INCR, "new", &change(1, 0, 0), b"", 6, "Non-numeric server-side value for incr or decr"),
        (DELETE, "a b", b"", b"", SUCCESS, ""),
        (DELETE, "a b", b"", b"", 1, "Not found"),
        (TOUCH, "none", &[0; 4], b"", 1, "Not found"),
        (GAT, "none", &[0; 4], b"", 1, "Not found"),
        (NOOP, "", b"", b"", SUCCESS, ""),
        (VERSION, "", b"", b"", SUCCESS, crate::version::VERSION),
        (0x1b, "", &[0; 4], b"", SUCCESS, ""),
        (FLUSH, "", b"", b"", SUCCESS, ""),
    ] {
        let told = client.ask(Ask { opcode, extras, key, value, ..Ask::default() });
        assert_eq!((told.status, &*told.value), (status, text), "{opcode:#x} {key}");
    }
    assert_eq!(client.value_of("new"), None, "flushed");
    let told = client.ask(Ask { opcode: QUIT, ..Ask::default() });
    assert_eq!(told.status, SUCCESS);
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
    let mut client = server.connect();
    client.0.write_all(&Ask { opcode: 0x17, ..Ask::default() }.bytes()).unwrap();
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "a quiet quit has no answer");
}

#[test]
fn a_quiet_request_is_answered_only_if_it_fails_or_finds() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let extras = [0; 8];
    let one = change(1, 5, 0);
    let never = change(1, 5, u32::MAX);
    for (opcode, key, extras, value, status) in [
        (0x11, "k", &extras[..], &b"1"[..], None),
        (0x12, "k", &extras, b"1", Some(2)),
        (0x13, "none", &extras, b"1", Some(1)),
        (0x13, "k", &extras, b"2", None),
        (0x19, "k", b"", b"0", None),
        (0x1a, "k", b"", b"1", None),
        (0x15, "k", &one, b"", None),
        (0x16, "k", &one, b"", None),
        (0x16, "none", &never, b"", Some(1)),
        (0x14, "none", b"", b"", Some(1)),
        (GETQ, "k", b"", b"", Some(SUCCESS)),
        (GETQ, "none", b"", b"", None),
        (GETKQ, "none", b"", b"", None),
        (0x1e, "k", &[0; 4], b"", Some(SUCCESS)),
        (0x1e, "none", &[0; 4], b"", None),
        (0x24, "none", &[0; 4], b"", None),
        (0x14, "k", b"", b"", None),
        (0x18, "", b"", b"", None),
        (0x18, "", &[0; 4], b"", None),
    ] {
        let told = client.ask_quietly(Ask { opcode, extras, key, value, ..Ask::default() });
        assert_eq!(told.map(|told| told.status), status, "{opcode:#x} {key}");
    }
}

#[test]
fn cas_numbers_are_compared() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let old = client.set("k", "1");
    let new = client.set("k", "2");
    let one = change(1, 0, 0);
    for (opcode, extras, value) in [
        (SET, &[0; 8][..], &b"3"[..]),
        (REPLACE, &[0; 8], b"3"),
        (APPEND, b"", b"3"),
        (DELETE, b"", b""),
        (INCR, &one, b""),
    ] {
        let told = client.ask(Ask { opcode, unique: old, extras, key: "k", value, ..Ask::default() });
        assert_eq!((told.status, &*told.value), (2, "Data exists for key."), "{opcode:#x}");
    }
    assert_eq!(client.value_of("k").as_deref(), Some("2"));
    let told = client.ask(Ask { opcode: SET, unique: 7, extras: &[0; 8], key: "none", value: b"x", ..Ask::default() });
    assert_eq!(told.status, 1, "with a CAS number, the value must be there");
    let told = client.ask(Ask { opcode: INCR, unique: new, extras: &one, key: "k", ..Ask::default() });
    assert_eq!((told.status, told.value.as_bytes()), (SUCCESS, &3u64.to_be_bytes()[..]));
    assert!(told.unique > new);
    let told = client.ask(Ask { opcode: DELETE, unique: told.unique, key: "k", ..Ask::default() });
    assert_eq!(told.status, SUCCESS);
    let count = |counter| server.server.counters.get(counter);
    assert_eq!((count(Counter::CasBadval), count(Counter::CasMisses), count(Counter::CasHits)), (2, 1, 0));
    assert_eq!((count(Counter::DeleteHits), count(Counter::IncrHits)), (1, 1));
}

#[test]
fn an_absent_number_is_created_unless_the_exptime_forbids_it() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let number =
        |told: Told| (told.status == SUCCESS).then(|| told.value.bytes().fold(0, |n, b| n << 8 | u64::from(b)));
    let mut ask = |opcode, extras: &[u8]| number(client.ask(Ask { opcode, extras, key: "n", ..Ask::default() }));
    assert_eq!(ask(INCR, &change(1, 9, u32::MAX)), None);
    assert_eq!(ask(INCR, &change(1, 9, 0)), Some(9));
    assert_eq!(ask(INCR, &change(2, 9, 0)), Some(11));
    assert_eq!(ask(DECR, &change(1, 9, u32::MAX)), Some(10));
    assert_eq!(ask(DECR, &change(100, 9, 0)), Some(0));
    assert_eq!(client.value_of("n").as_deref(), Some("0 "));
    // A number behind more zeros than a piece has bytes.
    client.set("n", &format!("{:09000}", 5));
    let mut ask = |opcode, extras: &[u8]| number(client.ask(Ask { opcode, extras, key: "n", ..Ask::default() }));
    assert_eq!(ask(INCR, &change(2, 9, 0)), Some(7));
    let missed = client.ask(Ask { opcode: DECR, extras: &change(1, 3, 1 << 30), key: "past", ..Ask::default() });
    assert_eq!(missed.status, SUCCESS);
    assert_eq!(client.value_of("past"), None, "2^30 is a date in 2004");
    assert_eq!(server.server.counters.get(Counter::IncrMisses), 1);
    let mut watcher = server.connect();
    watcher.0.write_all(b"watch mutations\r\n").unwrap();
    watcher.expect("OK\r\n");
    let made = client.ask(Ask { opcode: INCR, extras: &change(1, 13, 90), key: "new", ..Ask::default() });
    assert_eq!(made.status, SUCCESS);
    let line = watcher.line();
    assert!(line.contains(" type=item_store key=new status=stored cmd=add ttl=90 "), "{line}");
    assert!(line.ends_with(" size=2\n"), "{line}");
}

#[test]
fn touches_set_the_exptime() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let unique = client.set("k", "v");
    let told = client.ask(Ask { opcode: TOUCH, extras: &100u32.to_be_bytes(), key: "k", ..Ask::default() });
    assert_eq!((told.status, told.unique, told.extras, &*told.value), (SUCCESS, unique, vec![0; 4], ""));
    let told = client.ask(Ask { opcode: GATK, extras: &100u32.to_be_bytes(), key: "k", ..Ask::default() });
    assert_eq!((&*told.key, &*told.value), ("k", "v"));
    let mut text = server.connect();
    text.exchange("mg k t\r\n", "HD t100\r\n");
    // A date in the past.
    let told = client.ask(Ask { opcode: GAT, extras: &(1u32 << 30).to_be_bytes(), key: "k", ..Ask::default() });
    assert_eq!(&*told.value, "v");
    text.exchange("get k\r\n", "END\r\n");
    assert_eq!(text.stat("stats", "cmd_touch"), "3");
    assert_eq!(text.stat("stats", "touch_hits"), "3");
}

#[test]
fn a_stream_is_answered_in_order_however_it_is_split() {
    let server = TestServer::start(|_| {});
    let large = "x".repeat(100_000);
    let set =
        |key, value: &str| Ask { opcode: SET, extras: &[0; 8], key, value: value.as_bytes(), ..Ask::default() }.bytes();
    let get = |key| Ask { opcode: GETK, key, ..Ask::default() }.bytes();
    let stream = [set("a", "1"), set("b", ""), set("c", &large), get("a"), get("b"), get("c"), get("d")].concat();
    for step in [1, 23, 24, 25, 4096, stream.len()] {
        // Byte by byte, only the beginning: the rest takes long.
        let (slow, fast) = stream.split_at(if step < 4096 { 300 } else { 0 });
        let mut client = server.connect();
        client.0.set_nodelay(true).unwrap();
        for part in slow.chunks(step).chain(fast.chunks(step.max(4096))) {
            client.0.write_all(part).unwrap();
        }
        let told: Vec<_> =
            (0..7).map(|_| client.told()).map(|told| (told.status, told.key, told.value.len())).collect();
        assert!(told[..3].iter().all(|told| told.0 == SUCCESS));
        let read = |n: usize| (told[n].0, &*told[n].1, told[n].2);
        assert_eq!((read(3), read(4), read(5), read(6)), ((0, "a", 1), (0, "b", 0), (0, "c", 100_000), (1, "d", 0)));
    }
}

#[test]
fn refused_requests_leave_the_stream_in_step_or_close_it() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.set("k", "old");
    let large = vec![b'x'; 2 << 20];
    let told = client.ask(Ask { opcode: ADD, extras: &[0; 8], key: "k", value: &large, ..Ask::default() });
    assert_eq!((told.status, &*told.value), (3, "Too large."));
    assert_eq!(client.value_of("k").as_deref(), Some("old"));
    let told = client.ask_quietly(Ask { opcode: 0x11, extras: &[0; 8], key: "k", value: &large, ..Ask::default() });
    assert_eq!(told.map(|told| told.status), Some(3), "errors of quiet requests are told");
    assert_eq!(client.value_of("k"), None, "the value was to be replaced");
    for opcode in [0x1f, 0x25, 0x30, 0x3e, 0xff] {
        let told = client.ask(Ask { opcode, extras: b"1234", key: "key", value: b"value", ..Ask::default() });
        assert_eq!((told.status, &*told.value), (0x81, "Unknown command"));
    }
    for opcode in [0x20, 0x21, 0x22] {
        let key = if opcode == 0x20 { "" } else { "PLAIN" };
        let told = client.ask(Ask { opcode, key, ..Ask::default() });
        assert_eq!(told.status, 0x81, "without users there is no login");
    }
    // Lengths that no request of the opcode has.
    let long = "k".repeat(251);
    for ask in [
        Ask { opcode: GET, ..Ask::default() },
        Ask { opcode: GET, key: "k", value: b"v", ..Ask::default() },
        Ask { opcode: GET, key: "k", extras: b"1234", ..Ask::default() },
        Ask { opcode: GET, key: &long, ..Ask::default() },
        Ask { opcode: SET, key: "k", value: b"v", ..Ask::default() },
        Ask { opcode: SET, extras: &[0; 8], value: b"v", ..Ask::default() },
        Ask { opcode: INCR, extras: &[0; 19], key: "k", ..Ask::default() },
        Ask { opcode: APPEND, extras: &[0; 8], key: "k", value: b"v", ..Ask::default() },
        Ask { opcode: DELETE, key: "k", value: b"v", ..Ask::default() },
        Ask { opcode: FLUSH, extras: b"12", ..Ask::default() },
        Ask { opcode: NOOP, key: "k", ..Ask::default() },
        Ask { opcode: VERSION, value: b"v", ..Ask::default() },
        Ask { opcode: QUIT, extras: b"1234", ..Ask::default() },
        Ask { opcode: TOUCH, key: "k", ..Ask::default() },
        Ask { opcode: STAT, extras: b"1234", ..Ask::default() },
        Ask { opcode: 0x1b, ..Ask::default() },
    ] {
        server.connect().is_closed_after(&ask.bytes(), 4, "Invalid arguments");
    }
    let mut bytes = Ask { opcode: GET, key: "key", ..Ask::default() }.bytes();
    bytes[11] = 2;
    server.connect().is_closed_after(&bytes, 0x81, "Unknown command");
    let mut bytes = Ask { opcode: SET, extras: &[0; 8], key: "key", ..Ask::default() }.bytes();
    bytes[8] = 0x7f;
    server.connect().is_closed_after(&bytes, 4, "Invalid arguments");
    // Bytes that are no request are not answered, but the requests before them are.
    let mut client = server.connect();
    client.0.write_all(&[Ask { opcode: NOOP, ..Ask::default() }.bytes(), b"get k\r\n".repeat(5)].concat()).unwrap();
    assert_eq!(client.told().opcode, NOOP);
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
}

#[test]
fn statistics_are_one_reply_each() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.set("a:k", "v");
    let stats = client.stats("");
    let find = |name: &str| stats.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
    assert_eq!(
        (find("cmd_set"), find("curr_items"), find("version")),
        (Some("1"), Some("1"), Some(crate::version::VERSION))
    );
    assert!(client.stats("settings").contains(&("binding_protocol".into(), "auto-negotiate".into())));
    for topic in ["items", "slabs", "sizes", "conns", "tenants", "shrinkers", "reclaim"] {
        assert!(!client.stats(topic).is_empty(), "{topic}");
    }
    assert_eq!(client.stats("detail on"), []);
    client.set("a:k", "v");
    assert_eq!(client.stats("detail off"), []);
    let dump = "PREFIX a get 0 hit 0 set 1 del 0\r\nEND\r\n";
    assert_eq!(client.stats("detail dump"), [("detailed".into(), dump.into())]);
    assert_eq!(client.stats("reset"), []);
    assert!(client.stats("").contains(&("cmd_set".into(), "0".into())));
    for key in ["nonsense", "detail", "cachedump 1 0"] {
        let told = client.ask(Ask { opcode: STAT, key, ..Ask::default() });
        assert_eq!((told.status, &*told.value), (1, "Not found"), "{key}");
    }
    // The text protocol's are lines again, also of this connection's neighbour.
    let mut text = server.connect();
    assert_eq!(text.stat("stats", "curr_items"), "1");
}

#[test]
fn the_first_byte_tells_the_protocol_unless_it_is_set() {
    let noop = Ask { opcode: NOOP, ..Ask::default() };
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("get k\r\n", "END\r\n");
    // Later in a stream, the byte is a part of an unknown command.
    client.0.write_all(b"\x80\r\n").unwrap();
    client.expect("ERROR\r\n");
    let server = TestServer::start(|settings| settings.protocol = Protocol::Ascii);
    let mut client = server.connect();
    client.0.write_all(b"\x80\r\n").unwrap();
    client.expect("ERROR\r\n");
    let server = TestServer::start(|settings| settings.protocol = Protocol::Binary);
    assert_eq!(server.connect().ask(noop).status, SUCCESS);
    let mut client = server.connect();
    client.0.write_all(&b"get k\r\n".repeat(5)).unwrap();
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_tenants_connection_is_bounded_as_with_text() {
    let server = TestServer::start(|settings| {
        settings.listen.push(ListenAddress::parse("tag_shop_:127.0.0.1", 0, b':').unwrap());
    });
    let (mut all, mut shop) = (server.connect(), server.connect_to(server.addresses[1]));
    shop.set("k", "v");
    all.exchange("get shop:k\r\n", "VALUE shop:k 0 1\r\nv\r\nEND\r\n");
    for ask in [
        Ask { opcode: FLUSH, ..Ask::default() },
        Ask { opcode: 0x18, ..Ask::default() },
        Ask { opcode: STAT, key: "tenants", ..Ask::default() },
        Ask { opcode: STAT, key: "detail on", ..Ask::default() },
    ] {
        let told = shop.ask(ask);
        assert_eq!((told.status, &*told.value), (0x20, "not allowed on a tenant's own connection"));
    }
    all.exchange("tenant set shop deny=set,touch\r\n", "OK\r\n");
    for (opcode, extras, value, word) in
        [(SET, &[0; 8][..], &b"v"[..], "set"), (0x11, &[0; 8], b"v", "set"), (GAT, &[0; 4], b"", "touch")]
    {
        let told = shop.ask(Ask { opcode, extras, key: "k", value, ..Ask::default() });
        assert_eq!((told.status, told.value), (0x20, format!("{word} is denied to this tenant")));
    }
    assert_eq!(shop.value_of("k").as_deref(), Some("v"));
    all.exchange("tenant set shop deny=none requests=5\r\n", "OK\r\n");
    let asks = Ask { opcode: GET, key: "k", ..Ask::default() }.bytes().repeat(10);
    shop.0.write_all(&asks).unwrap();
    let told: Vec<_> = (0..10).map(|_| shop.told()).collect();
    let busy: Vec<_> = told.iter().filter(|told| told.status == 0x85).collect();
    assert!(!busy.is_empty() && busy.len() < 10, "{told:?}");
    assert!(busy[0].value.starts_with("the tenant is above its limit of "), "{busy:?}");
}

#[test]
fn a_login_is_plain_sasl() {
    let traffic = TrafficLimits { connections: Some(1), ..TrafficLimits::default() };
    let server = TestServer::start_with_users("sasl", |settings| {
        settings.limits.push(("shop".to_owned(), Limits { traffic, ..Limits::default() }));
    });
    let log_in = |message| Ask { opcode: 0x21, key: "PLAIN", value: message, ..Ask::default() };
    let get = Ask { opcode: GET, key: "k", ..Ask::default() };
    let set = Ask { opcode: SET, extras: &[0; 8], key: "k", value: b"v", ..Ask::default() };
    for ask in [&get, &set, &Ask { opcode: NOOP, ..Ask::default() }] {
        server.connect().is_closed_after(&ask.bytes(), 0x20, "Auth failure.");
    }
    // A value that will not be stored is not received either.
    server.connect().is_closed_after(&set.bytes()[..24], 0x20, "Auth failure.");
    let mut client = server.connect();
    assert_eq!(client.ask(Ask { opcode: VERSION, ..Ask::default() }).status, SUCCESS);
    assert_eq!(client.ask(Ask { opcode: 0x20, ..Ask::default() }).value, "PLAIN");
    for message in [&b"\0shop\0wrong"[..], b"shop secret", b"\0\0", b"\0shop", b"\0shop\0secret\0"] {
        assert_eq!(client.ask(log_in(message)).status, 0x20);
    }
    let step = Ask { opcode: 0x22, key: "PLAIN", value: b"\0shop\0secret", ..Ask::default() };
    assert_eq!(client.ask(step.clone()).status, 0x20, "no login has begun");
    assert_eq!(client.ask(Ask { opcode: 0x21, key: "CRAM-MD5", ..Ask::default() }).status, 0x20);
    assert_eq!(client.ask(log_in(&[b'x'; 4096])).status, 3);
    assert_eq!(client.ask(log_in(b"")).status, 0x21, "the message is to follow");
    let told = client.ask(step);
    assert_eq!((told.status, &*told.value), (SUCCESS, "Authenticated"));
    client.set("k", "v");
    // The tenant's one connection may log in again.
    assert_eq!(client.ask(log_in(b"\0shop\0secret")).status, SUCCESS);
    let mut administrator = server.connect();
    assert_eq!(administrator.ask(log_in(b"who\0default\0root")).status, SUCCESS);
    assert_eq!(administrator.value_of("shop:k").as_deref(), Some("v"));
    assert_eq!(administrator.ask(log_in(b"\0shop\0wrong")).status, 0x20);
    administrator.is_closed_after(&get.bytes(), 0x20, "Auth failure.");
    let count = |counter| server.server.counters.get(counter);
    assert_eq!((count(Counter::AuthCmds), count(Counter::AuthErrors)), (11, 8));
}

#[test]
fn bytes_behind_a_sasl_login_are_charged() {
    let traffic = TrafficLimits { bandwidth: ByteSize::kib(1), ..TrafficLimits::default() };
    let server = TestServer::start_with_users("behind_sasl", |settings| {
        settings.limits.push(("shop".to_owned(), Limits { traffic, ..Limits::default() }));
    });
    let mut client = server.connect();
    let log_in = Ask { opcode: 0x21, key: "PLAIN", value: b"\0shop\0secret", ..Ask::default() };
    let set = Ask { opcode: SET, extras: &[0; 8], key: "k", value: &[b'x'; 10_000], ..Ask::default() };
    let begun = Instant::now();
    client.0.write_all(&[log_in.bytes(), set.bytes()].concat()).unwrap();
    assert_eq!((client.told().status, client.told().status), (SUCCESS, SUCCESS));
    let charged = server.time_charged("shop", begun);
    assert!(charged > Duration::from_secs(9), "{charged:?} of 9.8 s");
}

#[test]
fn a_flush_may_be_forbidden() {
    let server = TestServer::start(|settings| settings.flush = false);
    let told = server.connect().ask(Ask { opcode: FLUSH, ..Ask::default() });
    assert_eq!((told.status, &*told.value), (0x20, "Auth failure."));
}

#[test]
fn a_value_without_room_is_refused_and_discarded() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.set("k", "old");
    let held = server.fill_receive_budget("default");
    let value = vec![b'x'; 900_000];
    let told = client.ask(Ask { opcode: ADD, extras: &[0; 8], key: "none", value: &value, ..Ask::default() });
    assert_eq!((told.status, &*told.value), (0x82, "Out of memory"));
    assert_eq!(client.value_of("k").as_deref(), Some("old"), "the stream is in step");
    // As in memcached: the client regards the old value as replaced, also with a CAS number.
    let set = Ask { opcode: SET, extras: &[0; 8], key: "k", value: &value, unique: 77, ..Ask::default() };
    assert_eq!(client.ask(set).status, 0x82);
    assert_eq!(client.value_of("k"), None);
    drop(held);
}

#[test]
fn a_long_dump_has_several_replies() {
    let server = TestServer::start(|settings| settings.budget = ByteSize::mib(128));
    let mut client = server.connect();
    client.stats("detail on");
    let names: Vec<String> = (0..2_500).map(|n| format!("{n:05}{}", "x".repeat(100))).collect();
    for name in names.iter().rev() {
        client.set(&format!("{name}:k"), "v");
    }
    let parts = client.stats("detail dump");
    assert!(parts.len() > 2 && parts.iter().all(|(name, part)| name == "detailed" && part.len() < 66_000));
    let lines: String = names.iter().map(|name| format!("PREFIX {name} get 0 hit 0 set 1 del 0\r\n")).collect();
    let dump: String = parts.into_iter().map(|(_, part)| part).collect();
    assert!(dump == format!("{lines}END\r\n"));
}

#[test]
fn a_key_with_line_ends_is_shown_in_base64() {
    let server = TestServer::start(|_| {});
    server.connect().set("a\r\nEN b", "v");
    let mut text = server.connect();
    text.exchange("mg YQ0KRU4gYg== b k v\r\n", "VA 1 kYQ0KRU4gYg== b\r\nv\r\n");
    text.0.write_all(b"me YQ0KRU4gYg== b\r\n").unwrap();
    assert!(text.line().starts_with("ME YQ0KRU4gYg== exp=-1 "));
}
