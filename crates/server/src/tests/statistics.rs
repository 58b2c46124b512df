//! `stats slabs`, `sizes`, `conns`, `cachedump`, `reset`, counts of reads that found an expired or
//! a flushed value, and this server's `tenants`, `shrinkers` and `reclaim`.
//!
//! The numbers of memcached's topics are expected by memcached's rules: tools that read its
//! statistics must work unchanged.

use lowwater::shrinker::{Count, Scan, ShrinkControl, Shrinker};
use lowwater::NodeId;
use parking_lot::Mutex;

use super::*;

/// Returns the lines of the reply to `command`, without `END`.
fn lines(client: &mut Client, command: &str) -> Vec<String> {
    client.0.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut lines = Vec::new();
    loop {
        match client.line().trim_end() {
            "END" => return lines,
            line => lines.push(line.to_owned()),
        }
    }
}

fn number(client: &mut Client, command: &str, name: &str) -> u64 {
    client.stat(command, name).parse().unwrap()
}

#[test]
fn stats_slabs_shows_the_memory_of_entries() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let begun = Instant::now();
    assert_eq!(number(&mut client, "stats slabs", "1:used_chunks"), 0);
    for n in 0..100 {
        client.exchange(&format!("set k{n} 0 0 1000\r\n{}\r\n", "v".repeat(1000)), "STORED\r\n");
    }
    client.exchange("get k1\r\nget none\r\n", &format!("VALUE k1 0 1000\r\n{}\r\nEND\r\nEND\r\n", "v".repeat(1000)));
    let slab = |client: &mut Client, name: &str| number(client, "stats slabs", &format!("1:{name}"));
    assert_eq!((slab(&mut client, "used_chunks"), slab(&mut client, "cmd_set")), (100, 100));
    assert_eq!(slab(&mut client, "get_hits"), 1);
    let chunks = slab(&mut client, "total_chunks");
    assert_eq!(slab(&mut client, "free_chunks"), chunks - 100);
    assert_eq!(chunks, slab(&mut client, "total_pages") * slab(&mut client, "chunks_per_page"));
    assert_eq!(number(&mut client, "stats slabs", "active_slabs"), 1);
    // At least the values of 1000 bytes; with entries and index, less than 2 MiB.
    let total = number(&mut client, "stats slabs", "total_malloced");
    assert!((100_000..2 << 20).contains(&total), "{total}");
    assert_eq!(number(&mut client, "stats items", "items:1:number"), 100);
    assert!(number(&mut client, "stats items", "items:1:age") <= begun.elapsed().as_secs() + 1);
}

#[test]
fn sizes_are_counted_in_steps_of_32_bytes() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    assert_eq!(lines(&mut client, "stats sizes"), Vec::<String>::new());
    // An item is 57 bytes (memcached's header), the key, the value, and a line end.
    for (key, length) in [("a", 36), ("b", 36), ("c", 37), ("d", 1000)] {
        client.exchange(&format!("set {key} 0 0 {length}\r\n{}\r\n", "v".repeat(length)), "STORED\r\n");
    }
    wait_for_sizes(&mut client, &["STAT 96 2", "STAT 128 1", "STAT 1088 1"]);
    client.exchange("delete d\r\n", "DELETED\r\n");
    wait_for_sizes(&mut client, &["STAT 96 2", "STAT 128 1"]);
}

