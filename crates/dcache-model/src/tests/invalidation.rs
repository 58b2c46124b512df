//! Invalidation: names that have changed in the backend are looked up again.
//!
//! A test of a numbered guarantee of docs/INVARIANTS.md has the number in its name. A change must
//! ensure that a name in use keeps its dentry, and that no answer from before is given.

use super::Fixture;
use crate::negative::Unbounded;
use crate::{Backend, ErrorKind, Kind};
use std::sync::Arc;

#[test]
fn names_created_in_the_backend_are_found_after_invalidate_negatives() {
    let fixture = Fixture::new(16, Unbounded);
    drop(fixture.mount.create(b"/there").unwrap());
    drop(fixture.mount.mkdir(b"/d").unwrap());
    fixture.missing(b"/d/below");
    for n in 0..200 {
        fixture.missing(format!("/{n}").as_bytes());
    }
    fixture.missing(b"/7");
    fixture.memory.create_path(b"/7", Kind::File).unwrap();
    fixture.memory.create_path(b"/9/x", Kind::File).unwrap();
    fixture.missing(b"/7");
    let before = fixture.memory.lookups();
    assert_eq!(fixture.mount.invalidate_negatives(b"/").unwrap(), 200);
    assert_eq!(fixture.mount.invalidate_negatives(b"/9").unwrap(), 0, "nothing is cached there");
    fixture.assert_valid();
    assert!(fixture.mount.stat(b"/7").unwrap().is_some());
    assert!(fixture.mount.stat(b"/9/x").unwrap().is_some());
    assert!(fixture.mount.stat(b"/there").unwrap().is_some());
    fixture.missing(b"/d/below");
    assert_eq!(fixture.memory.lookups() - before, 3, "7, 9 and x; positives stayed, and names in other directories");
    assert_eq!(fixture.mount.invalidate_negatives(b"/missing").unwrap(), 0);
    let error = fixture.mount.invalidate_negatives(b"/there").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotADirectory));
    fixture.assert_valid();
}

#[test]
fn a_dying_negative_is_not_found_after_an_invalidation() {
    let fixture = Fixture::new(16, Unbounded);
    let (mount, core, sb) = (&fixture.mount, &fixture.mount.core, &fixture.mount.sb);
    fixture.missing(b"/a");
    let dying = core.d_lookup(&core.qstr(sb.root(), name(b"a"))).unwrap();
    assert!(dying.count.put() && dying.count.kill(), "the thread that kills it is interrupted here");
    fixture.memory.create_path(b"/a", Kind::File).unwrap();
    assert_eq!(mount.invalidate_negatives(b"/").unwrap(), 0, "the other thread frees it");
    assert!(mount.stat(b"/a").unwrap().is_some());
    core.kill_and_put_parent(sb, &dying, dying.lock());
    fixture.assert_valid();
}

#[test]
fn an_invalidated_name_is_looked_up_in_the_backend_again() {
    let fixture = Fixture::new(16, Unbounded);
    drop(fixture.mount.mkdir(b"/d").unwrap());
    drop(fixture.mount.create(b"/d/a").unwrap());
    fixture.missing(b"/d/b");
    let held = fixture.mount.create(b"/d/c").unwrap();
    let before = fixture.memory.lookups();
    assert!(fixture.mount.invalidate(b"/d").unwrap());
    assert_eq!(held.kind(), Kind::File, "a name in use keeps its inode");
    assert!(fixture.mount.stat(b"/d/a").unwrap().is_some());
    fixture.missing(b"/d/b");
    assert_eq!(fixture.memory.lookups() - before, 3, "d, a and b");
    assert!(fixture.mount.invalidate(b"/d/b").unwrap(), "a negative, too");
    assert!(!fixture.mount.invalidate(b"/d/b").unwrap(), "nothing is cached for it now");
    assert!(!fixture.mount.invalidate(b"/nowhere/b").unwrap());
    let error = fixture.mount.invalidate(b"/").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidName));
    drop(held);
    fixture.assert_valid();
}

fn name(bytes: &[u8]) -> crate::Name<'_> {
    crate::Name::new(bytes).unwrap()
}

#[test]
fn d26_a_directory_in_use_keeps_its_one_dentry_when_it_is_invalidated() {
    let fixture = Fixture::new(16, Unbounded);
    let mount = &fixture.mount;
    let dir = mount.mkdir(b"/d").unwrap();
    drop((mount.mkdir(b"/d/unused").unwrap(), mount.create(b"/d/unused/file").unwrap()));
    let watch = mount.watch(b"/d").unwrap();
    assert!(mount.invalidate(b"/d").unwrap());
    assert_eq!(fixture.dcache.statistics().nr_dentry, 2, "the root and the directory");
    assert!(Arc::ptr_eq(&mount.lookup(b"/d").unwrap().unwrap().dentry, &dir.dentry));
    assert!(dir.child(b"x").unwrap().is_none());
    assert!(mount.create(b"/d/x").unwrap().is_watched(), "by the watch that began before");
    assert!(dir.child(b"x").unwrap().is_some(), "the name exists (D4)");
    fixture.assert_valid();
    mount.unlink(b"/d/x").unwrap();
    mount.rmdir(b"/d/unused/").unwrap_err();
    mount.unlink(b"/d/unused/file").unwrap();
    mount.rmdir(b"/d/unused").unwrap();
    mount.rmdir(b"/d").unwrap();
    assert!(matches!(dir.child(b"x").unwrap_err().kind(), ErrorKind::NotFound), "its dentry is that of the removed");
    drop((dir, watch));
    fixture.assert_valid();
}

