//! The invariants of a mount at rest: while no other thread uses it.
//!
//! Tests call [`Mount::assert_valid`] after their threads have stopped. No lock is held over the
//! whole check, so concurrent use would report false errors. A change that adds an invariant of
//! `dentry.rs` must check it here. Numbers such as D8 are those of docs/INVARIANTS.md.

use crate::children::ChildFilter;
use crate::dentry::Dentry;
use crate::flag;
use crate::mount::Mount;
use lowwater_base::sync::Arc;
use std::collections::HashSet;

/// The dentries of a mount, counted one by one, to compare with its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DentryCounts {
    /// All dentries, including the root.
    pub dentries: u64,
    /// Dentries on LRU lists.
    pub unused: u64,
    /// Negatives on LRU lists.
    pub negatives: u64,
    /// Bytes of the tables of children.
    pub children_bytes: u64,
}

impl Mount {
    /// Checks the invariants that hold while no other thread uses the mount, and counts its
    /// dentries. For tests. O(names).
    ///
    /// # Panics
    ///
    /// If an invariant is violated; the message states the invariant.
    pub fn assert_valid(&self) -> DentryCounts {
        let mut census = DentryCounts::default();
        let mut left = vec![Arc::clone(self.sb.root())];
        while let Some(dentry) = left.pop() {
            census.dentries += 1;
            let flags = dentry.flags();
            let listed = flags & flag::LRU_LIST != 0;
            assert!(flags & flag::SHRINK_LIST == 0, "at rest no dentry is on a private list (D8)");
            assert!(flags & (flag::KILLED | flag::IN_LOOKUP) == 0, "at rest no dentry is dying or in lookup");
            census.unused += u64::from(listed);
            census.negatives += u64::from(listed && dentry.is_negative());
            let users = dentry.count.users().expect("at rest no dead dentry is a child (D7)");
            assert!(listed || users > 0, "an unused dentry is on a list (D8)");
            let Some(dir) = dentry.dir() else { continue };
            let children = dir.children.lock();
            children.assert_valid();
            census.children_bytes += children.footprint() as u64;
            assert!(users as usize >= children.len(), "a child is a user of its parent (D12)");
            let mut names = HashSet::new();
            let mut index = 0;
            let (mut positives, mut protected) = (0, 0);
            while let Some((at, child)) = children.next(index, ChildFilter::All) {
                assert!(child.has(flag::UNHASHED) || names.insert(child.name()), "a name is hashed once (D2)");
                positives += usize::from(!child.is_negative());
                protected += usize::from(child.has(flag::PROTECTED));
                left.push(Arc::clone(child));
                index = at + 1;
            }
            assert_eq!(children.positives(), positives, "a child is marked if and only if it is positive (D15)");
            assert_eq!(children.protected, protected, "protected negatives are counted");
            drop(children);
        }
        self.assert_findable(self.sb.root());
        for list in [&self.sb.dentries, &self.sb.probation, &self.sb.protected] {
            list.assert_valid();
        }
        self.sb.inodes.lru.assert_valid();
        census
    }

    /// Checks that a lookup finds each hashed dentry below `dir`.
    fn assert_findable(&self, dir: &Arc<Dentry>) {
        let Some(part) = dir.dir() else { return };
        let mut index = 0;
        loop {
            let next = part.children.lock().next(index, ChildFilter::All).map(|(at, child)| (at, Arc::clone(child)));
            let Some((at, child)) = next else { return };
            index = at + 1;
            if !child.has(flag::UNHASHED) {
                let name = child.name();
                let qstr = self.core.qstr(dir, crate::qstr::Name::checked(&name));
                let found = self.core.d_lookup(&qstr).expect("a hashed dentry is found (D1)");
                assert!(Arc::ptr_eq(&found, &child), "a name has one hashed dentry (D1, D2)");
                found.count.put();
            }
            self.assert_findable(&child);
        }
    }
}
