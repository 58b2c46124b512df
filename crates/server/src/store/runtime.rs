//! The runtime of the cache: its budget, watermarks and sources of memory pressure.
//!
//! A change must ensure that no other file of the server chooses options of the runtime; those of
//! the cache are in `store.rs`.

use lowwater::pressure::Watermarks;
use lowwater::Runtime;

use crate::settings::Settings;

/// Gaps of 1/128 and 1/64 of the budget and of each tenant's `max`. A store evicts values to make
/// room for itself, also for a large value, so little memory needs to be free.
const WATERMARKS: Watermarks = Watermarks::relative(128, 64);

/// Builds the runtime. If `settings.pressure` is set, the runtime monitors those sources of memory
/// pressure that the machine has.
pub fn build(settings: &Settings) -> Result<Runtime, String> {
    let builder = Runtime::builder().budget(settings.budget).watermarks(WATERMARKS);
    if !settings.pressure {
        return builder.build().map_err(|why| why.to_string());
    }
    builder.auto_pressure(true).build().map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use lowwater::ByteSize;

    use super::*;

    #[test]
    fn the_watermarks_follow_the_budget() {
        for (first, later) in [(4096, 64), (64, 4096), (64, 1)] {
            let first = format!("-m{first}");
            let settings = crate::settings::args::parse(["lowwater-server", &first]).unwrap().unwrap();
            let (runtime, later) = (build(&settings).unwrap(), ByteSize::mib(later));
            runtime.set_budget(later);
            let (max, marks) = (runtime.root().max(), runtime.reclaimer().watermarks());
            let gaps = (max.get() - marks.low(max).get(), max.get() - marks.target(max).get());
            assert_eq!(gaps, (later.get() / 128, later.get() / 64), "{first}, then {later}");
        }
    }
}
