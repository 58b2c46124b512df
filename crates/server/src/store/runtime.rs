//! The runtime that the cache lives in: its budget, watermarks and sources of memory pressure.

use std::time::Duration;

use lowwater::pressure::{PressureConfig, Psi, Trigger, Watermarks};
use lowwater::{ByteSize, Runtime};

use crate::settings::Settings;

/// So much is kept free below the budget at least, if that is not too large a part of it.
const FREE_BYTES_MIN: ByteSize = ByteSize::kib(512);

/// Memory is short when tasks of the machine wait for it longer than this in a window; the kernel
/// lets everybody ask for windows of 2 s.
const STALL_MAX: Duration = Duration::from_millis(150);
const STALL_WINDOW: Duration = Duration::from_secs(2);

/// Builds the runtime, with those sources of memory pressure that the machine has if
/// `settings.pressure` is set.
pub fn build(settings: &Settings) -> Result<Runtime, String> {
    let builder = Runtime::builder().budget(settings.budget).watermarks(watermarks(settings.budget));
    if !settings.pressure {
        return builder.build().map_err(|why| why.to_string());
    }
    let builder = builder.cgroup_limit(true).systemd(true).pressure(PressureConfig::default());
    let trigger = Trigger::some(STALL_MAX, STALL_WINDOW).map_err(|why| why.to_string())?;
    // Not every kernel tells of stalls, and not to everybody.
    let with_psi = builder.clone().watch_psi(Psi::system(trigger)).build();
    with_psi.or_else(|_| builder.build()).map_err(|why| why.to_string())
}

/// Values make room for each other one by one, so little of the budget needs to be free; but not so
/// little that some large ones at once find none before the reclaimer has woken.
fn watermarks(budget: ByteSize) -> Watermarks {
    let part = |of: u64| ByteSize::new(budget.get() / of);
    let low_gap = part(128).max(part(32).min(FREE_BYTES_MIN));
    Watermarks { low_gap, high_gap: low_gap.saturating_add(low_gap) }
}
