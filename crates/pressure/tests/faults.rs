//! Pressure files that vanish, are malformed or cannot be read, and control groups that are
//! removed: the last limit stays in effect, the error names the file, and manual pressure still
//! works.
//!
//! The rule under test: an error never removes a limit that was known, and never stops the thread.

#![cfg(target_os = "linux")]

use lowwater_lru_core::{ByteSize, Memcg, MemcgTree};
use lowwater_pressure::cgroup::{Cgroup, Version};
use lowwater_pressure::{
    BackgroundReclaim, CgroupLimit, Level, Monitor, MonitorConfig, MonitorError, PressureConfig, Psi, Source, Trigger,
};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A time limit that is reached only if an expected event never happens.
const PATIENCE: Duration = Duration::from_secs(60);
/// Several times that after which a level ends (`quiet` of `World::config`).
const HELD: Duration = Duration::from_millis(200);
/// A file whose reads fail with EIO: no memory is mapped at address 0.
const EIO: &str = "/proc/self/mem";

/// A reclaimer that frees nothing: the tests charge and uncharge themselves.
#[derive(Debug)]
struct Idle;

impl BackgroundReclaim for Idle {
    fn reclaim_to(&self, _memcg: &Memcg, _ceiling: ByteSize) {}
}

/// A tree, and a group's files with a limit of 1000 bytes. With the margin of 400 (`config`) the
/// limit leaves a budget of 600, which is below the 900 that `start` requests.
struct World {
    tree: MemcgTree,
    group: PathBuf,
}

impl World {
    fn new(name: &str) -> Self {
        let tree = MemcgTree::new(0);
        let group = std::env::temp_dir().join(format!("lowwater-fault-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&group);
        fs::create_dir_all(&group).unwrap();
        let world = Self { tree, group };
        world.write("memory.max", "1000\n");
        world.write("memory.current", "500\n");
        world
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        // Atomically, as the kernel's files change.
        let new = self.group.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, self.group.join(name)).unwrap();
    }

    fn config(&self) -> MonitorConfig {
        let cgroup = Cgroup::at(Version::V2, &self.group, &self.group);
        config(CgroupLimit::of(cgroup).margin(ByteSize::new(400)))
    }

    fn start(&self, config: MonitorConfig) -> Result<Monitor, MonitorError> {
        Monitor::start(self.tree.root(), ByteSize::new(900), Arc::new(Idle), config)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.group);
    }
}

