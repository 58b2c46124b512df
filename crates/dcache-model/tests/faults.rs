//! Backends that block, return wrong results, or panic in the middle of a change: the caller gets
//! the fault, the cache stays consistent, and other names are served. `src/tests/rules.rs` tests a
//! backend that refuses every lookup and change; here a call may also fail after its change was
//! made. `docs/HAZARDS.md` quotes names of these tests.

#![cfg(not(lowwater_loom))]

use lowwater_dcache_model::backend::{InodeInfo, Memory};
use lowwater_dcache_model::{Backend, Dcache, ErrorKind, Kind, Mount, Name};
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::MemcgTree;
use lowwater_shrinker::Registry;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

/// A time limit that is reached only if an expected event never happens.
const PATIENCE: Duration = Duration::from_secs(60);

/// Called before each lookup and change with its name ("create"), and after each change with the
/// past form ("created"). Returns the error with which the call fails, if any.
type Fault = dyn Fn(&str, &[u8]) -> Option<io::Error> + Send + Sync;
/// Called with each inode that `root`, a lookup or a creation returns. Returns what the cache gets
/// instead.
type Answer = dyn Fn(&str, &[u8], InodeInfo) -> InodeInfo + Send + Sync;

/// A tree in memory with injected faults and answers.
struct Bent {
    memory: Memory,
    fault: Box<Fault>,
    answer: Box<Answer>,
}

impl Bent {
    fn at(&self, what: &str, name: Name<'_>) -> io::Result<()> {
        (self.fault)(what, name.bytes()).map_or(Ok(()), Err)
    }
}

impl Backend for Bent {
    fn root(&self) -> io::Result<InodeInfo> {
        Ok((self.answer)("root", b"", self.memory.root()?))
    }
    fn lookup(&self, dir: u64, name: Name<'_>) -> io::Result<Option<InodeInfo>> {
        self.at("lookup", name)?;
        Ok(self.memory.lookup(dir, name)?.map(|node| (self.answer)("lookup", name.bytes(), node)))
    }
    fn create(&self, dir: u64, name: Name<'_>, kind: Kind) -> io::Result<InodeInfo> {
        self.at("create", name)?;
        let made = self.memory.create(dir, name, kind)?;
        self.at("created", name)?;
        Ok((self.answer)("create", name.bytes(), made))
    }
    fn remove(&self, dir: u64, name: Name<'_>) -> io::Result<()> {
        self.at("remove", name)?;
        self.memory.remove(dir, name)?;
        self.at("removed", name)
    }
    fn rename(&self, from: (u64, Name<'_>), to: (u64, Name<'_>)) -> io::Result<()> {
        self.at("rename", from.1)?;
        self.memory.rename(from, to)?;
        self.at("renamed", from.1)
    }
    fn link(&self, file: u64, dir: u64, name: Name<'_>) -> io::Result<()> {
        self.at("link", name)?;
        self.memory.link(file, dir, name)?;
        self.at("linked", name)
    }
    fn read_dir(&self, dir: u64) -> io::Result<Vec<(Box<[u8]>, InodeInfo)>> {
        self.memory.read_dir(dir)
    }
}

struct Fixture {
    mount: Mount,
    dcache: Dcache,
    registry: Registry,
    _tree: MemcgTree,
}

impl Fixture {
    fn new(fault: Box<Fault>, answer: Box<Answer>) -> Self {
        let tree = MemcgTree::default();
        let registry = Registry::new(&tree, 1);
        let dcache = Dcache::builder().buckets(64).topology(Arc::new(Fixed::new(1))).build();
        let memory = Memory::new();
        for path in [&b"/d/file"[..], b"/d/other", b"/e/file", b"/die", b"/slow/x"] {
            memory.create_path(path, Kind::File).unwrap();
        }
        let mount = dcache.mount(Arc::new(Bent { memory, fault, answer }), &registry, tree.root()).unwrap();
        Self { mount, dcache, registry, _tree: tree }
    }

    fn honest(fault: Box<Fault>) -> Self {
        Self::new(fault, Box::new(|_, _, node| node))
    }

    fn assert_valid(&self) {
        let census = self.mount.assert_valid();
        let state = self.dcache.statistics();
        assert_eq!(
            (state.nr_dentry, state.nr_unused, state.nr_negative),
            (census.dentries, census.unused, census.negatives)
        );
    }

