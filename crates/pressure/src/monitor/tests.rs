//! A monitor with artificial sources: a control group whose usage rises and falls, and a FIFO and a
//! socket that stand for the service manager's.
//!
//! Files in a temporary directory stand for the kernel's; the two last tests use the real ones if
//! the system has them.
//!
//! A test must not depend on the load of the machine: it waits for an effect with a deadline. An
//! effect that must not happen is looked for after a short sleep: a slow machine may miss it, but
//! does not fail.

use super::*;
use crate::{PressureConfig, Source, SourceError};
use alloc::string::ToString;
use core::time::Duration;
use lowwater_lru_core::MemcgTree;
use std::fs;
use std::path::{Path, PathBuf};

/// A time limit that is reached only if an expected event never happens.
const PATIENCE: Duration = Duration::from_secs(60);

/// A reclaimer that frees nothing: the tests charge and uncharge themselves.
#[derive(Debug)]
struct Idle;

impl BackgroundReclaim for Idle {
    fn reclaim_to(&self, _memcg: &Memcg, _ceiling: ByteSize) {}
}

struct World {
    tree: MemcgTree,
    directory: PathBuf,
}

impl World {
    fn new(name: &str) -> Self {
        let tree = MemcgTree::new(0);
        let directory = std::env::temp_dir().join(std::format!("lowwater-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        Self { tree, directory }
    }

    fn start(&self, budget: ByteSize, config: MonitorConfig) -> Result<Monitor, MonitorError> {
        Monitor::start(self.tree.root(), budget, Arc::new(Idle), config)
    }

    fn charge(&self, bytes: u64) {
        let _above_high_or_not = self.tree.root().try_charge(ByteSize::new(bytes)).unwrap();
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.directory.join(name);
        // Atomically, as the kernel's files change.
        let new = self.directory.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &file).unwrap();
        file
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "timed out: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn quick() -> PressureConfig {
    let ms = Duration::from_millis;
    PressureConfig { debounce: ms(1), quiet: ms(20), step_time: ms(5), ..PressureConfig::default() }
}

#[test]
fn the_limit_follows_the_usage_down_stays_low_and_is_restored() {
    let world = World::new("follow");
    let root = world.tree.root();
    let config = PressureConfig { quiet: Duration::from_millis(500), ..quick() };
    let monitor =
        world.start(ByteSize::new(1000), MonitorConfig { pressure: config, ..MonitorConfig::default() }).unwrap();
    assert_eq!(root.max(), ByteSize::new(1000));
    world.charge(800);

    let raised = Instant::now();
    monitor.raise(Level::Critical);
    // On a busy machine the ceiling may rise again before this thread has seen the lower limits.
    let is_late = || raised.elapsed() >= config.quiet;
    let limits = (monitor.stats().ceiling, root.max());
    assert!(limits == (ByteSize::new(600), ByteSize::new(800)) || is_late(), "{limits:?}");
    let charged = root.try_charge(ByteSize::new(1));
    assert!(charged.is_err() || is_late(), "nothing is added while it is to come down");
    root.uncharge(ByteSize::new(100));
    until("the limit follows the usage", || root.max() == ByteSize::new(700) || is_late());
    root.uncharge(ByteSize::new(300));
    until("the limit is the ceiling", || root.max() == ByteSize::new(600) || is_late());
    let level = monitor.stats().level;
    assert!(level == Level::Critical || is_late(), "judged again already: {level}");

    until("all is given back", || root.max() == ByteSize::new(1000));
    let stats = monitor.stats();
    assert_eq!((stats.level, stats.lowered, stats.manual), (Level::Calm, 1, 1));
    assert!(stats.given_back >= 1);
}

#[test]
fn a_budget_that_is_lowered_follows_the_usage_as_well() {
    let world = World::new("budget");
    let root = world.tree.root();
    let monitor = world.start(ByteSize::new(1000), MonitorConfig::default()).unwrap();
    world.charge(800);
    monitor.set_budget(ByteSize::new(500));
    assert_eq!((monitor.budget(), root.max()), (ByteSize::new(500), ByteSize::new(800)));
    root.uncharge(ByteSize::new(800));
    until("the budget is the limit", || root.max() == ByteSize::new(500));
    monitor.set_budget(ByteSize::MAX);
    assert_eq!(root.max(), ByteSize::MAX);
}

#[test]
fn the_trim_hook_runs_after_enough_was_freed_and_may_panic() {
    let world = World::new("trim");
    let hook = || panic!("the test's hook panics");
    let trim = Trim::new(hook).threshold(ByteSize::new(100)).interval(Duration::ZERO);
    let monitor = world.start(ByteSize::new(1000), MonitorConfig { trim, ..MonitorConfig::default() }).unwrap();
    world.charge(1000);
    monitor.freed(ByteSize::new(99));
    monitor.freed(ByteSize::new(1));
    until("it is trimmed", || monitor.stats().trims == 1);
    // A usage that falls counts, too.
    monitor.raise(Level::Critical);
    world.tree.root().uncharge(ByteSize::new(400));
    until("it is trimmed again", || monitor.stats().trims == 2);
    assert_eq!(monitor.stats().trims_failed, 2);
}

#[test]
fn a_control_group_is_a_limit_and_its_usage_is_pressure() {
    use crate::cgroup::{Cgroup, Version};
    let world = World::new("cgroup");
    world.file("memory.max", "1000\n");
    world.file("memory.current", "500\n");
    let cgroup =
        CgroupLimit::of(Cgroup::at(Version::V2, &world.directory, &world.directory)).margin(ByteSize::new(400));
    let config = MonitorConfig { pressure: quick(), cgroup: Some(cgroup), ..MonitorConfig::default() };
    let monitor = world.start(ByteSize::new(900), config).unwrap();
    let root = world.tree.root();
    assert_eq!(root.max(), ByteSize::new(600), "the limit less the margin is below the requested budget");
    world.charge(500);

    // Less than a quarter of the margin is left.
    world.file("memory.current", "950\n");
    until("pressure is seen", || monitor.stats().lowered >= 1);
    world.file("memory.current", "500\n");
    root.uncharge(ByteSize::new(500));
    until("the ceiling rises again", || root.max() == ByteSize::new(600));

    world.file("memory.max", "2000\n");
    until("the higher limit is seen", || root.max() == ByteSize::new(900));

    world.file("memory.max", "plenty\n");
    until("the file is found malformed", || monitor.stats().cgroup.unwrap().error.is_some());
    let error = monitor.stats().cgroup.unwrap().error.unwrap();
    assert!(error.contains("memory.max") && error.contains("plenty"), "{error}");
    assert_eq!(root.max(), ByteSize::new(900), "the last limit stays");
    monitor.raise(Level::Critical);
    assert_eq!(monitor.stats().manual, 1, "the others go on");
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use crate::systemd::{Systemd, Watch, WATCH_VARIABLE, WRITE_VARIABLE};
    use crate::{Psi, Trigger};
    use std::io::{Read, Write};
    use std::os::unix::fs::OpenOptionsExt;
    use std::os::unix::net::UnixListener;
    use std::println;

    fn watch(path: &Path, write: &[u8]) -> MonitorConfig {
        let watch = Watch { path: path.to_str().unwrap().into(), write: write.into() };
        MonitorConfig { sources: [Source::Systemd(watch)].into(), pressure: quick(), ..MonitorConfig::default() }
    }

    fn events(monitor: &Monitor) -> u64 {
        monitor.stats().sources[0].events
    }

    fn make_fifo(path: &Path) {
        let path = path.to_str().unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    }

    #[test]
    fn systemd_a_fifo_is_drained_and_the_monitors_own_bytes_are_ignored() {
        let world = World::new("fifo");
        let path = world.directory.join("fifo");
        make_fifo(&path);
        let monitor = world.start(ByteSize::new(1000), watch(&path, b"some 1 2\0")).unwrap();
        let mut other = fs::OpenOptions::new().write(true).open(&path).unwrap();
        thread::sleep(Duration::from_millis(50));
        assert_eq!(events(&monitor), 0, "the monitor's own bytes are no event");
        for _ in 0..3 {
            let before = events(&monitor);
            other.write_all(&[b'x'; 10_000]).unwrap();
            until("the event is heard", || events(&monitor) > before);
            // The monitor has to read all bytes, more than one read (4,096) takes, or the poll
            // would report them forever.
            let settled = events(&monitor);
            thread::sleep(Duration::from_millis(20));
            let later = events(&monitor);
            assert!(later <= settled + 1, "{later} events of one");
        }
        drop(other);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(monitor.stats().sources[0].error, None, "a FIFO has no end while we hold it");
    }

    #[test]
    fn systemd_a_fifo_receives_the_bytes_of_the_write_variable() {
        let world = World::new("fifo-read");
        let path = world.directory.join("fifo");
        make_fifo(&path);
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut manager = fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path).unwrap();
        // Without a monitor, whose thread would read the bytes first.
        let source = Source::Systemd(Watch { path: path.to_str().unwrap().into(), write: b"full 5 6\0".into() });
        let _opened = OpenSource::open(&source).unwrap();
        let mut read = [0; 32];
        let n = manager.read(&mut read).unwrap();
        assert_eq!(&read[..n], b"full 5 6\0");
    }

    #[test]
    fn systemd_a_fifo_that_is_named_and_found_is_opened_once() {
        const CHILD: &str = "LOWWATER_FIFO_CHILD";
        let world = World::new("fifo-found");
        let path = world.directory.join("fifo");
        if std::env::var_os(CHILD).is_none() {
            // In a child, because the environment of this process is that of its other tests.
            let test = "monitor::tests::linux::systemd_a_fifo_that_is_named_and_found_is_opened_once";
            make_fifo(&path);
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", test]).env(CHILD, "1").env(WATCH_VARIABLE, &path).env(WRITE_VARIABLE, "c29tZQ==");
            let out = child.output().unwrap();
            let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success() && text.contains("1 passed"), "{}: {text}", out.status);
            return;
        }
        let Ok(Systemd::Watch(watch)) = Systemd::from_env() else { panic!("the variables are set") };
        let path = watch.path.clone();
        let sources = [Source::Systemd(watch)].into();
        let config = MonitorConfig { sources, auto: true, ..MonitorConfig::default() };
        let monitor = world.start(ByteSize::new(1000), config).unwrap();
        thread::sleep(Duration::from_millis(50));
        assert_eq!(events(&monitor), 0, "the monitor's own bytes are no event");
        assert_eq!(monitor.stats().sources.iter().filter(|source| source.file == path).count(), 1);
        fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(b"!").unwrap();
        until("the event is heard", || events(&monitor) == 1);
    }

