//! Properties under concurrency.
//!
//! Threads run real operations; each test asserts what no interleaving may violate.
//!
//! Numbers such as D6 are those of docs/INVARIANTS.md.
//!
//! A test must fail by an assertion and not by a hang.

use super::Fixture;
use crate::backend::{Backend, InodeInfo, Memory};
use crate::dentry::Dentry;
use crate::negative::{BoundInputs, NewNegative, Probation, ThreeInARow, Unbounded};
use crate::{Dcache, DentryRef, ErrorKind, Kind, Mount, Name, NegativePolicy, WalkControl};
use lowwater_lru_core::{ByteSize, MemcgTree};
use lowwater_shrinker::Registry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Arc, Barrier, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Sets a flag when it is dropped, also by a panic: the threads that loop until then end, and the
/// test fails instead of hanging.
struct SetsAtEnd<'a>(&'a AtomicBool);

impl Drop for SetsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

const ROUNDS: usize = if cfg!(miri) { 5 } else { 3000 };

/// A tree in memory that calls a closure in each lookup, after it has read the answer, which may be
/// stale on return.
struct AfterLookup(Memory, Box<dyn Fn(Name<'_>) + Send + Sync>);

/// Returns a tree in memory whose lookups sleep.
fn slow() -> Arc<AfterLookup> {
    Arc::new(AfterLookup(Memory::new(), Box::new(|_| std::thread::sleep(Duration::from_millis(20)))))
}

impl Backend for AfterLookup {
    fn root(&self) -> std::io::Result<InodeInfo> {
        self.0.root()
    }
    fn lookup(&self, dir: u64, name: Name<'_>) -> std::io::Result<Option<InodeInfo>> {
        let answer = self.0.lookup(dir, name);
        (self.1)(name);
        answer
    }
    fn create(&self, dir: u64, name: Name<'_>, kind: Kind) -> std::io::Result<InodeInfo> {
        self.0.create(dir, name, kind)
    }
    fn remove(&self, dir: u64, name: Name<'_>) -> std::io::Result<()> {
        self.0.remove(dir, name)
    }
    fn rename(&self, from: (u64, Name<'_>), to: (u64, Name<'_>)) -> std::io::Result<()> {
        self.0.rename(from, to)
    }
    fn link(&self, file: u64, dir: u64, name: Name<'_>) -> std::io::Result<()> {
        self.0.link(file, dir, name)
    }
    fn read_dir(&self, dir: u64) -> std::io::Result<Vec<(Box<[u8]>, InodeInfo)>> {
        self.0.read_dir(dir)
    }
}

/// Keeps all removed names as negatives, after a pause in which they are frozen: long enough for
/// `shrink_tree` to find the frozen dentry, and to wait for it.
#[derive(Debug)]
struct DecidesSlowly(Arc<Barrier>);

impl NegativePolicy for DecidesSlowly {
    fn name(&self) -> &'static str {
        "decides slowly"
    }
    fn negative_added(&self, _: &NewNegative<'_>) {}
    fn can_keep_removed(&self, _: &NewNegative<'_>) -> bool {
        self.0.wait();
        std::thread::sleep(Duration::from_millis(200));
        true
    }
    fn bound(&self, _: BoundInputs) -> Option<u64> {
        None
    }
}

#[test]
fn d22_a_shrink_goes_on_when_a_removal_has_kept_the_name() {
    let frozen = Arc::new(Barrier::new(2));
    let fixture = Arc::new(Fixture::new(64, DecidesSlowly(Arc::clone(&frozen))));
    drop(fixture.mount.mkdir(b"/d").unwrap());
    drop(fixture.mount.create(b"/d/removed").unwrap());
    let (remover, shrinker) = (Arc::clone(&fixture), Arc::clone(&fixture));
    let removal = std::thread::spawn(move || remover.mount.unlink(b"/d/removed"));
    frozen.wait();
    // Not in a scope, which would wait for a thread that never ends.
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(shrinker.mount.shrink_tree(b"/d")));
    removal.join().unwrap().unwrap();
    let freed = ended.recv_timeout(Duration::from_secs(60)).expect("the shrink ends after the removal");
    assert!(freed.unwrap() <= 1, "the directory had one name");
    fixture.missing(b"/d/removed");
    fixture.assert_valid();
}

#[test]
fn d22_a_shrink_beside_a_reclaimer_leaves_no_directory() {
    let fixture = Fixture::new(16, Unbounded);
    let (mount, root) = (&fixture.mount, fixture.tree.root());
    for _ in 0..ROUNDS {
        drop(mount.mkdir(b"/d").unwrap());
        fixture.missing(b"/d/a");
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                mount.core.scan(&mount.sb, &mount.sb.dentries, root, lowwater_lru_core::NodeId::ZERO, &mut 2);
            });
            start.wait();
            mount.shrink_tree(b"/").unwrap();
        });
        assert_eq!(fixture.dcache.statistics().nr_dentry, 1, "only the root is in use (D22)");
        mount.rmdir(b"/d").unwrap();
        mount.invalidate(b"/d").unwrap();
    }
    fixture.assert_valid();
}

