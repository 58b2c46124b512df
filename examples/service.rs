//! A small HTTP service with three caches under one budget: the use of lowwater in a service.
//!
//! | cache | key | shows |
//! |---|---|---|
//! | sessions | user | `low`: 8 MiB that no other cache takes; an idle time; inserts that are refused |
//! | pages | tenant and path | name spaces: the same path of two tenants is two pages; a time to live |
//! | rows | number | single-flight loads that may fail; `recreation_cost` |
//!
//! `cargo run --release --example service` answers a generated load for 12 s and prints each
//! cache's bytes and hit ratio each second, while the number of requested pages grows and shrinks
//! again. With `-- --listen 127.0.0.1:8080` it serves: `/login/USER`, `/session/USER`,
//! `/row/NUMBER`, `/page/PATH` (of the tenant that the header `Host` names: `shop`, `blog` or
//! `docs`), `/stats`, and with `--features metrics` also `/metrics`.
//!
//! A change must ensure that each cache shows what the table says. `ci/examples.sh` requests these
//! paths, reads the `low` from `/metrics`, and counts the lines of the load.

#![forbid(unsafe_code)]

#[path = "at_end/mod.rs"]
mod at_end;
#[cfg(feature = "metrics")]
#[path = "service/exporter.rs"]
mod exporter;
#[path = "service/http.rs"]
mod http;
#[path = "service/load.rs"]
mod load;

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Parser;
use lowwater::cache::{CacheStats, TenantKey};
use lowwater::runtime::RuntimeBuildError;
use lowwater::{ByteSize, Cache, Memcg, Runtime};

/// The three caches that this service needs, and the budget that they share
#[derive(Debug, Parser)]
struct Args {
    /// Serves HTTP at this address, instead of answering a generated load
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The most that the caches may use together, in MiB
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(16..))]
    budget: u64,
    /// Threads that answer requests
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
}

/// The tenants. Do not create a group for each name that a client sends: a group is memory, and
/// clients would control how much.
const TENANTS: [&str; 3] = ["shop", "blog", "docs"];
/// The rows of the database, from 0 on; `ci/examples.sh` expects that there is none of this number.
const ROWS: u64 = 4_000;

/// The text of a reply, or the HTTP status and the reason.
type Answer = Result<Arc<str>, (u16, String)>;

/// A row of the database, and how long the query took.
#[derive(Clone)]
struct Row {
    text: Arc<str>,
    took: Duration,
}

struct Service {
    runtime: Runtime,
    sessions: Cache<u64, Arc<str>>,
    pages: Cache<TenantKey<String>, Arc<str>>,
    rows: Cache<u64, Row>,
    tenants: BTreeMap<&'static str, Memcg>,
}

/// A runtime with all sources of memory pressure of this machine.
fn runtime(budget: ByteSize) -> Result<Runtime, RuntimeBuildError> {
    let runtime = Runtime::builder().budget(budget).auto_pressure(true).build()?;
    for reason in runtime.stats().pressure.iter().flat_map(|pressure| &pressure.missing) {
        eprintln!("service: {reason}; going on without it");
    }
    Ok(runtime)
}

/// The bytes of an `Arc<str>` on the heap: its text and two counts.
fn heap(text: &Arc<str>) -> u64 {
    text.len() as u64 + 16
}

impl Service {
    /// Creates the runtime and the three caches, each with the options that its values need.
    fn new(budget: ByteSize) -> Result<Self, Box<dyn Error>> {
        let runtime = runtime(budget)?;
        // Each lost session makes a user log in again, so no other cache takes this memory.
        let sessions = Cache::builder(&runtime)
            .name("sessions")
            .weigher(|_, session| ByteSize::new(heap(session)))
            .time_to_idle(Duration::from_secs(1800))
            .low(ByteSize::mib(8))
            .build()?;
        let pages = Cache::builder(&runtime)
            .name("pages")
            .weigher(|key: &TenantKey<String>, page| ByteSize::new(key.key().capacity() as u64 + heap(page)))
            // Short, so that the load shows how memory returns.
            .time_to_live(Duration::from_secs(3))
            .build()?;
        let rows = Cache::builder(&runtime)
            .name("rows")
            .weigher(|_, row: &Row| ByteSize::new(heap(&row.text)))
            .recreation_cost(|_, row| row.took.as_micros() as u64)
            .build()?;
        let mut tenants = BTreeMap::new();
        for name in TENANTS {
            let tenant = runtime.group(&format!("tenants/{name}"))?;
            // No tenant uses more than half of the budget.
            tenant.set_max(ByteSize::new(budget.get() / 2));
            tenants.insert(name, tenant);
        }
        Ok(Self { runtime, sessions, pages, rows, tenants })
    }

