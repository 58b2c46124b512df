//! Targets and monitors at the ends of their numbers.

use crate::hazard::within;
use crate::{reclaimer, tree_and_registry};
use lowwater_lru_core::Bytes;
use lowwater_pressure::{CgroupLimit, Level, Monitor, MonitorConfig, PressureConfig, Target};
use std::time::Duration;

fn configs() -> Vec<PressureConfig> {
    let mut configs = Vec::new();
    for percent in [0, 100, 255] {
        for floor in [None, Some(Bytes::ZERO), Some(Bytes::MAX)] {
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
fn a_target_at_the_end_of_time_ends() {
    within("targets", || {
        let ends = [Bytes::ZERO, Bytes::new(1), Bytes::mib(1), Bytes::new(u64::MAX - 1), Bytes::MAX];
        for config in configs() {
            for budget in ends {
                for usage in ends {
                    let mut target = Target::new(config, budget);
                    for now in [u64::MAX, 0, u64::MAX - 1, 1, u64::MAX] {
                        for level in [Level::Calm, Level::Low, Level::Medium, Level::Critical] {
                            target.raise(now, level, usage);
                            target.raise_to(now, level, usage, Bytes::ZERO);
                            assert!(target.ceiling() <= budget);
                            target.tick(now);
                            assert!(target.due().is_none_or(|due| due >= now || target.ceiling() < budget));
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
        let _ = tree.root().try_charge(Bytes::mib(1)).unwrap();
        for (n, pressure) in configs().into_iter().enumerate() {
            let budget = [Bytes::ZERO, Bytes::mib(2), Bytes::MAX][n % 3];
            let cgroup = (n % 2 == 0).then(|| CgroupLimit::own().margin(Bytes::MAX));
            let config = MonitorConfig { pressure, cgroup, ..MonitorConfig::default() };
            let monitor = Monitor::start(tree.root(), budget, threads.clone(), config).unwrap();
            for level in [Level::Critical, Level::Calm, Level::Low] {
                monitor.raise(level);
                monitor.freed(Bytes::MAX);
                assert!(monitor.stats().ceiling <= budget);
                // What is above comes down, and is not let rise meanwhile.
                assert!(tree.root().max() <= budget.max(tree.root().usage()));
            }
            monitor.set_budget(Bytes::MAX);
            monitor.set_budget(Bytes::ZERO);
            assert_eq!(monitor.budget(), Bytes::ZERO);
        }
    });
}