/// Waits until `stats sizes` shows `expected`: the counts of an earlier call are reused for a
/// second.
fn wait_for_sizes(client: &mut Client, expected: &[&str]) {
    let begun = Instant::now();
    while lines(client, "stats sizes") != expected {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", lines(client, "stats sizes"));
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn sizes_are_counted_once_for_many_calls_and_not_while_the_server_ends() {
    until_ended_in_time(|| {
        let mut server = TestServer::start(|_| {});
        let (mut client, mut waits) = (server.connect(), server.connect());
        // In one request, so that the second call comes within a second.
        client.exchange(
            "set a 0 0 1\r\nx\r\nstats sizes\r\nset b 0 0 1\r\nx\r\nstats sizes\r\n",
            "STORED\r\nSTAT 64 1\r\nEND\r\nSTORED\r\nSTAT 64 1\r\nEND\r\n",
        );
        wait_for_sizes(&mut client, &["STAT 64 2"]);
        let shared = Arc::clone(&server.server);
        let _crawl = shared.crawl_lock.blocking_lock();
        waits.0.write_all(b"mn\r\nstats sizes\r\n").unwrap();
        waits.wait_until_received();
        if !server.stop_in_time() {
            return false;
        }
        waits.expect("MN\r\nSERVER_ERROR the server is shutting down\r\n");
        true
    });
}

#[test]
fn connections_are_listed_while_they_are_open() {
    let server = TestServer::start(|_| {});
    let (mut client, other) = (server.connect(), server.connect());
    let mut waits = server.connect();
    waits.0.write_all(b"set a 0 0 10\r\nxyz").unwrap();
    let of = |lines: &[String], client: &Client| -> Vec<String> {
        let address = format!(":addr tcp:{}", client.0.local_addr().unwrap());
        let number = lines.iter().find_map(|line| line.strip_suffix(&address)).map(|start| format!("{start}:"));
        let Some(number) = number else { return Vec::new() };
        lines.iter().filter_map(|line| line.strip_prefix(&number)).map(str::to_owned).collect()
    };
    let begun = Instant::now();
    let listed = loop {
        let listed = lines(&mut client, "stats conns");
        if of(&listed, &waits).iter().any(|line| line == "state conn_nread") && !of(&listed, &other).is_empty() {
            break listed;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{listed:?}");
    };
    let address = format!("listen_addr tcp:{}", server.address);
    assert_eq!(of(&listed, &client)[1..3], [address.clone(), "state conn_parse_cmd".into()]);
    assert_eq!(of(&listed, &other)[1..3], [address, "state conn_read".into()]);
    assert!(of(&listed, &other)[3].starts_with("secs_since_last_cmd "), "{listed:?}");
    let listener = [format!("addr tcp:{}", server.address), "state conn_listening".into()];
    assert!(listener.iter().all(|part| listed.iter().any(|line| line.ends_with(&format!(":{part}")))), "{listed:?}");
    let gone = other.0.local_addr().unwrap().to_string();
    drop(other);
    let begun = Instant::now();
    while lines(&mut client, "stats conns").iter().any(|line| line.ends_with(&gone)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "a closed connection is listed");
    }
}

#[test]
fn a_cachedump_lists_keys() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    client.exchange(
        "set a 0 0 3\r\nabc\r\nset shop:b 5 100 4\r\nabcd\r\nms YWI= 1 b\r\nx\r\n",
        "STORED\r\nSTORED\r\nHD\r\n",
    );
    let mut listed = lines(&mut client, "stats cachedump 1 0");
    listed.sort();
    assert_eq!((listed.len(), listed[0].as_str()), (2, "ITEM a [3 b; 0 s]"), "without keys in base64: {listed:?}");
    let expires = listed[1].strip_prefix("ITEM shop:b [4 b; ").and_then(|rest| rest.strip_suffix(" s]")).unwrap();
    assert!((now + 99..now + 160).contains(&expires.parse().unwrap()), "{listed:?} at {now}");
    assert_eq!(lines(&mut client, "stats cachedump 1 1").len(), 1);
    assert_eq!(lines(&mut client, "stats cachedump 2 0").len(), 0);
    client.exchange(
        "stats cachedump\r\nstats cachedump 1\r\nstats cachedump x 1\r\nstats cachedump 1 -1\r\nstats cachedump 64 1\r\n",
        "CLIENT_ERROR bad command line\r\nCLIENT_ERROR bad command line\r\nCLIENT_ERROR bad command line format\r\n\
         CLIENT_ERROR bad command line format\r\nCLIENT_ERROR Illegal slab id\r\n",
    );
    // More than one batch of values, and more than one buffer of lines.
    for n in 0..6000 {
        client.0.write_all(format!("set many{n:050} 0 0 1 noreply\r\nx\r\n").as_bytes()).unwrap();
    }
    assert_eq!(lines(&mut client, "stats cachedump 1 0").len(), 6002);
    assert_eq!(lines(&mut client, "stats cachedump 1 5000").len(), 5000);
}

#[test]
fn cachedump_can_be_disabled() {
    let server = TestServer::start(|settings| settings.dump = false);
    let mut client = server.connect();
    client.exchange(
        "stats cachedump 1 0\r\nstats detail dump\r\nlru_crawler metadump all\r\nlru_crawler mgdump all\r\n\
         lru_crawler crawl all\r\n",
        "CLIENT_ERROR stats cachedump not allowed\r\nCLIENT_ERROR stats detail not allowed\r\n\
         ERROR metadump not allowed\r\nERROR key dump not allowed\r\nOK\r\n",
    );
    assert_eq!(client.stat("stats settings", "dump_enabled"), "no");
}

#[test]
fn reads_of_expired_and_flushed_values_are_counted_once() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("get a\r\n", "END\r\n");
    assert_eq!((client.stat("stats", "get_expired"), client.stat("stats", "get_flushed")), ("0".into(), "0".into()));
    // The reaper removes expired values, too. So there are many, and all are read again and again
    // while they expire.
    let mut found = 0;
    let keys: String = (0..200).map(|n| format!(" e{n}")).collect();
    let sets: String = (0..200).map(|n| format!("set e{n} 0 1 1\r\nx\r\n")).collect();
    let end = Instant::now() + Duration::from_secs(60);
    while found == 0 {
        assert!(Instant::now() < end, "no read found an expired value");
        client.exchange(&sets, &"STORED\r\n".repeat(200));
        // Until none is left, and once more: each expired value is read at least twice.
        while !lines(&mut client, &format!("get{keys}")).is_empty() {}
        client.exchange(&format!("get{keys}\r\n"), "END\r\n");
        found = number(&mut client, "stats", "get_expired");
    }
    let misses = number(&mut client, "stats", "get_misses");
    assert!(found * 2 <= misses, "each expired value is read twice, and counted at most once: {found} of {misses}");
    // A flush, before its memory is reclaimed.
    client.exchange("set f 0 0 1\r\nx\r\n", "STORED\r\n");
    server.server.store.flush();
    client.exchange("touch f 10\r\n", "NOT_FOUND\r\n");
    assert_eq!(client.stat("stats", "get_flushed"), "0", "a touch is no read");
    client.exchange("get f\r\ngat 10 f\r\n", "END\r\nEND\r\n");
    assert_eq!(client.stat("stats", "get_flushed"), "2");
}