    /// Answers a request. Called by any number of threads.
    fn answer(&self, host: &str, path: &str) -> Answer {
        let path = path.trim_start_matches('/');
        let (kind, rest) = path.split_once('/').unwrap_or((path, ""));
        let number = || rest.parse().map_err(|_| (400, format!("{rest:?} is not a number")));
        match kind {
            "login" => self.login(number()?),
            "session" => self.session(number()?),
            "row" => self.row(number()?).map(|row| row.text),
            "page" => self.page(host, rest),
            "stats" => Ok(self.stats().into()),
            #[cfg(feature = "metrics")]
            "metrics" => Ok(exporter::text(&self.runtime).into()),
            _ => Err((404, format!("there is no /{path}"))),
        }
    }

    fn login(&self, user: u64) -> Answer {
        let session: Arc<str> = format!("user {user}\n{}", "basket ".repeat(150)).into();
        // Refused if no memory can be freed in time. The session exists nowhere else, so the client
        // gets an error.
        match self.sessions.insert(user, Arc::clone(&session)) {
            Ok(_) => Ok(session),
            Err(error) => Err((503, error.to_string())),
        }
    }

    fn session(&self, user: u64) -> Answer {
        self.sessions.get(&user).ok_or_else(|| (401, format!("user {user} is not logged in")))
    }

    /// Returns the row of a number. Of several threads that need a missing row, one queries the
    /// database, and the others wait for it.
    fn row(&self, number: u64) -> Result<Row, (u16, String)> {
        // An error is not cached: the next request queries again. A row without room in the cache
        // is returned all the same.
        self.rows.try_get_or_insert_with(number, || query(number))
    }

    fn page(&self, host: &str, path: &str) -> Answer {
        let tenant = self.tenants.get(host).ok_or_else(|| (404, format!("there is no tenant {host:?}")))?;
        let pages = self.pages.tenant(tenant).expect("the group is of this runtime");
        pages.try_get_or_insert_with(path.to_owned(), || self.render(host, path))
    }

    fn render(&self, host: &str, path: &str) -> Answer {
        let id: u64 = path.parse().map_err(|_| (404, format!("{host} has no page {path:?}")))?;
        let row = self.row(id % ROWS)?;
        sleep(Duration::from_millis(1));
        Ok(format!("<h1>{host} {id}</h1>{}", row.text.repeat(4)).into())
    }

    /// The caches by name.
    fn caches(&self) -> [(&'static str, CacheStats); 3] {
        [("sessions", self.sessions.stats()), ("pages", self.pages.stats()), ("rows", self.rows.stats())]
    }

    /// The most important figures for an operator.
    fn stats(&self) -> String {
        let now = self.runtime.stats();
        let mut text = format!("using {} of {} bytes\n", now.usage, now.budget);
        if let Some(pressure) = now.pressure {
            text += &format!("pressure: {}\n", pressure.level);
        }
        for (name, CacheStats { bytes, hits, misses, evictions, expired, rejected, .. }) in self.caches() {
            text += &format!(
                "{name}: {bytes} bytes, {hits} hits, {misses} misses, {evictions} evicted, {expired} expired, {rejected} refused\n"
            );
        }
        for (name, tenant) in &self.tenants {
            text += &format!("tenant {name}: {} of {} bytes\n", tenant.usage(), tenant.max());
        }
        text
    }
}

/// Stands for a query of a database, which takes a while.
fn query(number: u64) -> Result<Row, (u16, String)> {
    if number >= ROWS {
        return Err((404, format!("there is no row {number}")));
    }
    let start = Instant::now();
    sleep(Duration::from_millis(2 + number % 4));
    Ok(Row { text: format!("row {number}: {}", "text ".repeat(400)).into(), took: start.elapsed() })
}

fn main() -> Result<(), Box<dyn Error>> {
    let Args { listen, budget, threads } = Args::parse();
    let service = Service::new(ByteSize::mib(budget))?;
    match listen {
        Some(address) => http::serve(&service, address, threads)?,
        None => load::run(&service, threads),
    }
    Ok(())
}
