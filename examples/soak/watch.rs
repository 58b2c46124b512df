//! The records of each second. Footprints are judged at each emptying, resident memory at the end.
//!
//! Resident memory rises at first, so the first quarter is left out. A leak shows as a slope over
//! hours.
//!
//! A bound may be lowered; raising it needs a reason.

use std::collections::BTreeMap;

/// The part of the run that is left out: allocators and tables reach their size in it.
const WARM_UP: f64 = 0.25;
/// A rise of the regression line by less than this over the judged part of the run, in kB, is
/// noise, however close the points are to the line.
const GROWTH_MAX: f64 = 4096.0;

pub struct Watch {
    server: Option<u32>,
    /// The second of each record, and the resident kB of this process and of the server.
    resident: Vec<(u64, [f64; 2])>,
    /// Bytes of the library's structures each time they were emptied: caches, lists, names.
    empty: Vec<[u64; 3]>,
    steps: BTreeMap<String, u64>,
}

/// The number of emptied states that are compared, at the beginning and at the end.
const FEW: usize = 5;

impl Watch {
    pub fn new(server: Option<u32>) -> Self {
        Self { server, resident: Vec::new(), empty: Vec::new(), steps: BTreeMap::new() }
    }

    /// Records an emptied state, which must not be larger than the first ones. Tables keep their
    /// capacity from the last load, so the size varies: the least of the latest [`FEW`] is compared
    /// with the greatest of the first [`FEW`].
    pub fn emptied(&mut self, bytes: [u64; 3]) -> Result<(), String> {
        self.empty.push(bytes);
        if self.empty.len() < 2 * FEW {
            return Ok(());
        }
        let (first, latest) = (&self.empty[..FEW], &self.empty[self.empty.len() - FEW..]);
        for part in 0..bytes.len() {
            let most = first.iter().map(|bytes| bytes[part]).max().unwrap_or_default();
            let least = latest.iter().map(|bytes| bytes[part]).min().unwrap_or_default();
            if least > most {
                return Err(format!(
                    "empty, and yet the footprint grows: at most {most} bytes at first, at least {least} now"
                ));
            }
        }
        Ok(())
    }

    /// Records the resident memory in this second, after its checks. Prints it once a minute.
    pub fn look(&mut self, second: u64) {
        let ours = resident("self");
        let theirs = self.server.map_or(0.0, |pid| resident(&pid.to_string()));
        self.resident.push((second, [ours, theirs]));
        if second % 60 == 0 || second == 10 {
            let empty = self.empty.last().copied().unwrap_or_default();
            println!(
                "{second:6} s  all well; resident {ours:.0} kB, the server {theirs:.0} kB; {empty:?} bytes when empty"
            );
        }
    }

    pub fn did(&mut self, name: &str, steps: u64) {
        *self.steps.entry(name.into()).or_default() += steps;
    }

    /// Prints the records. Returns an error if resident memory grew.
    pub fn judge(self) -> Result<(), String> {
        let steps: Vec<_> = self.steps.iter().map(|(name, steps)| format!("{name} {steps}")).collect();
        println!(
            "checked {} times, emptied {} times; steps: {}",
            self.resident.len(),
            self.empty.len(),
            steps.join(", ")
        );
        if let (Some(first), Some(last)) = (self.empty.first(), self.empty.last()) {
            println!("footprint when empty: {first:?} bytes the first time, {last:?} the last");
        }
        let warm = (self.resident.len() as f64 * WARM_UP) as usize;
        let later = &self.resident[warm..];
        for (which, name) in ["resident", "the server's"].into_iter().enumerate() {
            let points: Vec<_> = later.iter().map(|(second, kb)| (*second as f64, kb[which])).collect();
            let (slope, noise) = line(&points);
            let seconds = points.last().map_or(0.0, |last| last.0 - points[0].0);
            let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
            println!(
                "{name}: at most {most:.0} kB, slope {:+.1} kB an hour over {seconds:.0} s, points lie {noise:.0} kB from the line",
                slope * 3600.0
            );
            // The slope of a short run is noise: the total rise of the line is judged.
            if slope * seconds > GROWTH_MAX.max(3.0 * noise) {
                return Err(format!("{name} memory grows by {:.0} kB in {seconds:.0} s", slope * seconds));
            }
        }
        println!("soak: all held");
        Ok(())
    }
}

/// Returns the slope of the regression line, and the root mean square of the points' distances from
/// the line.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let over = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>();
    let under = points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>();
    let slope = if under > 0.0 { over / under } else { 0.0 };
    let noise = points.iter().map(|p| (p.1 - y - slope * (p.0 - x)).powi(2)).sum::<f64>() / n;
    (slope, noise.sqrt())
}

/// Returns a process's resident memory, in kB; 0 if the process has ended.
fn resident(process: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    field.and_then(|field| field.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0.0)
}