fn config(limit: CgroupLimit) -> MonitorConfig {
    let ms = Duration::from_millis;
    let pressure = PressureConfig { debounce: ms(1), quiet: ms(20), step_time: ms(5), ..PressureConfig::default() };
    MonitorConfig { pressure, cgroup: Some(limit), ..MonitorConfig::default() }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the CPU time of `self` or `thread-self`, in ticks of 10 ms.
fn ticks(of: &str) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{of}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Waits until the other threads use an eighth of the CPU time of this thread, which is busy: a
/// thread that runs in circles would use about as much, also on a busy machine.
fn wait_until_idle() {
    static BUSY: Mutex<()> = Mutex::new(());
    let _busy = BUSY.lock();
    until("the other threads sleep", || {
        let (all, own) = (ticks("self"), ticks("thread-self"));
        while ticks("thread-self") < own + 40 {}
        ticks("self") - all <= 45
    });
}

/// Checks that the error appears in the statistics and names the file, that the last limit stays in
/// effect, and that manual pressure still works.
fn is_told_and_harmless(world: &World, monitor: &Monitor, words: &[&str]) {
    let told = || monitor.stats().cgroup.unwrap().error;
    until("the error is reported", || told().is_some());
    let text = told().unwrap();
    words.iter().for_each(|word| assert!(text.contains(word), "{text:?} does not say {word:?}"));
    assert_eq!(monitor.budget(), ByteSize::new(600), "the last limit stays");
    assert_eq!(world.tree.root().max(), ByteSize::new(600));
    let manual = monitor.stats().manual;
    monitor.raise(Level::Critical);
    assert_eq!(monitor.stats().manual, manual + 1);
}

fn until_the_pressure_is_over(world: &World) {
    until("the pressure by hand is over", || world.tree.root().max() == ByteSize::new(600));
}

#[test]
fn a_malformed_file_is_reported_and_the_last_limit_stays() {
    let bad: [(&str, &[u8]); 9] = [
        ("memory.max", b"plenty\n"),
        ("memory.max", b""),
        ("memory.max", b"-1\n"),
        ("memory.max", b"99999999999999999999999999\n"),
        ("memory.high", b"\xff\xfe\n"),
        ("memory.current", b"\0\0\0"),
        ("memory.current", b"12 34\n"),
        ("memory.stat", b"inactive_file many\n"),
        ("memory.stat", b"inactive_file"),
    ];
    for (name, text) in bad {
        let world = World::new("garbage");
        let monitor = world.start(world.config()).unwrap();
        world.write(name, text);
        is_told_and_harmless(&world, &monitor, &[name, "not a control group's file"]);
        std::thread::sleep(HELD);
        assert_eq!(monitor.stats().level, Level::Critical, "held until the group can be read");

        // A file that is malformed at the start is an error of `start`, which changes nothing.
        drop(monitor);
        world.tree.root().set_max(ByteSize::new(77));
        let error = world.start(world.config()).unwrap_err();
        assert!(matches!(error, MonitorError::Cgroup(_)) && error.to_string().contains(name), "{error}");
        assert_eq!(world.tree.root().max(), ByteSize::new(77));
    }
}

#[test]
fn a_named_group_that_does_not_exist_is_an_error_of_the_start() {
    let world = World::new("typo");
    world.tree.root().set_max(ByteSize::new(77));
    // Also below a group that exists: its limit is not that of the named group.
    for top in [&world.group, &world.group.join("typo")] {
        let limit = CgroupLimit::of(Cgroup::at(Version::V2, top, &world.group.join("typo")));
        for auto in [false, true] {
            let error = world.start(MonitorConfig { auto, ..config(limit.clone()) }).unwrap_err();
            assert!(matches!(error, MonitorError::Cgroup(_)) && error.to_string().contains("typo"), "{error}");
        }
        assert!(limit.read().is_err());
    }
    assert_eq!(world.tree.root().max(), ByteSize::new(77));
}

#[test]
fn an_unreadable_file_is_reported_and_the_last_limit_stays() {
    let files = [("memory.max", "1000\n"), ("memory.high", "max\n"), ("memory.current", "500\n"), ("memory.stat", "")];
    for (name, good) in files {
        let world = World::new("eio");
        let monitor = world.start(world.config()).unwrap();
        // Atomically, so that no reading finds the file missing, which is no error.
        symlink(EIO, world.group.join("new")).unwrap();
        fs::rename(world.group.join("new"), world.group.join(name)).unwrap();
        is_told_and_harmless(&world, &monitor, &[name, "cannot be read", "os error 5"]);
        let error = world.start(world.config()).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("os error 5"), "{error}");
        std::thread::sleep(HELD);
        assert_eq!(monitor.stats().level, Level::Critical, "held until the group can be read");
        world.write(name, good);
        until_the_pressure_is_over(&world);
        assert_eq!(monitor.stats().cgroup.unwrap().error, None);
    }
}

#[test]
fn counters_that_cannot_be_read_are_refused_at_the_start() {
    let world = World::new("events");
    symlink(EIO, world.group.join("memory.events")).unwrap();
    let error = world.start(world.config()).unwrap_err().to_string();
    assert!(error.contains("memory.events"), "{error}");
    fs::remove_file(world.group.join("memory.events")).unwrap();
    world.write("memory.events", "oom many\n");
    let error = world.start(world.config()).unwrap_err().to_string();
    assert!(error.contains("memory.events") && error.contains("oom"), "{error}");
}

#[test]
fn a_group_that_vanishes_as_a_whole_leaves_the_last_limit() {
    let world = World::new("vanish");
    let monitor = world.start(world.config()).unwrap();
    // Atomically: `monitor/limit.rs` tests a reading between the removal of the files and that of
    // the directory.
    let away = world.group.with_extension("away");
    fs::rename(&world.group, &away).unwrap();
    fs::remove_dir_all(&away).unwrap();
    is_told_and_harmless(&world, &monitor, &["lowwater-fault", "cannot be read"]);
    until_the_pressure_is_over(&world);
    wait_until_idle();
}

#[test]
fn a_removed_limit_is_not_an_error() {
    let world = World::new("off");
    let monitor = world.start(world.config()).unwrap();
    fs::remove_file(world.group.join("memory.max")).unwrap(); // The controller was switched off for this group.
    until("the budget is the requested one", || monitor.budget() == ByteSize::new(900));
    assert_eq!(monitor.stats().cgroup.unwrap().error, None);
}

/// A control group of the real kernel, removed on drop.
struct Real(PathBuf);