#[test]
fn a_reset_sets_all_counts_to_zero() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("stats detail on\r\n", "OK\r\n");
    let value = "v".repeat(100_000);
    for n in 0..200 {
        client.store_with_patience(&format!("set shop:{n} 0 0 100000\r\n{value}\r\n"));
    }
    client.exchange("set shop:short 0 1 1\r\nx\r\nget none\r\n", "STORED\r\nEND\r\n");
    assert!(number(&mut client, "stats", "evictions") > 0 && number(&mut client, "stats", "evicted_unfetched") > 0);
    let items = number(&mut client, "stats", "curr_items");
    let evictions = number(&mut client, "stats tenants", "shop:evictions");
    client.exchange("stats reset\r\n", "RESET\r\n");
    for name in ["cmd_set", "get_misses", "total_items", "get_expired"] {
        assert_eq!(client.stat("stats", name), "0", "{name}");
    }
    // The reclaimer may still be at work.
    for (command, name) in [("stats", "evictions"), ("stats", "evicted_unfetched"), ("stats items", "items:1:evicted")]
    {
        assert!(number(&mut client, command, name) <= 10, "{name}");
    }
    client.exchange("stats detail dump\r\n", "END\r\n");
    client.exchange("set shop:a 0 0 1\r\nx\r\n", "STORED\r\n");
    client.exchange("stats detail dump\r\n", "PREFIX shop get 0 hit 0 set 1 del 0\r\nEND\r\n");
    assert_eq!(client.stat("stats", "total_items"), "1");
    assert!(number(&mut client, "stats", "curr_items") > items / 2, "values stay");
    assert!(number(&mut client, "stats tenants", "shop:evictions") >= evictions, "counts of tenants stay");
}

#[test]
fn tenants_have_separate_limits_and_statistics() {
    let low = Limits { low: ByteSize::mib(1), ..Limits::default() };
    let server = TestServer::start(|settings| settings.limits = vec![("shop".into(), low)]);
    let mut client = server.connect();
    client.exchange(
        "set shop:a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\nget shop:a shop:b b\r\n",
        "STORED\r\nSTORED\r\nVALUE shop:a 0 1\r\nx\r\nVALUE b 0 1\r\nx\r\nEND\r\n",
    );
    for (name, value) in [
        ("shop:items", "1"),
        ("shop:hits", "1"),
        ("shop:misses", "1"),
        ("shop:evictions", "0"),
        ("shop:low", "1048576"),
        ("shop:max", "max"),
        ("default:items", "1"),
        ("default:hits", "1"),
    ] {
        assert_eq!(client.stat("stats tenants", name), value, "{name}");
    }
    assert_eq!(client.stat("stats", "curr_items"), "2");
    assert_eq!(client.stat("stats", "limit_maxbytes"), (8 << 20).to_string());
    assert_eq!(client.stat("stats settings", "item_size_max"), (1 << 20).to_string());
}

