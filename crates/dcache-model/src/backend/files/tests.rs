//! A temporary directory is served through the cache, with each kind of change; and the paths that
//! the backend keeps after removals, renames and hard links.
//!
//! The other tests of the cache have a backend in memory; these show that the errors and kinds of
//! the operating system arrive as those of the trait.
//!
//! A change must ensure that each call of `Backend` is made on real files.

use super::Files;
use crate::backend::Backend;
use crate::negative::Unbounded;
use crate::qstr::Name;
use crate::{Dcache, ErrorKind, Kind};
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::MemcgTree;
use lowwater_shrinker::Registry;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A temporary directory, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory of this name, which no other test has.
    fn new(name: &str) -> Self {
        let scratch = Self(std::env::temp_dir().join(format!("lowwater-dcache-{name}-{}", std::process::id())));
        fs::create_dir_all(&scratch.0).unwrap();
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_real_directory_is_served() {
    let scratch = Scratch::new("served");
    fs::create_dir_all(scratch.0.join("etc")).unwrap();
    fs::write(scratch.0.join("etc/passwd"), "root").unwrap();

    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, 1);
    let topology = Arc::new(Fixed::new(registry.nodes()));
    let dcache = Dcache::builder().buckets(64).policy(Unbounded).topology(topology).build();
    assert!(Files::open(&scratch.0.join("etc/passwd")).is_err(), "a file is no tree");
    let mount = dcache.mount(Arc::new(Files::open(&scratch.0).unwrap()), &registry, tree.root()).unwrap();

    assert_eq!(mount.lookup(b"/etc/passwd").unwrap().unwrap().kind(), Kind::File);
    assert!(mount.lookup(b"/etc/shadow").unwrap().is_none());
    fs::write(scratch.0.join("etc/shadow"), "").unwrap();
    assert!(mount.lookup(b"/etc/shadow").unwrap().is_none(), "an external change is not noticed");
    // The first call may only clear referenced flags.
    registry.drop_caches();
    registry.drop_caches();
    assert!(mount.lookup(b"/etc/shadow").unwrap().is_some(), "until it is given up");

    drop(mount.mkdir(b"/home").unwrap());
    drop(mount.create(b"/home/x").unwrap());
    drop(mount.link(b"/home/x", b"/home/y").unwrap());
    mount.rename(b"/home", b"/etc/home").unwrap();
    drop(mount.create(b"/etc/home/z").unwrap());
    assert!(scratch.0.join("etc/home/z").exists(), "the backend knows where a moved directory is");
    assert!(matches!(mount.rmdir(b"/etc/home").unwrap_err().kind(), ErrorKind::DirectoryNotEmpty));
    for name in [&b"/etc/home/x"[..], b"/etc/home/y", b"/etc/home/z"] {
        mount.unlink(name).unwrap();
    }
    mount.rmdir(b"/etc/home").unwrap();
    let mut names: Vec<_> = mount.readdir(b"/etc").unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    assert_eq!(names, [b"passwd"[..].into(), Box::from(&b"shadow"[..])]);
    mount.assert_valid();
}

fn name(name: &[u8]) -> Name<'_> {
    Name::new(name).unwrap()
}

/// Creates a file with the names `a` and `b`. Returns the backend, and the numbers of its root and
/// of the file.
fn a_and_b(scratch: &Scratch) -> (Files, u64, u64) {
    let files = Files::open(&scratch.0).unwrap();
    let root = files.root().unwrap().inode;
    let file = files.create(root, name(b"a"), Kind::File).unwrap().inode;
    files.link(file, root, name(b"b")).unwrap();
    (files, root, file)
}

#[test]
fn a_file_is_linked_by_any_name_that_is_left() {
    let scratch = Scratch::new("linked");
    let (files, root, file) = a_and_b(&scratch);
    files.remove(root, name(b"a")).unwrap();
    files.link(file, root, name(b"c")).unwrap();
    files.remove(root, name(b"c")).unwrap();
    files.rename((root, name(b"b")), (root, name(b"d"))).unwrap();
    // Another file gets the name `d` without the backend.
    assert_eq!(files.lookup(root, name(b"d")).unwrap().unwrap().inode, file);
    fs::rename(scratch.0.join("d"), scratch.0.join("e")).unwrap();
    fs::write(scratch.0.join("d"), "").unwrap();
    let error = files.link(file, root, name(b"f")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "the other file is not linked");
    assert_eq!(files.lookup(root, name(b"e")).unwrap().unwrap().inode, file);
    files.link(file, root, name(b"f")).unwrap();
    assert_eq!(files.lookup(root, name(b"f")).unwrap().unwrap().inode, file);
}

#[test]
fn a_replaced_or_removed_file_leaves_no_path() {
    let scratch = Scratch::new("replaced");
    let files = Files::open(&scratch.0).unwrap();
    let root = files.root().unwrap().inode;
    let paths = || files.paths.read().len();
    for _ in 0..10 {
        files.create(root, name(b"tmp"), Kind::File).unwrap();
        // The replaced file exists as long as it is open, so its number is not used again.
        let _replaced = fs::File::open(scratch.0.join("doc"));
        files.rename((root, name(b"tmp")), (root, name(b"doc"))).unwrap();
    }
    assert_eq!(paths(), 2, "of the root and `doc`");
    files.remove(root, name(b"doc")).unwrap();
    assert_eq!(paths(), 1, "of the root");
}