    /// Checks that everything can be reclaimed, and is found again afterwards.
    fn assert_usable(&self) {
        self.assert_valid();
        while self.registry.drop_caches() > 0 {}
        self.assert_valid();
        assert_eq!(self.dcache.statistics().nr_dentry, 1, "no name is in use, so the root alone is left");
        assert!(self.mount.lookup(b"/e/file").unwrap().is_some());
        assert!(self.mount.lookup(b"/e/none").unwrap().is_none());
        drop(self.mount.create(b"/e/new").unwrap());
        self.mount.rename(b"/e/new", b"/d/newer").unwrap();
        self.mount.unlink(b"/d/newer").unwrap();
        self.assert_valid();
    }
}

#[test]
fn a_backend_that_panics_in_any_change_keeps_no_lock() {
    let places = ["lookup", "create", "created", "remove", "removed", "rename", "renamed", "link", "linked"];
    for place in places {
        let armed = Arc::new(AtomicU64::new(0));
        let arm = Arc::clone(&armed);
        let fixture = Fixture::honest(Box::new(move |what, _| {
            assert!(what != place || arm.swap(0, Relaxed) == 0, "the backend panics at {what}");
            None
        }));
        let mount = &fixture.mount;
        let directory = mount.lookup(b"/d").unwrap().unwrap();
        let watch = mount.watch(b"/e").unwrap();
        let calls: [(&str, &dyn Fn()); 10] = [
            ("lookup", &|| drop(directory.child(b"missing").unwrap())),
            ("lookup", &|| drop(watch.directory().child(b"missing").unwrap())),
            ("lookup", &|| drop(mount.lookup(b"/d/absent").unwrap())),
            ("lookup", &|| drop(mount.lookup(b"/d/file").unwrap())),
            ("lookup", &|| assert!(mount.invalidate(b"/d").unwrap())),
            ("create", &|| drop(mount.create(b"/d/made").unwrap())),
            ("create", &|| drop(mount.mkdir(b"/d/dir").unwrap())),
            ("link", &|| drop(mount.link(b"/d/file", b"/d/linked").unwrap())),
            ("rename", &|| mount.rename(b"/d/other", b"/e/moved").unwrap()),
            ("remove", &|| mount.unlink(b"/d/file").unwrap()),
        ];
        let mut died = 0;
        for (of, call) in calls {
            // "created", too, is a place of "create".
            armed.store(u64::from(place.starts_with(of)), Relaxed);
            let result = catch_unwind(AssertUnwindSafe(call));
            died += u64::from(result.is_err());
            armed.store(0, Relaxed);
            fixture.assert_valid();
        }
        assert_eq!(died >= 4, place == "lookup", "{died} calls panicked at {place}");
        assert!(died > 0, "no call panicked at {place}");
        drop((directory, watch));
        fixture.assert_usable();
    }
}

#[test]
fn a_change_that_fails_late_shows_the_backends_state() {
    for place in ["created", "removed", "renamed", "linked"] {
        let fixture = Fixture::honest(Box::new(move |what, _| (what == place).then(|| io::Error::other("EIO"))));
        let mount = &fixture.mount;
        let error = match place {
            "created" => mount.create(b"/d/made").map(drop),
            "removed" => mount.unlink(b"/d/file"),
            "renamed" => mount.rename(b"/d/other", b"/e/moved"),
            _ => mount.link(b"/d/file", b"/d/linked").map(drop),
        };
        let error = error.unwrap_err();
        assert!(error.to_string().contains("EIO") && error.to_string().contains("/d/"), "{error}");
        fixture.assert_valid();
        // After everything is reclaimed, lookups show the backend's state.
        while fixture.registry.drop_caches() > 0 {}
        let there = |path: &[u8]| mount.lookup(path).unwrap().is_some();
        match place {
            "created" => assert!(there(b"/d/made")),
            "removed" => assert!(!there(b"/d/file")),
            "renamed" => assert!(there(b"/e/moved") && !there(b"/d/other")),
            _ => assert!(there(b"/d/linked")),
        }
        fixture.assert_valid();
    }
}

#[test]
fn an_invalidation_that_the_backend_refuses_leaves_a_directory_in_use_as_it_was() {
    let armed = Arc::new(AtomicU64::new(0));
    let arm = Arc::clone(&armed);
    let fixture = Fixture::honest(Box::new(move |what, name| {
        (what == "lookup" && name == b"d" && arm.load(Relaxed) > 0).then(|| io::Error::other("EIO"))
    }));
    let mount = &fixture.mount;
    let held = mount.lookup(b"/d/file").unwrap().unwrap();
    armed.store(1, Relaxed);
    let error = mount.invalidate(b"/d").unwrap_err();
    assert!(error.to_string().contains("EIO") && error.path() == b"/d", "{error}");
    assert!(mount.stat(b"/d/file").unwrap() == Some(held.stat()), "it is still cached");
    armed.store(0, Relaxed);
    assert!(mount.invalidate(b"/d").unwrap());
    drop(held);
    fixture.assert_usable();
}