#[test]
fn stats_show_shrinkers_and_reclaim() {
    let server = TestServer::start(|settings| settings.budget = ByteSize::mib(1));
    let mut client = server.connect();
    assert_eq!(server.connect().stat("stats shrinkers", "values-0:last_run_ms_ago"), "never");
    // A later call within a second would get the same lines.
    thread::sleep(Duration::from_secs(1));
    let value = "x".repeat(10_000);
    for n in 0..200 {
        client.store_with_patience(&format!("set t:{n} 0 0 10000\r\n{value}\r\n"));
    }
    let number = |client: &mut Client, topic: &str, name: &str| client.stat(topic, name).parse::<u64>().unwrap();
    let evictions = number(&mut client, "stats", "evictions");
    assert!(evictions >= 95, "2 MB were stored in 1 MB, with only {evictions} evictions");
    let objects = number(&mut client, "stats shrinkers", "values-0:objects");
    assert!((50..=200 - 95).contains(&objects), "{objects} values are there");
    assert_eq!(number(&mut client, "stats shrinkers", "values-0:live_pairs"), 1);
    // So far the threads that served a `set` may have evicted everything. A limit far below the
    // usage leaves work for the reclaimer.
    let freed = number(&mut client, "stats reclaim", "node0:freed");
    client.exchange("tenant set t max=200K\r\n", "OK\r\n");
    let deadline = Instant::now() + Duration::from_secs(60);
    while number(&mut client, "stats tenants", "t:bytes") > 200 << 10
        || number(&mut client, "stats reclaim", "node0:freed") <= freed
    {
        assert!(Instant::now() < deadline, "the reclaimer never woke");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(number(&mut client, "stats reclaim", "node0:wakeups") > 0);
    assert_eq!(number(&mut client, "stats reclaim", "limit_maxbytes"), 1 << 20);
}

/// Its count waits until the sender of `opened` is dropped.
struct Gate {
    entered: mpsc::Sender<()>,
    opened: Mutex<mpsc::Receiver<()>>,
}

impl Shrinker for Gate {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        let _ = self.entered.send(());
        // An error means that the sender is dropped.
        let _ = self.opened.lock().recv();
        Count::Empty
    }

    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        Scan::Stop
    }
}

#[test]
fn a_walk_for_statistics_delays_no_other_connection() {
    let server = TestServer::start(|settings| settings.threads = 1);
    let registry = server.server.store.runtime().registry();
    let prepared = registry.builder("gate").alloc().unwrap();
    prepared.occupancy().occupied(registry.root(), NodeId::ZERO);
    let ((entered, has_entered), (open, opened)) = (mpsc::channel(), mpsc::channel());
    let _registration = prepared.register(Arc::new(Gate { entered, opened: Mutex::new(opened) }));
    // Dropped before the registration: its end waits for the count.
    let open = open;
    let (mut asks, mut other) = (server.connect(), server.connect());
    asks.0.write_all(&b"stats shrinkers\r\n".repeat(100)).unwrap();
    has_entered.recv_timeout(Duration::from_secs(60)).expect("the shrinker is counted");
    other.exchange("set k 0 0 1\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    drop(open);
    (0..100).for_each(|_| while asks.line() != "END\r\n" {});
}

#[test]
fn pairs_are_counted_once_for_many_calls() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    for topic in ["shrinkers", "reclaim"] {
        client.0.write_all(format!("set {topic}:a 0 0 1\r\nx\r\n").as_bytes()).unwrap();
        client.expect("STORED\r\n");
        let command = format!("stats {topic}\r\n");
        // In one request, so that the second call comes within a second.
        client.0.write_all(format!("{command}set {topic}b:a 0 0 1\r\nx\r\n{command}").as_bytes()).unwrap();
        let mut pairs = || {
            let lines = std::iter::repeat_with(|| client.line()).take_while(|line| line != "END\r\n");
            lines.filter(|line| line.contains("live_pairs")).collect::<Vec<_>>()
        };
        let (before, after) = (pairs(), pairs());
        assert_eq!((before.len(), &before), (1, &after), "{topic}");
    }
}

#[test]
fn long_listings_are_complete_and_sorted() {
    let server = TestServer::start(|settings| settings.budget = ByteSize::mib(128));
    let mut client = server.connect();
    client.exchange("stats detail on\r\n", "OK\r\n");
    // More than a page of prefixes, and more text than the output holds.
    let names: Vec<String> = (0..2_500).map(|n| format!("{n:05}{}", "x".repeat(100))).collect();
    let stores: String = names.iter().rev().map(|name| format!("set {name}:k 0 0 1 noreply\r\nv\r\n")).collect();
    client.exchange(&stores, "");
    let dump: String = names.iter().map(|name| format!("PREFIX {name} get 0 hit 0 set 1 del 0\r\n")).collect();
    client.exchange("stats detail dump\r\n", &format!("{dump}END\r\n"));
    for (command, begin, end) in [("tenant list", "TENANT ", " min=0"), ("stats tenants", "STAT ", ":items ")] {
        client.0.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let lines: Vec<String> =
            std::iter::repeat_with(|| client.line()).take_while(|line| line != "END\r\n").collect();
        let listed = lines.iter().filter_map(|line| line.strip_prefix(begin)?.split_once(end));
        let listed: Vec<&str> = listed.map(|(name, _)| name).collect();
        assert!(listed.iter().copied().eq(names.iter().map(String::as_str).chain(["default"])), "{command}");
    }
}
