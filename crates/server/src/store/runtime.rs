//! The runtime of the cache: its budget, watermarks and sources of memory pressure.
//!
//! A change must ensure that no other file of the server chooses options of the runtime; those of
//! the cache are in `store.rs`.

use lowwater::pressure::Watermarks;
use lowwater::{ByteSize, Runtime};

use crate::settings::Settings;

/// Minimum of the low watermark's gap below the budget; 1/32 of the budget, if that is less.
const FREE_BYTES_MIN: ByteSize = ByteSize::kib(512);

/// Builds the runtime. If `settings.pressure` is set, the runtime monitors those sources of memory
/// pressure that the machine has.
pub fn build(settings: &Settings) -> Result<Runtime, String> {
    let builder = Runtime::builder().budget(settings.budget).watermarks(watermarks(settings.budget));
    if !settings.pressure {
        return builder.build().map_err(|why| why.to_string());
    }
    builder.auto_pressure(true).build().map_err(|why| why.to_string())
}

/// Returns the watermarks. A store evicts values to make room for itself, so little of the budget
/// needs to be free; but enough for several large values at once, before the reclaimer has woken.
fn watermarks(budget: ByteSize) -> Watermarks {
    let part = |of: u64| ByteSize::new(budget.get() / of);
    let low_gap = part(128).max(part(32).min(FREE_BYTES_MIN));
    Watermarks { low_gap, high_gap: low_gap.saturating_add(low_gap) }
}