#[test]
fn a_backend_that_blocks_on_one_name_serves_the_others() {
    let (tell, entered) = mpsc::channel();
    let (leave, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let fixture = Fixture::honest(Box::new(move |what, name| {
        if what == "lookup" && name == b"x" {
            tell.send(()).unwrap();
            wait.lock().unwrap().recv().unwrap();
        }
        None
    }));
    drop(fixture.mount.lookup(b"/d/file").unwrap());
    std::thread::scope(|s| {
        let slow = s.spawn(|| fixture.mount.lookup(b"/slow/x").unwrap().is_some());
        entered.recv_timeout(PATIENCE).unwrap();
        assert!(fixture.mount.lookup(b"/d/file").unwrap().is_some());
        assert!(fixture.mount.lookup(b"/d/none").unwrap().is_none());
        drop(fixture.mount.create(b"/e/made").unwrap());
        fixture.mount.rename(b"/e/made", b"/d/moved").unwrap();
        fixture.registry.drop_caches();
        assert!(fixture.mount.lookup(b"/d/moved").unwrap().is_some());
        leave.send(()).unwrap();
        assert!(slow.join().unwrap());
    });
    fixture.assert_valid();
}

#[test]
fn wrong_inode_numbers_and_kinds_affect_only_their_mount() {
    let calls = AtomicU64::new(0);
    let lie = move |what: &str, _: &[u8], node: InodeInfo| match calls.fetch_add(1, Relaxed) % 4 {
        _ if what == "root" => node,
        0 => InodeInfo { inode: 7, ..node },
        1 => InodeInfo { kind: if node.kind == Kind::File { Kind::Directory } else { Kind::File }, ..node },
        2 => InodeInfo { inode: 0, kind: Kind::Directory },
        _ => node,
    };
    let fixture = Fixture::new(Box::new(|_, _| None), Box::new(lie));
    let paths: Vec<Vec<u8>> = (0..200_u32)
        .map(|n| match n % 5 {
            0 => format!("/d/{n}"),
            1 => "/d/file".into(),
            2 => format!("/e/file/{n}"),
            3 => format!("/d/{}", n - 3),
            _ => "/e/file".into(),
        })
        .map(String::into_bytes)
        .collect();
    for path in &paths {
        let mount = &fixture.mount;
        // Any result is accepted: the test is that the calls return.
        let _ = mount.lookup(path).map(drop);
        let _ = mount.create(path).map(drop);
        let _ = mount.rename(path, b"/d/renamed");
        let _ = mount.link(b"/d/renamed", path).map(drop);
        let _ = mount.readdir(path);
        let _ = mount.lookup(b"/d").map(|directory| directory.map(|directory| directory.child(path).map(drop)));
        let _ = mount.unlink(path);
        let _ = mount.rmdir(path);
        fixture.assert_valid();
    }
    while fixture.registry.drop_caches() > 0 {}
    fixture.assert_valid();
    let Fixture { mount, dcache, .. } = fixture;
    drop(mount);
    assert_eq!(dcache.statistics().nr_dentry, 0);
}

/// A backend above another mount of the same cache.
struct Above(Mount);

fn path(name: Name<'_>) -> Vec<u8> {
    [b"/", name.bytes()].concat()
}

impl Backend for Above {
    fn root(&self) -> io::Result<InodeInfo> {
        Ok(InodeInfo { inode: 1, kind: Kind::Directory })
    }
    fn lookup(&self, _: u64, name: Name<'_>) -> io::Result<Option<InodeInfo>> {
        let stat = self.0.stat(&path(name))?;
        Ok(stat.map(|stat| InodeInfo { inode: stat.inode, kind: stat.kind }))
    }
    fn create(&self, _: u64, _: Name<'_>, _: Kind) -> io::Result<InodeInfo> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove(&self, _: u64, name: Name<'_>) -> io::Result<()> {
        Ok(self.0.unlink(&path(name))?)
    }
    fn rename(&self, from: (u64, Name<'_>), to: (u64, Name<'_>)) -> io::Result<()> {
        Ok(self.0.rename(&path(from.1), &path(to.1))?)
    }
    fn link(&self, _: u64, _: u64, _: Name<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn read_dir(&self, _: u64) -> io::Result<Vec<(Box<[u8]>, InodeInfo)>> {
        Ok(Vec::new())
    }
}

#[test]
fn a_root_that_is_no_directory_is_not_mounted() {
    let Fixture { mount, dcache, registry, _tree: tree } = Fixture::honest(Box::new(|_, _| None));
    drop(mount);
    for kind in [Kind::File, Kind::Other] {
        let answer = Box::new(move |_: &str, _: &[u8], node| InodeInfo { kind, ..node });
        let backend = Bent { memory: Memory::new(), fault: Box::new(|_, _| None), answer };
        let error = dcache.mount(Arc::new(backend), &registry, tree.root()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotADirectory), "{kind:?}: {error}");
        assert_eq!(dcache.statistics().nr_dentry, 0);
    }
}

#[test]
fn a_mount_may_be_the_backend_of_another() {
    let (tell, told) = mpsc::channel();
    let test = std::thread::spawn(move || {
        let Fixture { mount, dcache, registry, _tree: tree } = Fixture::honest(Box::new(|_, _| None));
        drop(mount.create(b"/old").unwrap());
        let upper = dcache.mount(Arc::new(Above(mount)), &registry, tree.root()).unwrap();
        assert!(upper.stat(b"/old").unwrap().is_some());
        upper.rename(b"/old", b"/new").unwrap();
        assert!(upper.stat(b"/old").unwrap().is_none() && upper.stat(b"/new").unwrap().is_some());
        tell.send(()).unwrap();
    });
    if told.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("a rename waits for itself");
    }
    test.join().unwrap();
}