impl Real {
    /// Creates the group; `None` where this process may not.
    fn make(hierarchy: &str) -> Option<Self> {
        let path = Path::new(hierarchy).join(format!("lowwater-fault-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Some(Self(path)),
            Err(error) => {
                println!("skipped: {}: {error}", path.display());
                None
            }
        }
    }

    fn remove(&self) {
        fs::remove_dir(&self.0).unwrap();
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_real_v1_group_that_is_removed_leaves_the_last_limit() {
    let Some(real) = Real::make("/sys/fs/cgroup/memory") else { return };
    let limit = real.0.join("memory.limit_in_bytes");
    if let Err(error) = fs::write(&limit, "1073741824") {
        return println!("skipped: {}: {error}", limit.display());
    }
    let world = World::new("v1");
    let cgroup = CgroupLimit::of(Cgroup::at(Version::V1, &real.0, &real.0)).margin(ByteSize::mib(24));
    let monitor = Monitor::start(world.tree.root(), ByteSize::MAX, Arc::new(Idle), config(cgroup)).unwrap();
    assert_eq!(monitor.budget(), ByteSize::mib(1000));
    real.remove();
    until("the error is reported", || monitor.stats().cgroup.unwrap().error.is_some());
    assert_eq!(monitor.budget(), ByteSize::mib(1000), "the last limit stays");
    assert_eq!(world.tree.root().max(), ByteSize::mib(1000));
}

#[test]
fn a_real_groups_stalls_end_with_the_group() {
    let unified = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let Some(real) =
        unified.iter().filter(|top| Path::new(top).join("cgroup.controllers").exists()).find_map(|top| Real::make(top))
    else {
        return;
    };
    let trigger = Trigger::some(Duration::from_millis(100), Duration::from_secs(2)).unwrap();
    let sources = vec![Source::Psi(Psi::cgroup(real.0.to_str().unwrap(), trigger))];
    let world = World::new("stalls");
    let monitor = match world.start(MonitorConfig { sources, cgroup: None, ..world.config() }) {
        Ok(monitor) => monitor,
        Err(error) => return println!("skipped: {error}"),
    };
    assert_eq!(monitor.stats().sources[0].error, None);
    real.remove();
    until("the end is reported", || monitor.stats().sources[0].error.is_some());
    let error = monitor.stats().sources[0].error.clone().unwrap();
    assert!(error.contains("memory.pressure"), "{error}");
    wait_until_idle();
    monitor.raise(Level::Medium);
    assert_eq!(monitor.stats().manual, 1, "the others go on");
}

/// The system refuses a thread. The condition cannot be undone within a process, so the test runs
/// in a child: this binary, with a limit of address space that a few thread stacks use up.
mod no_threads {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    const CHILD: &str = "LOWWATER_FAULTS_CHILD";

    /// Returns true in the child. Otherwise runs `test` in a child, after these shell commands, and
    /// returns false.
    fn in_child(test: &str, shell: &str) -> bool {
        if std::env::var_os(CHILD).is_some() {
            return true;
        }
        let this = std::env::current_exe().unwrap();
        let script = format!("{shell}; exec \"$0\" --exact {test} --test-threads=1 --nocapture");
        let out = Command::new("sh").args(["-c", &script]).arg(this).env(CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && text.contains("1 passed"), "{}: {text}", out.status);
        false
    }

    #[test]
    fn a_monitor_without_a_thread_is_an_error() {
        let name = "no_threads::a_monitor_without_a_thread_is_an_error";
        if std::env::var_os("LOWWATER_SANITIZER").is_some() {
            return println!("skipped: a sanitizer has no use for a limit on addresses");
        }
        // Address space for a few stacks of 64 MiB.
        if !in_child(name, "export RUST_MIN_STACK=67108864; ulimit -v 1500000") {
            return;
        }
        let tree = MemcgTree::new(0);
        let end = AtomicBool::new(false);
        std::thread::scope(|s| {
            let end = &end;
            let idle = move || {
                while !end.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(1))
                }
            };
            // The stack of an ended thread may be freed late. Then the monitor got its thread, and
            // the next attempt has to use up the address space again.
            let error = loop {
                while std::thread::Builder::new().spawn_scoped(s, idle).is_ok() {}
                let config = MonitorConfig::default();
                if let Err(error) = Monitor::start(tree.root(), ByteSize::new(10), Arc::new(Idle), config) {
                    break error;
                }
            };
            end.store(true, Relaxed);
            assert!(matches!(error, MonitorError::Thread(_)), "{error}");
            assert!(error.to_string().contains("ulimit -u"), "{error}");
        });
    }
}