/// A directory is known by its number, so a symbolic link at its path is another file.
#[test]
fn a_link_in_the_place_of_a_directory_is_not_followed() {
    let scratch = Scratch::new("escape");
    let (tree, outside) = (scratch.0.join("tree"), scratch.0.join("outside"));
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "").unwrap();
    let files = Files::open(&tree).unwrap();
    let root = files.root().unwrap().inode;
    let dir = files.lookup(root, name(b"d")).unwrap().unwrap().inode;
    let file = files.create(root, name(b"file"), Kind::File).unwrap().inode;
    fs::rename(tree.join("d"), tree.join("e")).unwrap();
    std::os::unix::fs::symlink(&outside, tree.join("d")).unwrap();
    let secret = (dir, name(b"secret"));
    assert!(!matches!(files.lookup(secret.0, secret.1), Ok(Some(_))));
    assert!(files.read_dir(dir).is_err());
    assert!(files.create(dir, name(b"created"), Kind::File).is_err());
    assert!(files.link(file, dir, name(b"linked")).is_err());
    assert!(files.rename((root, name(b"file")), (dir, name(b"moved"))).is_err());
    assert!(files.rename(secret, (root, name(b"stolen"))).is_err());
    assert!(files.remove(secret.0, secret.1).is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(outside.join("secret").exists());
    // Its new name is looked up, and the directory is served again.
    assert_eq!(files.lookup(root, name(b"e")).unwrap().unwrap().inode, dir);
    files.create(dir, name(b"created"), Kind::File).unwrap();
    assert!(tree.join("e/created").exists());
}

/// A link to the root is followed when the tree is opened.
#[test]
fn a_root_may_be_a_symbolic_link() {
    let scratch = Scratch::new("linked-root");
    fs::create_dir(scratch.0.join("tree")).unwrap();
    std::os::unix::fs::symlink("tree", scratch.0.join("link")).unwrap();
    let files = Files::open(&scratch.0.join("link")).unwrap();
    let root = files.root().unwrap().inode;
    files.create(root, name(b"file"), Kind::File).unwrap();
    assert_eq!(files.read_dir(root).unwrap().len(), 1);
    assert!(scratch.0.join("tree/file").exists());
}

/// On Linux the roots of `/dev/shm` and `/dev/pts` have the same number, as has `/dev` itself.
#[test]
fn inodes_of_other_file_systems_have_numbers_of_their_own() {
    for top in ["/", "/dev"].map(Path::new) {
        let files = Files::open(top).unwrap();
        let root = files.root().unwrap().inode;
        let (mut inodes, mut numbers) = (BTreeSet::new(), BTreeSet::from([root]));
        for (bytes, listed) in files.read_dir(root).unwrap() {
            // Another process may remove a name meanwhile.
            let Ok(Some(node)) = files.lookup(root, name(&bytes)) else { continue };
            let Ok(meta) = fs::symlink_metadata(files.path(root, name(&bytes)).unwrap()) else { continue };
            if meta.dev() == files.device {
                continue;
            }
            assert_eq!((listed, node.kind), (node, Kind::Other), "{bytes:?}");
            inodes.insert((meta.dev(), meta.ino()));
            numbers.insert(node.inode);
            let error = files.link(node.inode, root, name(b"lowwater-linked")).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::CrossesDevices, "{bytes:?}");
        }
        assert_eq!(numbers.len(), 1 + inodes.len(), "{top:?}");
    }
}

/// The child process changes its working directory, which all tests of this process share.
#[test]
fn a_relative_root_stays_where_it_was() {
    const ORDER: &str = "LOWWATER_RELATIVE_ROOT";
    if std::env::var_os(ORDER).is_some() {
        let files = Files::open(Path::new("tree")).unwrap();
        std::env::set_current_dir("tree").unwrap();
        let root = files.root().unwrap().inode;
        assert!(files.lookup(root, name(b"file")).unwrap().is_some());
        // Not 0, with which a process ends that has run no test.
        std::process::exit(77);
    }
    let scratch = Scratch::new("relative");
    fs::create_dir_all(scratch.0.join("tree")).unwrap();
    fs::write(scratch.0.join("tree/file"), "").unwrap();
    let this = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(this);
    child.args(["--exact", "backend::files::tests::a_relative_root_stays_where_it_was", "--nocapture"]);
    let status = child.env(ORDER, "").current_dir(&scratch.0).status().unwrap();
    assert_eq!(status.code(), Some(77), "{status}");
}

/// The operating system keeps both names then.
#[test]
fn a_rename_between_two_names_of_a_file_keeps_both() {
    let scratch = Scratch::new("names");
    let (files, root, file) = a_and_b(&scratch);
    files.rename((root, name(b"a")), (root, name(b"b"))).unwrap();
    files.remove(root, name(b"b")).unwrap();
    files.link(file, root, name(b"c")).unwrap();
    assert_eq!(files.lookup(root, name(b"a")).unwrap().unwrap().inode, file);
}

#[test]
fn a_rename_above_does_not_hide_a_file() {
    let scratch = Scratch::new("renames");
    fs::create_dir_all(scratch.0.join("a/b")).unwrap();
    fs::write(scratch.0.join("a/b/f"), "").unwrap();
    let files = Files::open(&scratch.0).unwrap();
    let root = files.root().unwrap().inode;
    let a = files.lookup(root, name(b"a")).unwrap().unwrap().inode;
    let b = files.lookup(a, name(b"b")).unwrap().unwrap().inode;
    std::thread::scope(|scope| {
        let renamer = scope.spawn(|| {
            for _ in 0..500 {
                files.rename((root, name(b"a")), (root, name(b"x"))).unwrap();
                files.rename((root, name(b"x")), (root, name(b"a"))).unwrap();
            }
        });
        while !renamer.is_finished() {
            assert!(files.lookup(b, name(b"f")).unwrap().is_some(), "the file was there all the time");
        }
    });
}