#[test]
fn d23_many_lookups_of_one_missing_name_ask_the_backend_once() {
    const THREADS: usize = 8;
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, 1);
    let dcache = Dcache::builder().buckets(64).build();
    let slow = slow();
    slow.0.create_path(b"/there", Kind::File).unwrap();
    let mount = dcache.mount(slow.clone(), &registry, tree.root()).unwrap();
    for (path, there) in [(&b"/missing"[..], false), (b"/there", true)] {
        let before = slow.0.lookups();
        let barrier = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    assert_eq!(mount.lookup(path).unwrap().is_some(), there);
                });
            }
        });
        assert_eq!(slow.0.lookups() - before, 1);
    }
    mount.assert_valid();
}

/// The last put of the dentry kills it: the first thread's would, before the others have woken.
#[test]
fn d23_many_lookups_of_a_name_that_is_not_kept_ask_the_backend_once() {
    const THREADS: usize = 8;
    const PATIENCE: Duration = Duration::from_secs(60);
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, 1);
    let dcache = Dcache::builder().buckets(64).charge(true).build();
    let root = Arc::new(OnceLock::<Weak<Dentry>>::new());
    let waits_in = Arc::clone(&root);
    // A lookup lasts until all other threads wait for it.
    let backend = AfterLookup(
        Memory::new(),
        Box::new(move |_| {
            let (Some(root), begun) = (waits_in.get().and_then(Weak::upgrade), Instant::now()) else { return };
            while root.make_dir().in_lookup.lock().waiters < THREADS - 1 && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
        }),
    );
    let backend = Arc::new(backend);
    for path in [b"/held", b"/file"] {
        backend.0.create_path(path, Kind::File).unwrap();
    }
    let mount = dcache.mount(backend.clone(), &registry, tree.root()).unwrap();
    tree.root().set_max(ByteSize::new(Dcache::dentry_bytes() as u64));
    let held = mount.lookup(b"/held").unwrap();
    root.set(Arc::downgrade(mount.sb.root())).unwrap();
    for (path, there) in [(b"/none", false), (b"/file", true)] {
        let before = backend.0.lookups();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| assert_eq!(mount.lookup(path).unwrap().is_some(), there));
            }
        });
        assert_eq!(backend.0.lookups() - before, 1);
        assert_eq!(dcache.statistics().nr_dentry, 2, "the dentry is freed");
    }
    drop(held);
    mount.assert_valid();
}

#[test]
fn d4_d5_existing_names_are_never_missed_and_renamed_ones_exist_once() {
    let fixture = Fixture::new(2, Unbounded);
    drop(fixture.mount.mkdir(b"/a").unwrap());
    drop(fixture.mount.mkdir(b"/b").unwrap());
    for n in 0..8 {
        drop(fixture.mount.create(format!("/a/stays-{n}").as_bytes()).unwrap());
    }
    drop(fixture.mount.create(b"/a/x").unwrap());
    // The first rename replaces this cached negative. The backend would give the right answer to a
    // lookup that misses a cached name, too; but that lookup would leave a second dentry of the
    // name, which `assert_valid` finds (D2).
    fixture.missing(b"/b/x");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let renamer = scope.spawn(|| {
            let _done = SetsAtEnd(&done);
            for _ in 0..ROUNDS {
                fixture.mount.rename(b"/a/x", b"/b/x").unwrap();
                fixture.mount.rename(b"/b/x", b"/a/x").unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut n = 0;
                while !done.load(Relaxed) {
                    n = (n + 1) % 8;
                    let path = format!("/a/stays-{n}");
                    assert!(fixture.mount.lookup(path.as_bytes()).unwrap().is_some(), "{path} exists throughout (D4)");
                    assert!(fixture.mount.stat(path.as_bytes()).unwrap().is_some(), "{path} exists throughout (D4)");
                    // The lookup of /b/x may race with renames in both directions. If it finds the
                    // name, the reference has the file's kind and name (D6).
                    if let Some(entry) = fixture.mount.lookup(b"/b/x").unwrap() {
                        assert_eq!((entry.kind(), &*entry.name()), (Kind::File, &b"x"[..]));
                    }
                }
            });
        }
        renamer.join().unwrap();
    });
    fixture.assert_valid();
}