#[test]
fn equal_numbers_of_different_kinds_are_not_one_file() {
    let renamed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&renamed);
    let fault = Box::new(move |what: &str, _: &[u8]| {
        count.fetch_add(u64::from(what == "rename"), Relaxed);
        None
    });
    // As a file of another file system, whose numbers are not those of this one.
    let answer = Box::new(|what: &str, name: &[u8], node: InodeInfo| match (what, name) {
        ("lookup", b"other") => InodeInfo { inode: 77, kind: Kind::Other },
        ("lookup", b"file") => InodeInfo { inode: 77, kind: Kind::File },
        _ => node,
    });
    let fixture = Fixture::new(fault, answer);
    fixture.mount.rename(b"/d/file", b"/d/other").unwrap();
    assert_eq!(renamed.load(Relaxed), 1, "the backend decides");
}

#[test]
fn another_mount_may_be_dropped_in_a_call_of_the_backend() {
    let (tell, told) = mpsc::channel();
    let test = std::thread::spawn(move || {
        let next: Arc<Mutex<Option<(&str, Mount)>>> = Arc::default();
        let theirs = Arc::clone(&next);
        let fixture = Fixture::honest(Box::new(move |what, _| {
            let other = theirs.lock().unwrap().take_if(|(place, _)| *place == what);
            drop(other);
            None
        }));
        let mount = &fixture.mount;
        let calls: [(&str, &dyn Fn()); 6] = [
            ("lookup", &|| assert!(mount.lookup(b"/d/absent").unwrap().is_none())),
            ("create", &|| drop(mount.create(b"/d/made").unwrap())),
            ("linked", &|| drop(mount.link(b"/d/file", b"/d/linked").unwrap())),
            ("rename", &|| mount.rename(b"/d/other", b"/e/moved").unwrap()),
            // A directory, whose rename locks out others.
            ("renamed", &|| mount.rename(b"/slow", b"/e/slow").unwrap()),
            ("remove", &|| mount.unlink(b"/d/file").unwrap()),
        ];
        for (place, call) in calls {
            let memory = Memory::new();
            memory.create_path(b"/a/b", Kind::File).unwrap();
            let other = fixture.dcache.mount(Arc::new(memory), &fixture.registry, fixture._tree.root()).unwrap();
            assert!(other.lookup(b"/a/b").unwrap().is_some() && other.lookup(b"/a/c").unwrap().is_none());
            *next.lock().unwrap() = Some((place, other));
            call();
            assert!(next.lock().unwrap().is_none(), "the backend was not called");
            // No name of the dropped mount is counted.
            fixture.assert_valid();
        }
        fixture.assert_usable();
        tell.send(()).unwrap();
    });
    assert_ne!(
        told.recv_timeout(PATIENCE / 2),
        Err(mpsc::RecvTimeoutError::Timeout),
        "a drop waits for its own thread"
    );
    test.join().unwrap();
}