#[test]
fn d26_an_invalidated_directory_in_use_that_is_gone_finds_no_names() {
    let fixture = Fixture::new(16, Unbounded);
    let (mount, memory) = (&fixture.mount, &fixture.memory);
    let (dir, below) = (mount.mkdir(b"/d").unwrap(), mount.mkdir(b"/d/below").unwrap());
    let (root, inode) = (mount.sb.root().number(), dir.inode());
    // The backend replaces the directory by another one with the same names.
    memory.rename((root, name(b"d")), (root, name(b"moved"))).unwrap();
    memory.create_path(b"/d/below/file", Kind::File).unwrap();
    assert!(mount.invalidate(b"/d").unwrap());
    for path in [&b"/d"[..], b"/d/below", b"/d/below/file"] {
        assert!(mount.stat(path).unwrap().is_some(), "{}", path.escape_ascii());
    }
    assert_ne!(mount.stat(b"/d").unwrap().unwrap().inode, inode);
    for old in [&dir, &below] {
        assert!(matches!(old.child(b"file").unwrap_err().kind(), ErrorKind::NotFound), "it counts as removed");
    }
    assert_eq!((dir.kind(), dir.inode()), (Kind::Directory, inode), "a reference keeps its inode");
    assert_eq!(mount.stat(b"/moved").unwrap().unwrap().inode, inode, "a dentry of its own, with a lock of its own");
    drop((below, dir));
    fixture.assert_valid();

    // The directory that has the name is gone, too: the backend refuses the lookup.
    let held = mount.lookup(b"/d/below").unwrap().unwrap();
    memory.rename((root, name(b"d")), (root, name(b"away"))).unwrap();
    memory.remove(held.dentry.number(), name(b"file")).unwrap();
    let parent = memory.lookup(root, name(b"away")).unwrap().unwrap().inode;
    memory.remove(parent, name(b"below")).unwrap();
    memory.remove(root, name(b"away")).unwrap();
    assert!(mount.invalidate(b"/d/below").unwrap() && mount.invalidate(b"/d").unwrap());
    fixture.missing(b"/d/below");
    drop(held);
    fixture.assert_valid();
}

#[test]
fn names_in_use_below_an_invalidated_directory_are_looked_up_again() {
    let fixture = Fixture::new(16, Unbounded);
    let (mount, memory) = (&fixture.mount, &fixture.memory);
    let (dir, deep) = (mount.mkdir(b"/d").unwrap(), mount.mkdir(b"/d/deep").unwrap());
    let files: Vec<_> = (0..150).map(|n| mount.create(format!("/d/deep/{n}").as_bytes()).unwrap()).collect();
    fixture.missing(b"/d/deep/missing");
    for n in 0..150 {
        memory.remove(deep.inode(), name(format!("{n}").as_bytes())).unwrap();
    }
    memory.create_path(b"/d/deep/missing", Kind::File).unwrap();
    memory.create_path(b"/d/deep/7", Kind::Directory).unwrap();
    let before = memory.lookups();
    assert!(mount.invalidate(b"/d").unwrap());
    assert_eq!(memory.lookups() - before, 2, "the directories in use, each once");
    assert_eq!(deep.child(b"7").unwrap().unwrap().kind(), Kind::Directory);
    assert!(deep.child(b"missing").unwrap().is_some() && deep.child(b"8").unwrap().is_none());
    assert!(mount.stat(b"/d/deep/9").unwrap().is_none() && files[9].kind() == Kind::File);
    assert!(Arc::ptr_eq(&mount.lookup(b"/d/deep").unwrap().unwrap().dentry, &deep.dentry));
    drop((dir, deep, files));
    fixture.assert_valid();
}

#[test]
fn a_directory_that_the_backend_has_moved_is_not_renamed_below_itself() {
    let fixture = Fixture::new(16, Unbounded);
    let (mount, root) = (&fixture.mount, fixture.mount.sb.root().number());
    let below = mount.mkdir(b"/a").and_then(|_| mount.mkdir(b"/a/b")).unwrap();
    fixture.memory.rename((root, name(b"a")), (root, name(b"moved"))).unwrap();
    // The cache still finds the directory under `/a`, too.
    let error = mount.rename(b"/moved", b"/a/b/c").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Loop), "{error:?}");
    assert!(fixture.memory.lookup(root, name(b"moved")).unwrap().is_some());
    drop(below);
}