#[test]
fn d6_stat_returns_a_consistent_snapshot() {
    let fixture = Fixture::new(2, Unbounded);
    let path = b"/x";
    // `Memory` numbers its inodes upwards: files get even offsets from the first, directories odd
    // ones.
    let file = fixture.mount.create(path).unwrap().inode();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _done = SetsAtEnd(&done);
            for _ in 0..ROUNDS {
                fixture.mount.unlink(path).unwrap();
                drop(fixture.mount.mkdir(path).unwrap());
                fixture.mount.rmdir(path).unwrap();
                drop(fixture.mount.create(path).unwrap());
            }
        });
        scope.spawn(|| {
            while !done.load(Relaxed) {
                if let Some(stat) = fixture.mount.stat(path).unwrap() {
                    let kind = if (stat.inode - file) % 2 == 0 { Kind::File } else { Kind::Directory };
                    assert_eq!(stat.kind, kind, "kind and number are of one inode (D6)");
                }
            }
        });
    });
    fixture.assert_valid();
}

#[test]
fn d5_without_concurrent_renames_a_name_exists_exactly_once() {
    let fixture = Fixture::new(2, Unbounded);
    drop(fixture.mount.mkdir(b"/a").unwrap());
    drop(fixture.mount.mkdir(b"/b").unwrap());
    drop(fixture.mount.create(b"/a/x").unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _done = SetsAtEnd(&done);
            for _ in 0..ROUNDS {
                fixture.mount.rename(b"/a/x", b"/b/x").unwrap();
                fixture.mount.rename(b"/b/x", b"/a/x").unwrap();
            }
        });
        scope.spawn(|| {
            let core = &fixture.mount.core;
            let dirs = [b"/a", b"/b"].map(|dir| fixture.mount.lookup(dir).unwrap().unwrap());
            while !done.load(Relaxed) {
                let begun = core.rename_lock.begin();
                let found = dirs.each_ref().map(|dir| {
                    let dentry = core.d_lookup(&core.qstr(&dir.dentry, Name::new(b"x").unwrap()));
                    dentry.is_some_and(|dentry| fixture.mount.positive(dentry).is_some())
                });
                if !core.rename_lock.retry(begun) {
                    assert_eq!(found.iter().filter(|&&there| there).count(), 1, "exactly one name exists (D5)");
                }
            }
        });
    });
    fixture.assert_valid();
}

#[test]
fn d4_d5_a_name_that_renames_replace_is_never_missed() {
    let fixture = Fixture::new(2, Unbounded);
    let mount = &fixture.mount;
    drop((mount.mkdir(b"/a").unwrap(), mount.create(b"/a/file").unwrap(), mount.mkdir(b"/a/dir").unwrap()));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _done = SetsAtEnd(&done);
            for _ in 0..ROUNDS {
                drop((mount.create(b"/file").unwrap(), mount.mkdir(b"/dir").unwrap()));
                mount.rename(b"/file", b"/a/file").unwrap();
                mount.rename(b"/dir", b"/a/dir").unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    for (path, kind) in [(&b"/a/file"[..], Kind::File), (b"/a/dir", Kind::Directory)] {
                        assert_eq!(mount.stat(path).unwrap().map(|stat| stat.kind), Some(kind), "it exists (D4)");
                        let entry = mount.lookup(path).unwrap().expect("the name exists throughout (D4)");
                        assert_eq!(entry.kind(), kind);
                    }
                    fixture.missing(b"/a/dir/missing");
                }
            });
        }
    });
    fixture.assert_valid();
}

