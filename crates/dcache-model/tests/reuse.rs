//! A backend that gives the number of a removed inode to the next one: a call that resolved a path
//! before its inode was removed must not reach the inode that has the number now.
//!
//! A change must ensure that the backend reuses the number within the call that is tested.

#![cfg(not(lowwater_loom))]

use lowwater_dcache_model::backend::InodeInfo;
use lowwater_dcache_model::{Backend, Dcache, ErrorKind, Kind, Mount, Name};
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::MemcgTree;
use lowwater_shrinker::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A time limit that is reached only if an expected event never happens.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time for which a test waits for an event that must not happen.
const BLOCKED: Duration = Duration::from_millis(200);

/// Called once, before the first call of the backend with this name ("link") for this entry.
type Hook = (&'static str, &'static [u8], Box<dyn FnOnce() + Send>);

/// A tree that gives each new inode the lowest number that is free.
#[derive(Default)]
struct Reusing {
    names: Mutex<BTreeMap<(u64, Vec<u8>), InodeInfo>>,
    hook: Mutex<Option<Hook>>,
}

impl Reusing {
    fn at(&self, what: &str, entry: &[u8]) {
        let hook = self.hook.lock().unwrap().take_if(|hook| (hook.0, hook.1) == (what, entry));
        if let Some((_, _, run)) = hook {
            run();
        }
    }

    fn set_hook(&self, what: &'static str, entry: &'static [u8], run: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some((what, entry, Box::new(run)));
    }
}

impl Backend for Reusing {
    fn root(&self) -> io::Result<InodeInfo> {
        Ok(InodeInfo { inode: 1, kind: Kind::Directory })
    }
    fn lookup(&self, dir: u64, name: Name<'_>) -> io::Result<Option<InodeInfo>> {
        self.at("lookup", name.bytes());
        Ok(self.names.lock().unwrap().get(&(dir, name.bytes().into())).copied())
    }
    fn create(&self, dir: u64, name: Name<'_>, kind: Kind) -> io::Result<InodeInfo> {
        let mut names = self.names.lock().unwrap();
        let used: BTreeSet<u64> = names.values().map(|node| node.inode).collect();
        let inode = (2..).find(|number| !used.contains(number)).unwrap();
        names.insert((dir, name.bytes().into()), InodeInfo { inode, kind });
        Ok(InodeInfo { inode, kind })
    }
    fn remove(&self, dir: u64, name: Name<'_>) -> io::Result<()> {
        let mut names = self.names.lock().unwrap();
        let at = (dir, name.bytes().to_vec());
        let node = *names.get(&at).ok_or(io::ErrorKind::NotFound)?;
        if node.kind == Kind::Directory && names.keys().any(|(above, _)| *above == node.inode) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        names.remove(&at);
        Ok(())
    }
    fn rename(&self, _: (u64, Name<'_>), _: (u64, Name<'_>)) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn link(&self, file: u64, dir: u64, name: Name<'_>) -> io::Result<()> {
        self.at("link", name.bytes());
        let mut names = self.names.lock().unwrap();
        let node = *names.values().find(|node| node.inode == file).ok_or(io::ErrorKind::NotFound)?;
        names.insert((dir, name.bytes().into()), node);
        Ok(())
    }
    fn read_dir(&self, dir: u64) -> io::Result<Vec<(Box<[u8]>, InodeInfo)>> {
        self.at("read_dir", b"");
        let names = self.names.lock().unwrap();
        Ok(names
            .iter()
            .filter(|((at, _), _)| *at == dir)
            .map(|((_, name), node)| (name.as_slice().into(), *node))
            .collect())
    }
}

/// Returns a mount with the file `/a/old` and the directories `/a` and `/b`, all cached.
fn mount() -> (Arc<Mount>, Arc<Reusing>) {
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, 1);
    let dcache = Dcache::builder().buckets(64).topology(Arc::new(Fixed::new(1))).build();
    let backend = Arc::new(Reusing::default());
    let mount = dcache.mount(backend.clone(), &registry, tree.root()).unwrap();
    drop(mount.mkdir(b"/a").unwrap());
    drop(mount.mkdir(b"/b").unwrap());
    drop(mount.create(b"/a/old").unwrap());
    (Arc::new(mount), backend)
}

