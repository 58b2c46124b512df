//! `shrink_tree` races with a thread that kills the only child of a directory.
//!
//! A `fails_with_` test repeats the check with a fault, and must fail. docs/ORDERINGS.md names the
//! check. Numbers such as D22 are those of docs/INVARIANTS.md.

use crate::dcache::Dcache;
use crate::dentry::Dentry;
use crate::inode::Inodes;
use crate::negative::Unbounded;
use crate::qstr::{Name, QStr};
use crate::superblock::SuperBlock;
use lowwater_base::sync::{model, thread, with_mutant, Arc};
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::{ListLru, MemcgTree, NodeId};

/// A reclaimer kills an unused directory after its only child, another thread shrinks the tree:
/// afterwards the directory above, which has no other user, is dead, too.
fn check() {
    model(|| {
        let tree = MemcgTree::new(1);
        let group = tree.root();
        let core = Dcache::builder().buckets(1).policy(Unbounded).topology(Arc::new(Fixed::new(1))).build().core;
        let (lists, inodes) = ([(); 3].map(|()| ListLru::new()), Inodes::new(ListLru::new()));
        let sb = Arc::new(SuperBlock::new(0, group.clone(), false, NodeId::ZERO, lists, inodes));
        let name = |parent, name| QStr::new(core.secret, parent, Name::checked(name));
        let root = Arc::new(Dentry::new(&name(0, b"root"), None, 0, group.clone(), NodeId::ZERO, 0));
        let top = core.alloc(&sb, &root, &name(root.addr(), b"top"), group, 0);
        let dir = core.alloc(&sb, &top, &name(top.addr(), b"dir"), group, 0);
        let child = core.alloc(&sb, &dir, &name(dir.addr(), b"child"), group, 0);
        core.rehash(&top);
        core.rehash(&dir);
        assert!(!top.count.put() && !dir.count.put() && child.count.put(), "a child is a user of its parent (D12)");
        let reclaimer = {
            let (core, sb) = (Arc::clone(&core), Arc::clone(&sb));
            thread::spawn(move || {
                for old in [child, dir] {
                    if old.count.kill() {
                        core.kill_and_put_parent(&sb, &old, old.lock());
                    }
                }
            })
        };
        core.shrink_tree(&sb, &root);
        assert_eq!(top.count.users(), None, "an unused directory does not survive `shrink_tree` (D22)");
        reclaimer.join().unwrap();
        assert_eq!(root.count.users(), Some(1), "each child was a user once (D12)");
    });
}

#[test]
fn d12_d22_a_directory_dies_with_the_child_that_another_thread_kills() {
    check();
}

#[test]
#[should_panic]
fn fails_with_put_parent_without_lock() {
    with_mutant("put_parent_without_lock", check);
}