    #[test]
    fn systemd_a_socket_is_connected_drained_and_its_close_is_reported() {
        let world = World::new("socket");
        let path = world.directory.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let monitor = world.start(ByteSize::new(1000), watch(&path, b"\0any\xff")).unwrap();
        let (mut manager, _) = listener.accept().unwrap();
        let mut read = [0; 5];
        manager.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"\0any\xff");
        world.charge(1000);
        manager.write_all(b"!").unwrap();
        until("the event is heard", || events(&monitor) == 1);
        assert_eq!(monitor.stats().lowered, 1);
        drop(manager);
        until("the end is noticed", || monitor.stats().sources[0].error.is_some());
        let error = monitor.stats().sources[0].error.clone().unwrap();
        assert!(error.contains("socket") && error.contains("closed"), "{error}");
        monitor.raise(Level::Critical);
        assert_eq!(monitor.stats().manual, 1, "the others go on");
    }

    #[test]
    fn systemd_a_regular_file_is_written_and_never_read() {
        let world = World::new("regular");
        let path = world.file("memory.pressure", "");
        let monitor = world.start(ByteSize::new(1000), watch(&path, b"some 200000 2000000\0")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"some 200000 2000000\0");
        // A regular file is always readable: a wait for POLLIN would spin.
        thread::sleep(Duration::from_millis(20));
        assert_eq!(events(&monitor), 0);
    }

    #[test]
    fn systemd_unsuitable_files_are_refused_with_their_path() {
        let world = World::new("refused");
        let error = world.start(ByteSize::new(1), watch(&world.directory, b"")).unwrap_err().to_string();
        assert!(error.contains("neither a PSI file nor a FIFO"), "{error}");
        let missing = world.directory.join("missing");
        let error = world.start(ByteSize::new(1), watch(&missing, b"")).unwrap_err().to_string();
        assert!(error.contains("missing cannot be opened"), "{error}");
        assert_eq!(world.tree.root().max(), ByteSize::MAX, "a monitor that does not start changes nothing");
    }

    #[test]
    fn the_real_psi_file_takes_a_trigger_and_refuses_a_wrong_window() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let world = World::new("psi");
        let start = |trigger| {
            let sources = [Source::Psi(Psi::system(trigger))].into();
            world.start(ByteSize::MAX, MonitorConfig { sources, ..MonitorConfig::default() })
        };
        match start(Trigger::some(ms(150), s(2)).unwrap()) {
            Ok(monitor) => {
                assert_eq!(monitor.stats().sources[0].file, "/proc/pressure/memory");
                assert_eq!(monitor.stats().sources[0].error, None);
            }
            Err(error @ MonitorError::Source(SourceError::Open { .. })) => return println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        }
        // This window is accepted only with CAP_SYS_RESOURCE.
        match start(Trigger::some(ms(150), s(1)).unwrap()) {
            Ok(_) => println!("skipped: this process may choose any window"),
            Err(error) => {
                let text = error.to_string();
                for part in ["/proc/pressure/memory", "some 150000 1000000", "multiple of 2 s"] {
                    assert!(text.contains(part), "{text:?} does not say {part:?}");
                }
            }
        }
    }

    #[test]
    fn a_named_trigger_does_not_replace_the_found_one_of_the_same_file() {
        let world = World::new("both");
        let full = Trigger::full(Duration::from_millis(150), Duration::from_secs(2)).unwrap();
        let auto =
            |sources| world.start(ByteSize::MAX, MonitorConfig { sources, auto: true, ..MonitorConfig::default() });
        let watched = |monitor: Monitor| {
            monitor.stats().sources.iter().filter(|source| source.file == "/proc/pressure/memory").count()
        };
        let found = watched(auto(Vec::new()).unwrap());
        match auto([Source::Psi(Psi::system(full))].into()) {
            Ok(monitor) => assert_eq!(watched(monitor), found + 1),
            Err(error) => println!("skipped: {error}"),
        }
    }

    #[test]
    fn our_own_groups_psi_file_is_found() {
        let trigger = Trigger::full(Duration::from_millis(100), Duration::from_secs(2)).unwrap();
        match OpenSource::open(&Source::Psi(Psi::own_cgroup(trigger))) {
            Ok(opened) => assert!(opened.file().ends_with("memory.pressure") || opened.file().starts_with("/proc/")),
            Err(error @ (SourceError::Open { .. } | SourceError::NoCgroup)) => println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
}