/// Runs lookups that hit and miss, creates, removes, renames, a shrinker, a walker and a watcher
/// concurrently. At the end all invariants must hold.
fn storm(policy: Box<dyn NegativePolicy>) {
    let fixture = Fixture::build(Dcache::builder().buckets(16).boxed_policy(policy));
    for dir in 0..3 {
        drop(fixture.mount.mkdir(format!("/{dir}").as_bytes()).unwrap());
        drop(fixture.mount.create(format!("/{dir}/stays").as_bytes()).unwrap());
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3_usize)
            .map(|seed| {
                let mount = &fixture.mount;
                scope.spawn(move || {
                    let mut x = seed as u64 + 1;
                    for n in 0..ROUNDS {
                        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n as u64);
                        let r = (x >> 33) as usize;
                        let path = |k: usize| format!("/{}/{}", k % 3, k / 3 % 20).into_bytes();
                        match r % 8 {
                            0 => drop(mount.create(&path(r / 8))),
                            1 => drop(mount.unlink(&path(r / 8))),
                            2 => drop(mount.rename(&path(r / 8), &path(r / 512))),
                            3 => drop(mount.mkdir(&path(r / 8))),
                            4 => drop(mount.rmdir(&path(r / 8))),
                            _ => drop(mount.lookup(&path(r / 8)).unwrap_or(None)),
                        }
                        let missing = format!("/{}/missing-{seed}-{n}", r % 3);
                        assert!(mount.lookup(missing.as_bytes()).unwrap().is_none());
                        let stays = format!("/{}/stays", r % 3);
                        assert!(mount.lookup(stays.as_bytes()).unwrap().is_some(), "{stays} exists throughout (D4)");
                    }
                })
            })
            .collect();
        let shrinker = scope.spawn(|| {
            while !done.load(Relaxed) {
                fixture.registry.drop_caches();
                let _ = fixture.mount.shrink_tree(b"/1");
            }
        });
        let walker = scope.spawn(|| {
            while !done.load(Relaxed) {
                let mut walk = fixture.mount.walk(b"/").unwrap();
                while walk.step(5, |_| WalkControl::Continue) {}
                drop(fixture.mount.watch(b"/2"));
            }
        });
        let done = SetsAtEnd(&done);
        for worker in workers {
            worker.join().unwrap();
        }
        drop(done);
        shrinker.join().unwrap();
        walker.join().unwrap();
    });
    fixture.assert_valid();
    for _ in 0..8 {
        fixture.registry.drop_caches();
    }
    fixture.assert_valid();
    assert_eq!(fixture.dcache.statistics().nr_dentry, 1, "only the root is in use (D7, D13)");
    assert_eq!(fixture.mount.inodes(), 1);
}

#[test]
fn d9_counters_add_up_after_a_storm() {
    storm(Box::new(Unbounded));
}

#[test]
fn d9_d20_counters_add_up_with_chain_trims() {
    storm(Box::new(ThreeInARow));
}

#[test]
fn d9_d20_counters_add_up_with_directory_and_group_trims() {
    storm(Box::new(Probation { probation_floor: 10, protected_floor: 10, ..Probation::default() }));
}

#[test]
fn after_an_invalidation_no_older_answer_is_cached() {
    const NAMES: u64 = if cfg!(miri) { 3 } else { 30 };
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, 1);
    let dcache = Dcache::builder().buckets(64).policy(Unbounded).build();
    let slow = slow();
    let mount = dcache.mount(slow.clone(), &registry, tree.root()).unwrap();
    drop(mount.mkdir(b"/d").unwrap());
    let (at, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    let _ = mount.stat(format!("/d/{}", at.load(Relaxed)).as_bytes()).unwrap();
                }
            });
        }
        let _done = SetsAtEnd(&done);
        for n in 0..NAMES {
            at.store(n, Relaxed);
            // 5 to 14 ms after its start, a lookup has read its answer, and sleeps (`slow`).
            std::thread::sleep(Duration::from_millis(5 + n / 3));
            let name = format!("/d/{n}");
            slow.0.create_path(name.as_bytes(), Kind::File).unwrap();
            match n % 3 {
                0 => _ = mount.invalidate(name.as_bytes()).unwrap(),
                // The lookup in flight uses the directory, which therefore stays cached.
                1 => assert!(mount.invalidate(b"/d").unwrap()),
                _ => _ = mount.invalidate_negatives(b"/d").unwrap(),
            }
            let found = mount.stat(name.as_bytes()).unwrap().is_some();
            assert!(found, "{n} existed before its negative was invalidated");
        }
    });
    mount.assert_valid();
}

