//! A service with three caches in one budget, as its developer writes it from the documents alone:
//! tenants from a header, awaited loads, values that slow readers hold, metrics.
//!
//! `ci/service.sh` runs the service; `main` fails if resident memory is too far above the budget. A
//! change must ensure that this file has at most 200 lines and needs no undocumented function.

#![forbid(unsafe_code)]

use lowwater::cache::TenantKey;
use lowwater::runtime::{ChargeError, TenantError, TenantGroups};
use lowwater::{ByteSize, Cache, Charged, Labels, Runtime};
use metrics_exporter_prometheus::PrometheusBuilder;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Bytes = Charged<Box<[u8]>>;

/// The bytes of a value on the heap.
fn size(bytes: usize) -> ByteSize {
    Bytes::BYTES.saturating_add(ByteSize::from(bytes))
}

/// The parts of a request that an HTTP server reads from its headers.
struct Request {
    tenant: String,
    session: u64,
    url: String,
}

enum Response {
    Ok(Bytes),
    /// 403: not the name of a tenant.
    Forbidden,
    /// 503: slow readers hold the memory that the value needs, or there are too many tenants.
    Busy,
}

struct Service {
    runtime: Runtime,
    tenants: TenantGroups,
    sessions: Cache<u64, Arc<str>>,
    pages: Cache<TenantKey<String>, Bytes>,
    rows: Cache<TenantKey<u64>, Bytes>,
}

impl Service {
    fn new(budget: ByteSize) -> Result<Self, Box<dyn std::error::Error>> {
        // The process may need an eighth and 2 MiB more: code, stacks, gaps of the allocator.
        let resident_max = budget + budget / 8 + ByteSize::mib(2);
        let runtime = Runtime::builder().budget(budget).resident_max(resident_max).auto_pressure(true).build()?;
        Ok(Service {
            // A tenant holds at most a quarter of the budget.
            tenants: runtime
                .tenant_groups("tenants")
                .count_max(100)
                .idle_time(Duration::from_secs(60))
                .setup(move |_, group| group.set_max(budget / 4))
                .build()?,
            sessions: Cache::builder(&runtime)
                .name("sessions")
                .weigher(|_, text: &Arc<str>| text.len() + 16)
                .time_to_idle(Duration::from_secs(1800))
                .low(budget / 8)
                .build()?,
            // The charge of a load stays with its value; so the weigher must not count it again.
            pages: Cache::builder(&runtime)
                .name("pages")
                .weigher(|key: &TenantKey<String>, page: &Bytes| {
                    size(page.len()).saturating_sub(Bytes::held_bytes(page)) + ByteSize::from(key.key().capacity())
                })
                .charge_held_values()
                .time_to_live(Duration::from_secs(30))
                .build()?,
            rows: Cache::builder(&runtime)
                .name("rows")
                .weigher(|_, row: &Bytes| size(row.len()).saturating_sub(Bytes::held_bytes(row)))
                .charge_held_values()
                .build()?,
            runtime,
        })
    }

    async fn answer(&self, request: Request) -> Response {
        let group = match self.tenants.get(&request.tenant) {
            Ok(group) => group,
            Err(TenantError::Full(_) | TenantError::Ending) => return Response::Busy,
            Err(_) => return Response::Forbidden,
        };
        self.sessions.get_or_insert_with(request.session, || format!("session {:0200}", request.session).into());
        let (Ok(pages), Ok(rows)) = (self.pages.tenant(&group), self.rows.tenant(&group)) else {
            return Response::Forbidden;
        };
        let page = pages.try_get_or_insert_with_ref_async(&request.url, async {
            let hash = request.url.bytes().fold(7, |hash: u64, byte| hash.wrapping_mul(31) + u64::from(byte));
            // The memory first: a charge that is refused is known before the load.
            let bytes = 500 + (hash >> 8) as usize % 16_000;
            let charge = self.runtime.charge_guard(&group, size(bytes))?;
            let mut text = Vec::with_capacity(bytes);
            for n in 0..8 {
                let id = hash % 500 * 8 + n;
                let row = rows.try_get_or_insert_with_async(id, async {
                    let bytes = 200 + (id % 7 * 300) as usize;
                    let charge = self.runtime.charge_guard(&group, size(bytes))?;
                    tokio::time::sleep(Duration::from_millis(1)).await; // the database
                    Ok::<_, ChargeError>(Charged::new(vec![b'r'; bytes].into(), charge))
                });
                text.extend_from_slice(&row.await?[..100]);
            }
            text.resize(bytes, b'p');
            Ok::<_, ChargeError>(Charged::new(text.into(), charge))
        });
        page.await.map_or(Response::Busy, Response::Ok)
    }
}

/// A client: requests, of which some are read slowly.
async fn client(service: Arc<Service>, mut seed: u64, counts: Arc<[AtomicU64; 3]>, stop: Arc<AtomicBool>) {
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    while !stop.load(Relaxed) {
        // Some tenants and pages are requested more often than others.
        let tenant = random(20).min(random(20));
        let page = random(1000).min(random(1000)).min(random(1000));
        let request =
            Request { tenant: format!("tenant/{tenant}"), session: random(50_000), url: format!("/{tenant}/{page}") };
        match service.answer(request).await {
            Response::Ok(page) => {
                counts[0].fetch_add(1, Relaxed);
                if random(4) == 0 {
                    tokio::time::sleep(Duration::from_millis(random(2000))).await;
                }
                drop(page);
            }
            Response::Busy => {
                counts[1].fetch_add(1, Relaxed);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Response::Forbidden => drop(counts[2].fetch_add(1, Relaxed)),
        }
        tokio::task::yield_now().await;
    }
}

fn resident() -> ByteSize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    ByteSize::kib(line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0))
}

#[tokio::main(worker_threads = 4)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(30), |text| text.parse())?;
    let budget = ByteSize::mib(64);
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let service = Arc::new(Service::new(budget)?);
    let (counts, stop) = (Arc::new([const { AtomicU64::new(0) }; 3]), Arc::default());
    let clients: Vec<_> = (0..600)
        .map(|n| {
            let (counts, stop) = (Arc::clone(&counts), Arc::clone(&stop));
            tokio::spawn(client(service.clone(), n, counts, stop))
        })
        .collect();
    let (begun, mut most) = (Instant::now(), ByteSize::ZERO);
    while begun.elapsed() < Duration::from_secs(seconds) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        service.runtime.publish_metrics(Labels::Groups);
        if begun.elapsed() > Duration::from_secs(seconds / 5) {
            most = most.max(resident());
        }
        let stats = service.runtime.stats();
        let (usage, retired, now) = (stats.usage, stats.retired, resident());
        eprintln!(
            "{:4} s: resident {now:#}, charged {usage:#}, retired {retired:#}, budget {:#}",
            begun.elapsed().as_secs(),
            stats.budget
        );
    }
    stop.store(true, Relaxed);
    for client in clients {
        client.await?;
    }
    print!(
        "{}",
        metrics
            .render()
            .lines()
            .filter(|line| line.starts_with("lowwater_cache_"))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    );
    // Above `resident_max`, because the caches shrink only when that is exceeded.
    let bound = budget.get() * 115 / 100 + (10 << 20);
    println!("{counts:?} answered, busy, forbidden; resident at most {most:#}, may be {:#}", ByteSize::new(bound));
    assert!(most.get() <= bound, "resident memory is above the bound");
    Ok(())
}
