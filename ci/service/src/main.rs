//! A service with three caches in one budget, and its load: `service SECONDS [RESIDENT_MAX]`.

use lowwater::cache::{CacheStats, Op, TenantKey};
use lowwater::runtime::{ChargeError, TenantGroups};
use lowwater::{ByteSize, Cache, Charged, Labels, Memcg, Runtime};
use metrics_exporter_prometheus::PrometheusBuilder;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

#[derive(Clone, Default)]
struct Session {
    user: String,
    basket: Vec<u64>,
}

/// The bytes stay charged until the last reader drops them, also when the page has left the cache.
type Page = Charged<Box<[u8]>>;

type Row = [i64; 2];

struct RowNotFound;

struct Service {
    runtime: Runtime,
    tenants: TenantGroups,
    /// The tenants' groups for sessions alone, which have a guaranteed minimum together.
    owners: TenantGroups,
    sessions: Cache<TenantKey<String>, Session>,
    pages: Cache<TenantKey<String>, Page>,
    rows: Cache<TenantKey<u64>, Row>,
    requests: AtomicU64,
    refused: AtomicU64,
    held_bytes: AtomicU64,
}

impl Service {
    fn new(resident_max: ByteSize) -> Result<Self, Box<dyn Error>> {
        let runtime =
            Runtime::builder().budget(ByteSize::mib(64)).auto_pressure(true).resident_max(resident_max).build()?;
        let groups = |parent, low| {
            let groups = runtime.tenant_groups(parent).count_max(24).idle_time(Duration::from_secs(20));
            let groups = groups.setup(|_, group| group.set_low(ByteSize::mib(1))).build()?;
            groups.parent().set_low(low);
            Ok::<_, Box<dyn Error>>(groups)
        };
        let (tenants, owners) = (groups("tenants", ByteSize::mib(24))?, groups("sessions", ByteSize::mib(8))?);
        let sessions = Cache::<TenantKey<String>, Session>::builder(&runtime)
            .name("sessions")
            .weigher(|id, session| id.key().capacity() + session.user.capacity() + session.basket.capacity() * 8)
            .time_to_live(Duration::from_secs(60))
            .time_to_idle(Duration::from_secs(15))
            .build()?;
        let pages = Cache::<TenantKey<String>, Page>::builder(&runtime)
            .name("pages")
            .weigher(|path, page| page_bytes(path.key().capacity() + page.len()))
            .charge_held_values()
            .build()?;
        let rows = Cache::<TenantKey<u64>, Row>::builder(&runtime).name("rows").weigher(|_, _| 0_u64).build()?;
        let (requests, refused, held_bytes) = Default::default();
        Ok(Self { runtime, tenants, owners, sessions, pages, rows, requests, refused, held_bytes })
    }

    /// Puts an article into the basket of a session. Returns `None` beyond the bound of tenants.
    fn order(&self, tenant: &str, id: String, article: u64) -> Option<()> {
        let put = self.sessions.tenant(&self.owners.get(tenant).ok()?).ok()?.entry(id).and_compute(|there| {
            let mut session = there.map_or_else(Session::default, |there| there.value().clone());
            session.user = format!("somebody of {tenant}");
            session.basket.push(article);
            session.basket.truncate(32);
            Op::Update(session)
        });
        put.ok().map(drop)
    }

    fn session(&self, tenant: &str, id: &str) -> Option<Session> {
        self.sessions.tenant(&self.owners.get(tenant).ok()?).ok()?.get(id)
    }