/// Creates the directories `/t/a`, `/t/b/sub` and `/t/c`, and the file `/t/a/x`.
fn create_tree(mount: &Mount) -> Vec<DentryRef<'_>> {
    let dirs = [&b"/t"[..], b"/t/a", b"/t/b", b"/t/c", b"/t/b/sub"].map(|path| mount.mkdir(path).unwrap());
    dirs.into_iter().chain([mount.create(b"/t/a/x").unwrap()]).collect()
}

#[test]
fn an_invalidation_misses_no_name_that_is_renamed_meanwhile() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, 1);
    let dcache = Dcache::builder().buckets(64).policy(Unbounded).build();
    let (reached, is_reached) = mpsc::channel();
    let (renamed, is_renamed) = mpsc::channel();
    // The first lookup of `sub` waits for the rename.
    let pause = Mutex::new(Some((reached, is_renamed)));
    let backend = Arc::new(AfterLookup(
        Memory::new(),
        Box::new(move |name| {
            let pause = if name.bytes() == b"sub" { pause.lock().unwrap().take() } else { None };
            if let Some((reached, is_renamed)) = pause {
                reached.send(()).unwrap();
                is_renamed.recv_timeout(PATIENCE).unwrap();
            }
        }),
    ));
    let mount = dcache.mount(backend.clone(), &registry, tree.root()).unwrap();
    let held = create_tree(&mount);
    let (a, x) = (held[1].inode(), Name::new(b"x").unwrap());
    backend.0.remove(a, x).unwrap();
    let new = backend.0.create(a, x, Kind::File).unwrap();
    std::thread::scope(|scope| {
        let mount = &mount;
        scope.spawn(move || {
            is_reached.recv_timeout(PATIENCE).unwrap();
            // `c` was visited before `b`, and `a` is visited afterwards.
            mount.rename(b"/t/a/x", b"/t/c/x").unwrap();
            renamed.send(()).unwrap();
        });
        assert!(mount.invalidate(b"/t").unwrap());
    });
    assert_eq!(mount.stat(b"/t/c/x").unwrap().unwrap().inode, new.inode, "the backend's, as of now");
    drop(held);
    mount.assert_valid();
}

#[test]
fn an_invalidation_ends_beside_renames_without_end() {
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, 1);
    let dcache = Dcache::builder().buckets(64).policy(Unbounded).build();
    let (passes, done) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
    let count = Arc::clone(&passes);
    // Long enough for a rename. Each pass looks up `sub` once.
    let backend = AfterLookup(
        Memory::new(),
        Box::new(move |name| {
            if name.bytes() == b"sub" {
                assert!(count.fetch_add(1, Relaxed) < 100, "the invalidation does not end");
                std::thread::sleep(Duration::from_millis(20));
            }
        }),
    );
    let mount = dcache.mount(Arc::new(backend), &registry, tree.root()).unwrap();
    let held = create_tree(&mount);
    std::thread::scope(|scope| {
        let _done = SetsAtEnd(&done);
        scope.spawn(|| {
            while !done.load(Relaxed) {
                mount.rename(b"/t/a/x", b"/t/c/x").unwrap();
                mount.rename(b"/t/c/x", b"/t/a/x").unwrap();
            }
        });
        for _ in 0..5 {
            assert!(mount.invalidate(b"/t").unwrap());
        }
    });
    assert!(passes.load(Relaxed) <= 15, "at most three passes each");
    drop(held);
    mount.assert_valid();
}

#[test]
fn d4_d26_names_in_a_directory_in_use_are_found_beside_its_invalidation() {
    let fixture = Fixture::new(16, Unbounded);
    let mount = &fixture.mount;
    let (dir, deep) = (mount.mkdir(b"/d").unwrap(), mount.mkdir(b"/d/deep").unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for path in [&b"/d"[..], b"/d/deep", b"/d/deep/x"] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    mount.invalidate(path).unwrap();
                }
            });
        }
        let _done = SetsAtEnd(&done);
        for _ in 0..ROUNDS / 3 {
            drop(mount.create(b"/d/deep/x").unwrap());
            assert!(deep.child(b"x").unwrap().is_some(), "the name exists (D4)");
            mount.rename(b"/d/deep/x", b"/d/y").unwrap();
            assert!(deep.child(b"x").unwrap().is_none() && dir.child(b"y").unwrap().is_some(), "it was renamed");
            mount.unlink(b"/d/y").unwrap();
            assert!(dir.child(b"y").unwrap().is_none());
            let error = mount.rename(b"/d", b"/d/deep/z").unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Loop), "{error:?}");
        }
    });
    fixture.assert_valid();
}
