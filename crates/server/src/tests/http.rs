//! The HTTP endpoint: metrics, the page and its state, without a key or a value.
//!
//! A path that is added needs its test that it shows no key and no value.

use super::*;

/// Sends one request, and returns the complete response.
fn http(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn http_shows_numbers_and_no_key_or_value() {
    let server = TestServer::start(|settings| settings.http = Some("127.0.0.1:0".into()));
    let address = server.http.unwrap();
    let mut client = server.connect();
    client.exchange(
        "set shop:secret-key 0 0 12\r\nsecret-value\r\nget shop:secret-key\r\n",
        "STORED\r\nVALUE shop:secret-key 0 12\r\nsecret-value\r\nEND\r\n",
    );
    let get = |path: &str| http(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    let metrics = get("/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{metrics}");
    for line in [
        "lowwater_items 1",
        "lowwater_server_get_hits_total 1",
        "lowwater_shrinker_freed_total{shrinker=\"values-0\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    }
    assert!(get("/debug/shrinker").ends_with("\r\n\r\nvalues-0\n"));
    // Group ids: the root is 0, the default tenant 1, `shop` 2.
    assert!(get("/debug/shrinker/values-0/count").contains("\r\n\r\n2 1"), "{}", get("/debug/shrinker/values-0/count"));
    for path in
        ["/metrics", "/history.json", "/debug/shrinker", "/debug/shrinker/values-0/count", "/", "/page.js", "/x"]
    {
        let answer = get(path);
        assert!(!answer.contains("secret") && !answer.contains("shop"), "{path}: {answer}");
    }
    let state = get("/state.json");
    assert!(
        state.contains(r#""name":"shop""#) && !state.contains("secret"),
        "the state has a tenant's name, but no key or value: {state}"
    );
    for (request, status) in [
        ("GET /debug/shrinker/values-1/count HTTP/1.1\r\n\r\n", "404"),
        ("GET /debug/shrinker/values-0/scan HTTP/1.1\r\n\r\n", "404"),
        ("GET /debug/shrinker/../../metrics HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("GET /state.json HTTP/1.1\r\nHost: attacker.example\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\nHost: attacker.example\r\n\r\n", "421"),
        ("GET /history.json HTTP/1.1\r\nHost: attacker.example\r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: scraped.example\r\n\r\n", "200"),
        ("flush_all\r\n", "400"),
        (&format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9000)), "431"),
    ] {
        let answer = http(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    let head = http(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n"), "the response to HEAD has no body");
    assert_eq!(client.stat("stats", "curr_connections"), "1", "HTTP clients take no permit");
}

/// The server answers, but browsers refuse the response to another site's script, as no CORS header
/// allows it.
#[test]
fn the_page_is_refused_to_other_sites() {
    let server = TestServer::start(|settings| settings.http = Some("127.0.0.1:0".into()));
    for path in ["/", "/page.css", "/page.js", "/state.json"] {
        let answer =
            http(server.http.unwrap(), &format!("GET {path} HTTP/1.1\r\nOrigin: https://other.example\r\n\r\n"));
        let head = answer.split("\r\n\r\n").next().unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {head}");
        assert!(!head.contains("Access-Control"), "{path}: no CORS header may allow other sites: {head}");
        let policy = head.lines().find_map(|line| line.strip_prefix("Content-Security-Policy: ")).unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    }
}

#[test]
fn state_json_lists_the_largest_tenants_and_the_sum_of_the_rest() {
    let server = TestServer::start(|settings| {
        settings.http = Some("127.0.0.1:0".into());
        settings.pressure = true;
        settings.limits = vec![("t7".into(), Limits { low: ByteSize::kib(64), ..Limits::default() })];
    });
    let mut client = server.connect();
    // All values together are less than the floor of the budget, a sixteenth of it: the pressure of
    // this machine evicts none of them.
    for n in 0..100 {
        let value = "x".repeat(25 * (n + 1));
        client.exchange(&format!("set t{n}:k 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    }
    client.exchange("get t99:k\r\n", &format!("VALUE t99:k 0 2500\r\n{}\r\nEND\r\n", "x".repeat(2_500)));
    let answer = http(server.http.unwrap(), "GET /state.json HTTP/1.1\r\n\r\n");
    let state: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let tenants = state["tenants"].as_array().unwrap();
    assert_eq!(state["tenant_count"], 101, "including the default tenant");
    assert_eq!(tenants.len(), 20);
    assert_eq!((&tenants[0]["name"], &tenants[0]["items"], &tenants[0]["hits"]), (&"t99".into(), &1.into(), &1.into()));
    assert!(tenants[0]["max"].is_null(), "no limit");
    assert_eq!(state["others"]["items"], 80);
    assert_eq!(state["items"], 100);
    let level = state["pressure"]["level"].as_str().unwrap();
    assert!(["calm", "low", "medium", "critical"].contains(&level), "{level}");
    assert!(state["reclaimers"].as_array().is_some_and(|nodes| !nodes.is_empty()));
}

#[test]
fn the_server_keeps_the_figures_of_the_time_before() {
    let server = TestServer::start(|settings| settings.http = Some("127.0.0.1:0".into()));
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    let begun = Instant::now();
    let history = || -> serde_json::Value {
        let answer = http(server.http.unwrap(), "GET /history.json HTTP/1.1\r\n\r\n");
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    };
    let samples = loop {
        let samples = history();
        // The server takes samples without a request for `/state.json`.
        let array = samples.as_array().unwrap();
        if array.len() >= 3 && array[array.len() - 1]["sets"] == 1 {
            break array[array.len() - 2..].to_vec();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{samples}");
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!((&samples[1]["items"], &samples[1]["sets"]), (&1.into(), &1.into()));
    assert!(samples[1]["uptime_ms"].as_u64() > samples[0]["uptime_ms"].as_u64());
    assert!(samples[1]["freed_in_foreground"].is_u64() && samples[1]["tenants"].is_null());
}

#[test]
fn metrics_have_tenants_if_that_is_set() {
    let server = TestServer::start(|settings| {
        settings.http = Some("127.0.0.1:0".into());
        settings.metrics_tenants = 2;
    });
    let mut client = server.connect();
    let scrape = || http(server.http.unwrap(), "GET /metrics HTTP/1.1\r\n\r\n");
    let value = |scraped: &str, series: &str| {
        let line = scraped.lines().find_map(|line| line.strip_prefix(&format!("lowwater_tenant_{series} ")));
        line.map(|number| number.parse::<u64>().unwrap())
    };
    for (key, length) in [("large:a", 5000), ("mid:a", 3000), ("small:a", 10), ("tiny:a", 1)] {
        client.exchange(&format!("set {key} 0 0 {length}\r\n{}\r\n", "x".repeat(length)), "STORED\r\n");
    }
    client.exchange(
        "get small:a tiny:a none\r\n",
        "VALUE small:a 0 10\r\nxxxxxxxxxx\r\nVALUE tiny:a 0 1\r\nx\r\nEND\r\n",
    );
    let first = scrape();
    assert_eq!(value(&first, "items{tenant=\"large\"}"), Some(1));
    assert!(value(&first, "bytes{tenant=\"mid\"}").is_some_and(|bytes| bytes > 3000), "{first}");
    assert_eq!(value(&first, "hits_total{tenant=\"small\"}"), None);
    assert_eq!(value(&first, "hits_total{tenant=\"other\"}"), Some(2));
    assert_eq!(value(&first, "misses_total{tenant=\"other\"}"), Some(1));
    assert_eq!(first.matches("# TYPE lowwater_tenant_hits_total counter").count(), 1);
}

#[test]
fn silent_http_clients_do_not_keep_the_cache_from_serving_or_closing() {
    // As in `connections.rs`: three waits of `CLOSE_TIME_MAX` at most. The silent clients are more
    // than `CONNECTIONS_MAX` of `http.rs`.
    let enough = Duration::from_secs(2);
    let took = shortest(enough, || {
        let mut server = TestServer::start(|settings| settings.http = Some("127.0.0.1:0".into()));
        let address = server.http.unwrap();
        let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut client = server.connect();
        client.exchange("set k 0 0 1\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
        drop(silent);
        assert!(http(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        let started = Instant::now();
        let _silent = TcpStream::connect(address).unwrap();
        server.stop();
        started.elapsed()
    });
    assert!(took < enough, "it took {took:?}");
}

/// Otherwise a client of IPv4 would reach an endpoint that is meant for IPv6 alone.
#[test]
fn an_ipv6_address_takes_no_clients_of_ipv4() {
    if !has_ipv6() {
        return;
    }
    let is_refused = || {
        let server = TestServer::start(|settings| settings.http = Some("[::]:0".to_owned()));
        let port = server.http.unwrap().port();
        assert!(TcpStream::connect((std::net::Ipv6Addr::LOCALHOST, port)).is_ok());
        let client = TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, port));
        client.is_err_and(|why| why.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    // A server of another test may have the port at its address of IPv4.
    assert!((0..3).any(|_| is_refused()));
}