/// Replaces `/a/old` by `/a/secret`, which has the same number. The root's `rwsem` is not needed.
fn replace(mount: &Mount) -> u64 {
    mount.unlink(b"/a/old").unwrap();
    mount.create(b"/a/secret").unwrap().inode()
}

#[test]
fn a_file_that_is_replaced_before_the_link_is_not_linked() {
    let (mount, backend) = mount();
    let old = mount.stat(b"/a/old").unwrap().unwrap().inode;
    // The directory of the new name is looked up after the file: not cached, it calls the backend.
    assert!(mount.invalidate(b"/b").unwrap());
    let theirs = Arc::clone(&mount);
    backend.set_hook("lookup", b"b", move || {
        let secret = std::thread::spawn(move || replace(&theirs)).join().unwrap();
        assert_eq!(secret, old, "the number is used again");
    });
    let error = mount.link(b"/a/old", b"/b/new").map(drop).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFound) && error.path() == b"/a/old", "{error}");
    assert!(mount.stat(b"/b/new").unwrap().is_none());
    mount.assert_valid();
}

#[test]
fn a_file_is_not_replaced_during_a_link() {
    let (mount, backend) = mount();
    let old = mount.stat(b"/a/old").unwrap().unwrap().inode;
    let (tell, replaced) = channel();
    let (theirs, replaced) = (Arc::clone(&mount), Arc::new(Mutex::new(replaced)));
    let in_link = Arc::clone(&replaced);
    backend.set_hook("link", b"new", move || {
        std::thread::spawn(move || {
            theirs.unlink(b"/a/old").unwrap();
            tell.send(()).unwrap();
        });
        let in_link = in_link.lock().unwrap().recv_timeout(BLOCKED);
        assert_eq!(in_link, Err(RecvTimeoutError::Timeout), "the link does not exclude it");
    });
    assert_eq!(mount.link(b"/a/old", b"/b/new").unwrap().inode(), old);
    replaced.lock().unwrap().recv().unwrap();
    assert!(mount.stat(b"/a/old").unwrap().is_none());
    assert_eq!(mount.stat(b"/b/new").unwrap().unwrap().inode, old);
    mount.assert_valid();
}

#[test]
fn a_removed_directory_is_not_listed_by_its_old_number() {
    let (mount, backend) = mount();
    let listed = mount.stat(b"/b").unwrap().unwrap().inode;
    let (tell, removed) = channel();
    let theirs = Arc::clone(&mount);
    backend.set_hook("read_dir", b"", move || {
        std::thread::spawn(move || {
            theirs.rmdir(b"/b").unwrap();
            let secret = theirs.mkdir(b"/a/secret").unwrap().inode();
            drop(theirs.create(b"/a/secret/file").unwrap());
            let _ = tell.send(secret);
        });
        if let Ok(secret) = removed.recv_timeout(BLOCKED) {
            assert_eq!(secret, listed, "the number is used again");
        }
    });
    let names = mount.readdir(b"/b").unwrap();
    assert!(names.is_empty(), "{names:?}");
}

/// The locks of two directories are taken in one order by all calls.
#[test]
fn links_in_both_directions_and_removals_do_not_deadlock() {
    let (mount, _backend) = mount();
    drop(mount.mkdir(b"/a/in").unwrap());
    drop(mount.create(b"/a/in/file").unwrap());
    drop(mount.create(b"/b/file").unwrap());
    let (tell, ended) = channel();
    for (old, new) in [("/a/old", "/b/new"), ("/b/file", "/a/new"), ("/a/in/file", "/a/up"), ("/a/old", "/a/in/down")] {
        let (mount, tell) = (Arc::clone(&mount), tell.clone());
        std::thread::spawn(move || {
            for _ in 0..500 {
                drop(mount.link(old.as_bytes(), new.as_bytes()).unwrap());
                mount.unlink(new.as_bytes()).unwrap();
                let _not_empty = mount.rmdir(b"/a/in").unwrap_err();
            }
            tell.send(()).unwrap();
        });
    }
    (0..4).for_each(|_| ended.recv_timeout(PATIENCE).unwrap());
    mount.assert_valid();
}
