//! The runtime of the cache: its budget, watermarks and sources of memory pressure.

use std::time::Duration;

use lowwater::pressure::{PressureConfig, Psi, Trigger, Watermarks};
use lowwater::{ByteSize, Runtime};

use crate::settings::Settings;

/// Minimum of the low watermark's gap below the budget, unless that is more than 1/32 of the
/// budget.
const FREE_BYTES_MIN: ByteSize = ByteSize::kib(512);

/// Memory is short when tasks of the machine stall on memory for longer than this within the
/// window. The kernel allows unprivileged processes windows of multiples of 2 s only.
const STALL_MAX: Duration = Duration::from_millis(150);
const STALL_WINDOW: Duration = Duration::from_secs(2);

/// Builds the runtime. If `settings.pressure` is set, the runtime monitors those sources of memory
/// pressure that the machine has.
pub fn build(settings: &Settings) -> Result<Runtime, String> {
    let builder = Runtime::builder().budget(settings.budget).watermarks(watermarks(settings.budget));
    if !settings.pressure {
        return builder.build().map_err(|why| why.to_string());
    }
    let builder = builder.cgroup_limit(true).systemd(true).pressure(PressureConfig::default());
    let trigger = Trigger::some(STALL_MAX, STALL_WINDOW).map_err(|why| why.to_string())?;
    // Not every kernel has PSI, and not every process may set a trigger.
    let with_psi = builder.clone().watch_psi(Psi::system(trigger)).build();
    with_psi.or_else(|_| builder.build()).map_err(|why| why.to_string())
}

/// Returns the watermarks. A store evicts values to make room for itself, so little of the budget
/// needs to be free; but enough for several large values at once, before the reclaimer has woken.
fn watermarks(budget: ByteSize) -> Watermarks {
    let part = |of: u64| ByteSize::new(budget.get() / of);
    let low_gap = part(128).max(part(32).min(FREE_BYTES_MIN));
    Watermarks { low_gap, high_gap: low_gap.saturating_add(low_gap) }
}
