//! A pool of buffers as a shrinker: `cargo run --example own_shrinker`.
use std::{error::Error, sync::Arc, sync::Mutex};

use lowwater::{ByteSize, Count, Memcg, NodeId, Occupancy, Runtime, Scan, ShrinkControl, Shrinker};

const BUFFER: ByteSize = ByteSize::kib(64);

/// Unused buffers, the oldest first.
struct Pool {
    idle: Mutex<Vec<Vec<u8>>>,
    group: Memcg,
    occupancy: Arc<dyn Occupancy>,
}

impl Pool {
    fn take(&self, runtime: &Runtime) -> Result<Vec<u8>, Box<dyn Error>> {
        if let Some(buffer) = self.idle.lock().unwrap().pop() {
            return Ok(buffer);
        }
        runtime.charge(&self.group, BUFFER)?;
        Ok(vec![0; BUFFER.get() as usize])
    }

    fn put(&self, buffer: Vec<u8>) {
        self.idle.lock().unwrap().push(buffer);
        self.occupancy.occupied(&self.group, NodeId::ZERO);
    }
}

impl Shrinker for Pool {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        match self.idle.lock().unwrap().len() {
            0 => Count::Empty,
            n => Count::Objects(n as u64),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let mut idle = self.idle.lock().unwrap();
        let n = idle.len().min(sc.nr_to_scan() as usize);
        let old: Vec<_> = idle.drain(..n).collect();
        drop(idle);
        self.group.uncharge(ByteSize::new(BUFFER.get() * n as u64));
        sc.set_nr_scanned(n as u64);
        Scan::Freed(old.len() as u64)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    let group = runtime.group("buffers")?;
    let prepared = runtime.registry().builder("buffers").numa_aware(false).alloc()?;
    let pool = Arc::new(Pool { idle: Mutex::default(), group, occupancy: prepared.occupancy() });
    let _registration = prepared.register(pool.clone());
    let burst = (0..200).map(|_| pool.take(&runtime)).collect::<Result<Vec<_>, _>>()?;
    burst.into_iter().for_each(|buffer| pool.put(buffer));
    println!("after a burst of 200 buffers the pool keeps {}", pool.group.usage());
    println!("8 MiB are wanted elsewhere: {} come back", runtime.reclaim(runtime.root(), ByteSize::mib(8)));
    Ok(())
}
