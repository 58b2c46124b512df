//! The sources of a monitor that watches whatever its machine has.
//!
//! Which sources exist depends on the kernel, on the container and on the process's rights. A
//! source or a control group that the configuration names must exist; a source that is found here,
//! and this process's own control group, may be missing, and the reason is kept for
//! [`PressureStats::missing`](super::PressureStats::missing).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::limit::{CgroupLimit, WatchedCgroup};
use crate::psi::{Psi, Trigger, TriggerError};
use crate::source::{OpenSource, Source};
use crate::systemd::{Systemd, SystemdError};

/// Memory is short when tasks stall on it for at least this time within the window.
/// [`MonitorConfig::auto`](super::MonitorConfig::auto) and `src/runtime/builder.rs` of `lowwater`
/// state both numbers.
const STALL: Duration = Duration::from_millis(150);
/// The kernel allows unprivileged processes windows of multiples of 2 s only.
const STALL_WINDOW: Duration = Duration::from_secs(2);

/// The sources that were opened, and the reasons for those that were not.
#[derive(Debug, Default)]
pub(super) struct FoundSources {
    pub(super) opened: Vec<OpenSource>,
    /// One sentence for each source or limit that cannot be watched.
    pub(super) missing: Vec<String>,
}

impl FoundSources {
    /// Opens the sources of this machine: the service manager's file, the stalls of this process's
    /// own control group, and those of the whole system: in a container the host's, on purpose (see
    /// [`MonitorConfig::auto`](super::MonitorConfig::auto)). The service manager's file is not
    /// opened if it is among the `named` sources: if it is a FIFO, the named source would read the
    /// bytes of the second open as an event.
    pub(super) fn of_this_machine(named: &[Source]) -> Self {
        Self::with(Systemd::from_env(), named)
    }

    /// Opens the sources of this machine under this setting of the service manager.
    fn with(systemd: Result<Systemd, SystemdError>, named: &[Source]) -> Self {
        let mut found = Self::default();
        let reason = systemd.as_ref().ok().and_then(Systemd::missing).unwrap_or_default();
        match systemd {
            Ok(Systemd::Watch(watch)) => {
                let source = Source::Systemd(watch);
                if !named.contains(&source) {
                    found.open(&source);
                }
            }
            // Also stalls are pressure, which must not be watched.
            Ok(Systemd::Off) => {
                let sources = ["a file of the manager", "stalls of this control group", "stalls of the whole system"];
                found.missing.extend(sources.map(|source| format!("{source}: {reason}")));
                return found;
            }
            Ok(Systemd::Unset) => found.missing.push(reason.into()),
            Err(error) => found.missing.push(error.to_string()),
        }
        match trigger() {
            Ok(trigger) => {
                found.open(&Source::Psi(Psi::own_cgroup(trigger)));
                found.open(&Source::Psi(Psi::system(trigger)));
            }
            Err(error) => found.missing.push(error.to_string()),
        }
        found
    }

    /// Opens a source, or notes the reason why it cannot be watched. A second source of the same
    /// file and trigger is closed again: the service manager may name the group's own file, and the
    /// root group without a `memory.pressure` file uses the system's.
    pub(super) fn open(&mut self, source: &Source) {
        match OpenSource::open(source) {
            Ok(source) if self.opened.iter().any(|other| source.repeats(other)) => {}
            Ok(source) => self.opened.push(source),
            Err(error) => self.missing.push(error.to_string()),
        }
    }

    /// Finds this process's control group as a limit. If the group cannot be read or does not
    /// exist, adds the reason to `missing`.
    pub(super) fn cgroup(&mut self, config: CgroupLimit) -> Option<WatchedCgroup> {
        match WatchedCgroup::find(config) {
            Ok(found) => noted(found, &mut self.missing),
            Err(error) => {
                self.missing.push(error.to_string());
                None
            }
        }
    }
}

/// Adds the reason to `missing` if no control group was found, and returns what was found.
pub(super) fn noted(found: Option<WatchedCgroup>, missing: &mut Vec<String>) -> Option<WatchedCgroup> {
    if found.is_none() {
        missing.push("this process sees no control group for memory".into());
    }
    found
}

fn trigger() -> Result<Trigger, TriggerError> {
    Trigger::some(STALL, STALL_WINDOW)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::cgroup::{Cgroup, Version};
    use crate::systemd::Watch;
    use std::fs;

    #[test]
    fn the_trigger_needs_no_privilege() {
        assert!(trigger().unwrap().is_unprivileged());
    }

    #[test]
    fn nothing_is_watched_that_the_service_manager_has_switched_off() {
        let found = FoundSources::with(Ok(Systemd::Off), &[]);
        assert!(found.opened.is_empty(), "{:?}", found.opened);
        assert_eq!(found.missing.len(), 3, "a reason for each source");
        assert!(found.missing.iter().all(|reason| reason.contains("/dev/null")), "{:?}", found.missing);
    }

    #[test]
    fn a_source_that_is_missing_is_noted_and_the_others_are_watched() {
        let path = std::env::temp_dir().join(format!("lowwater-auto-{}", std::process::id()));
        let file = path.to_str().expect("a plain path").to_string();
        fs::write(&file, "").unwrap();
        let mut found = FoundSources::default();
        found.open(&Source::Psi(Psi::cgroup("/nowhere", trigger().unwrap())));
        for _ in 0..2 {
            found.open(&Source::Systemd(Watch { path: file.clone(), write: Vec::new() }));
        }
        assert_eq!(found.opened.iter().map(OpenSource::file).collect::<Vec<_>>(), [&file], "once, and only this one");
        assert_eq!(found.missing.len(), 1);
        assert!(found.missing[0].contains("/nowhere/memory.pressure"), "{:?}", found.missing);
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn each_trigger_of_a_file_is_watched_once() {
        let path = std::env::temp_dir().join(format!("lowwater-auto-triggers-{}", std::process::id()));
        let file = path.to_str().expect("a plain path").to_string();
        fs::write(&file, "").unwrap();
        let full = Trigger::full(STALL, STALL_WINDOW).unwrap();
        let managers = |write: &[u8]| Source::Systemd(Watch { path: file.clone(), write: write.into() });
        let mut found = FoundSources::default();
        for (source, watched) in [
            (managers(b"some 1900000 2000000\0"), 1),
            (Source::Psi(Psi::file(&file, trigger().unwrap())), 2),
            (Source::Psi(Psi::file(&file, full)), 3),
            (Source::Psi(Psi::file(&file, trigger().unwrap())), 3),
            (managers(b"full 150000 2000000\0"), 3),
        ] {
            found.open(&source);
            assert_eq!(found.opened.len(), watched, "{source:?}");
        }
        assert!(found.missing.is_empty(), "{:?}", found.missing);
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn an_own_group_that_is_not_visible_is_noted() {
        let mut missing = Vec::new();
        assert!(noted(None, &mut missing).is_none());
        assert!(missing[0].contains("control group"), "{missing:?}");
    }

    #[test]
    fn a_group_that_cannot_be_read_is_noted() {
        let directory = std::env::temp_dir().join(format!("lowwater-auto-group-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("memory.max"), "a lot\n").unwrap();
        let limit = CgroupLimit::of(Cgroup::at(Version::V2, &directory, &directory));
        let mut found = FoundSources::default();
        assert!(found.cgroup(limit.clone()).is_none());
        assert!(found.missing[0].contains("memory.max"), "{:?}", found.missing);
        fs::write(directory.join("memory.max"), "100663296\n").unwrap();
        assert!(found.cgroup(limit).is_some());
        assert_eq!(found.missing.len(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}