    async fn page(&self, tenant: &str, path: String) -> Result<Page, ChargeError> {
        let seed = path.bytes().fold(1, |hash: u64, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        match self.tenants.get(tenant).as_ref().map(|group| (group, self.pages.tenant(group))) {
            Ok((group, Ok(pages))) => pages.try_get_or_insert_with_async(path, self.render(group, seed)).await,
            _ => self.render(self.tenants.parent(), seed).await,
        }
    }

    /// Makes a page of 2 to 200 kB, which is charged before it takes memory.
    async fn render(&self, group: &Memcg, seed: u64) -> Result<Page, ChargeError> {
        let len = (2_000.0 * 100_f64.powf(Random(seed | 1).unit())) as usize;
        let charge = self.runtime.charge_guard(group, page_bytes(len))?;
        sleep(Duration::from_millis(1)).await;
        Ok(Page::new(vec![seed as u8; len].into(), charge))
    }

    async fn row(&self, tenant: &str, id: u64) -> Result<Row, RowNotFound> {
        match self.tenants.get(tenant).as_ref().map(|group| self.rows.tenant(group)) {
            Ok(Ok(rows)) => rows.try_get_or_insert_with_async(id, load_row(id)).await,
            _ => load_row(id).await,
        }
    }

    fn print(&self, second: u64, rss: f64) {
        let (stats, held) = (self.runtime.stats(), ByteSize::new(self.held_bytes.load(Relaxed)));
        print!("{second} s: usage {:#}, budget {:#}, retired {:#}, ", stats.usage, stats.budget, stats.retired);
        print!("held {held:#}, RSS {rss:.1} MiB, {} tenants", self.tenants.len());
        let cache = |name, len, CacheStats { hits, misses, rejected, bytes, .. }: CacheStats| {
            let ratio = 100.0 * hits as f64 / (hits + misses).max(1) as f64;
            print!(" | {name}: {len} entries, {bytes:#}, {ratio:.1} % hits, {rejected} rejected");
        };
        cache("sessions", self.sessions.len(), self.sessions.stats());
        cache("pages", self.pages.len(), self.pages.stats());
        cache("rows", self.rows.len(), self.rows.stats());
        println!(" | {} requests, {} refused", self.requests.load(Relaxed), self.refused.load(Relaxed));
    }

    /// One client: requests without end.
    async fn client(self: Arc<Self>, number: u64) {
        let mut random = Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for turn in 0_u64.. {
            let known = random.unit() > 0.002;
            let tenant = if known { format!("tenant{}", random.zipf(12)) } else { format!("../made up {}", random.0) };
            self.requests.fetch_add(1, Relaxed);
            match (20.0 * random.unit()) as u32 {
                0..6 => drop(self.row(&tenant, random.zipf(50_000)).await),
                6..11 => drop(self.session(&tenant, &format!("session-{}", random.zipf(20_000)))),
                11..13 => drop(self.order(&tenant, format!("session-{}", random.zipf(20_000)), turn)),
                kind => {
                    let path = format!("/{}", if kind < 15 { number << 40 | turn } else { random.zipf(5_000) });
                    match self.page(&tenant, path).await {
                        Ok(page) if turn % 20 == 0 => drop(tokio::spawn(self.clone().send_slowly(page, random.unit()))),
                        Ok(_) => {}
                        Err(_) => drop(self.refused.fetch_add(1, Relaxed)),
                    }
                }
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// A slow reader, which holds a page for 2 to 6 seconds.
    async fn send_slowly(self: Arc<Self>, page: Page, unit: f64) {
        self.held_bytes.fetch_add(page.len() as u64, Relaxed);
        sleep(Duration::from_secs_f64(2.0 + 4.0 * unit)).await;
        self.held_bytes.fetch_sub(page.len() as u64, Relaxed);
    }
}

fn page_bytes(len: usize) -> ByteSize {
    Page::BYTES + ByteSize::from(len)
}

async fn load_row(id: u64) -> Result<Row, RowNotFound> {
    sleep(Duration::from_millis(1)).await;
    (id % 50 != 49).then_some([id as i64, 7]).ok_or(RowNotFound)
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `count`; the probability of n is about in proportion to 1 / (n + 1).
    fn zipf(&mut self, count: u64) -> u64 {
        (count as f64 + 1.0).powf(self.unit()) as u64 - 1
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let seconds: u64 = args.next().ok_or("no number of seconds")?.parse()?;
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    let service = Arc::new(Service::new(args.next().unwrap_or("74MiB".into()).parse()?)?);
    (1..=8).for_each(|number| drop(tokio::spawn(service.clone().client(number))));
    let (start, mut worst, bound) = (Instant::now(), (0.0, 0), 64.0 * 1.15 + 10.0);
    for second in 1..=seconds {
        sleep(Duration::from_secs(second).saturating_sub(start.elapsed())).await;
        let statm = std::fs::read_to_string("/proc/self/statm")?;
        let rss = statm.split(' ').nth(1).ok_or("no second field")?.parse::<f64>()? / 256.0;
        service.print(second, rss);
        service.runtime.publish_metrics(Labels::Shrinkers);
        worst = if second > seconds / 5 && rss > worst.0 { (rss, second) } else { worst };
    }
    prometheus
        .render()
        .lines()
        .filter(|line| line.starts_with("lowwater_cache_re"))
        .for_each(|line| println!("{line}"));
    println!("worst RSS: {:.1} MiB after {} s, bound {bound:.1} MiB", worst.0, worst.1);
    std::process::exit((worst.0 > bound).into());
}
