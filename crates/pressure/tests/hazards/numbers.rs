//! Targets and monitors with extreme numbers.
//!
//! Every sum must saturate and every loop must end.

use crate::hazard::within;
use crate::{reclaimer, tree_and_registry};
use lowwater_lru_core::ByteSize;
use lowwater_pressure::{CgroupLimit, Level, Monitor, MonitorConfig, PressureConfig, Target};
use std::time::Duration;

fn configs() -> Vec<PressureConfig> {
    let mut configs = Vec::new();
    for percent in [0, 100, 255] {
        for floor in [None, Some(ByteSize::ZERO), Some(ByteSize::MAX)] {
            for time in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
                configs.push(PressureConfig {
                    low_percent: percent,
                    medium_percent: percent,
                    critical_percent: percent,
                    floor,
                    debounce: time,
                    quiet: time,
                    step_time: time,
                });
            }
        }
    }
    configs
}

#[test]
fn a_target_with_maximal_times_terminates() {
    within("targets", || {
        let ends = [ByteSize::ZERO, ByteSize::new(1), ByteSize::mib(1), ByteSize::new(u64::MAX - 1), ByteSize::MAX];
        for config in configs() {
            for budget in ends {
                for usage in ends {
                    let mut target = Target::new(config, budget);
                    for now in [u64::MAX, 0, u64::MAX - 1, 1, u64::MAX] {
                        for level in [Level::Calm, Level::Low, Level::Medium, Level::Critical] {
                            target.raise(now, level, usage);
                            target.raise_to(now, level, usage, ByteSize::ZERO);
                            assert!(target.ceiling() <= budget);
                            target.tick(now);
                            assert!(target.due().is_none_or(|due| due > now));
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn a_monitor_at_the_ends_of_its_config_keeps_the_limit_in_bounds() {
    within("monitors", || {
        let (tree, registry) = tree_and_registry();
        let threads = reclaimer(&registry);
        let _ = tree.root().try_charge(ByteSize::mib(1)).unwrap();
        for (n, pressure) in configs().into_iter().enumerate() {
            let budget = [ByteSize::ZERO, ByteSize::mib(2), ByteSize::MAX][n % 3];
            let cgroup = (n % 2 == 0).then(|| CgroupLimit::own().margin(ByteSize::MAX));
            let config = MonitorConfig { pressure, cgroup, ..MonitorConfig::default() };
            let monitor = Monitor::start(tree.root(), budget, threads.clone(), config).unwrap();
            for level in [Level::Critical, Level::Calm, Level::Low] {
                monitor.raise(level);
                monitor.freed(ByteSize::MAX);
                assert!(monitor.stats().ceiling <= budget);
                // Usage above the budget falls, and cannot grow meanwhile.
                assert!(tree.root().max() <= budget.max(tree.root().usage()));
            }
            monitor.set_budget(ByteSize::MAX);
            monitor.set_budget(ByteSize::ZERO);
            assert_eq!(monitor.budget(), ByteSize::ZERO);
        }
    });
}
