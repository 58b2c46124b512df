//! The results: a table to read, or a JSON object.
//!
//! `verdict` fails the run if a byte is left: the example is a test of the footprint as well.
//!
//! A change must ensure that a byte too many is an error and not a line of output.

use std::fmt::Write as _;
use std::time::Duration;

use crate::kernel::{Layouts, Machine};
use crate::world::ms;

/// Bytes at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Groups, lists, tables, maps, registry: exact. Without the owners' objects.
    pub bytes: u64,
    /// Resident memory as reported by the system.
    pub rss: u64,
}

/// All counts.
#[derive(Debug)]
pub struct Report {
    pub machine: Machine,
    pub live_pairs: usize,
    pub before: Sample,
    pub idle_mounts: Sample,
    pub during: Sample,
    pub gone: Sample,
    pub after: Sample,
    pub times: [(&'static str, Duration); 4],
    pub eager_bytes_predicted: u64,
    pub kernel: Layouts,
}

impl Report {
    /// One object on one line. `ci/measured/lists.py` and `ci/seeds` read its keys.
    pub fn json(&self) -> String {
        let Machine { memcgs, mounts, nodes, .. } = self.machine;
        let Layouts { vanilla_mib, transposed_mib, lazy_mib, xarray_mib } = self.kernel;
        let Sample { bytes: bytes_before, rss: rss_before } = self.before;
        let Sample { bytes: bytes_during, rss: rss_during } = self.during;
        let Sample { bytes: bytes_after, rss: rss_after } = self.after;
        let (create_ms, offline_ms) = (ms(self.time("create")), ms(self.time("offline")));
        let (live_pairs, eager) = (self.live_pairs, self.eager_bytes_predicted);
        format!(
            "{{\"memcgs\":{memcgs},\"mounts\":{mounts},\"nodes\":{nodes},\"live_pairs\":{live_pairs},\
             \"bytes_before\":{bytes_before},\"bytes_during\":{bytes_during},\"bytes_after\":{bytes_after},\
             \"rss_before\":{rss_before},\"rss_during\":{rss_during},\"rss_after\":{rss_after},\
             \"create_ms\":{create_ms},\"offline_ms\":{offline_ms},\"eager_bytes_predicted\":{eager},\
             \"kernel\":{{\"vanilla_mib\":{vanilla_mib},\"transposed_mib\":{transposed_mib},\
             \"lazy_mib\":{lazy_mib},\"xarray_mib\":{xarray_mib}}}}}"
        )
    }

    /// The table.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let samples = [
            ("before", self.before),
            ("mounts, not used yet", self.idle_mounts),
            ("during", self.during),
            ("groups gone", self.gone),
            ("after", self.after),
        ];
        let _ = writeln!(out, "{:<24} {:>14} {:>14}", "", "bytes", "rss");
        for (name, Sample { bytes, rss }) in samples {
            let _ = writeln!(out, "{name:<24} {bytes:>14} {rss:>14}");
        }
        let _ = writeln!(out, "\n{:<24} {:>14}", "live pairs", self.live_pairs);
        for (name, time) in self.times {
            let _ = writeln!(out, "{name:<24} {:>11.3} ms", ms(time));
        }
        let Layouts { vanilla_mib, transposed_mib, lazy_mib, xarray_mib } = self.kernel;
        let _ = writeln!(out, "\n{:<24} {:>14} bytes, predicted", "a list for every id", self.eager_bytes_predicted);
        for (name, mib) in
            [("vanilla", vanilla_mib), ("transposed", transposed_mib), ("lazy", lazy_mib), ("xarray", xarray_mib)]
        {
            let _ = writeln!(out, "{:<24} {mib:>14} MiB, model", format!("Linux, {name}"));
        }
        out
    }

    /// Whether everything was freed, to the byte.
    pub fn verdict(&self) -> Result<(), String> {
        let back = |name: &str, is: Sample, was: Sample| {
            (is.bytes == was.bytes).then_some(()).ok_or(format!("{} bytes {name}, {} at first", is.bytes, was.bytes))
        };
        back("with mounts and no groups", self.gone, self.idle_mounts)?;
        back("in the end", self.after, self.before)
    }

    fn time(&self, name: &str) -> Duration {
        self.times.iter().find(|(other, _)| *other == name).map_or(Duration::ZERO, |(_, time)| *time)
    }
}
