//! The invariants of a mount that no other thread uses.

use crate::children::ChildFilter;
use crate::dentry::Dentry;
use crate::flag;
use crate::mount::Mount;
use lowwater_base::sync::Arc;
use std::collections::HashSet;

/// The dentries of a mount, counted one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DentryCounts {
    /// Dentries, the root among them.
    pub dentries: u64,
    /// Those on lists.
    pub unused: u64,
    /// Negatives on lists.
    pub negatives: u64,
    /// Bytes of the tables of children.
    pub children_bytes: u64,
}

impl Mount {
    /// Checks everything that must hold while nobody else uses the mount, and counts. O(names); for tests.
    ///
    /// # Panics
    ///
    /// When something is wrong, with a sentence that says what should hold.
    pub fn assert_valid(&self) -> DentryCounts {
        let mut census = DentryCounts::default();
        let mut left = vec![Arc::clone(self.sb.root())];
        while let Some(dentry) = left.pop() {
            census.dentries += 1;
            let flags = dentry.flags();
            let listed = flags & flag::LRU_LIST != 0;
            assert!(flags & flag::SHRINK_LIST == 0, "at rest nobody has a private list (D8)");
            assert!(flags & (flag::KILLED | flag::IN_LOOKUP) == 0, "at rest nobody dies, and no backend is asked");
            census.unused += u64::from(listed);
            census.negatives += u64::from(listed && dentry.is_negative());
            let users = dentry.count.users().expect("at rest no dead dentry is a child (D7)");
            assert!(listed || users > 0, "a dentry that nobody uses is on a list (D8)");
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
            assert_eq!(children.protected, protected, "negatives that came off probation are counted");
            drop(children);
        }
        self.assert_findable(self.sb.root());
        for list in [&self.sb.dentries, &self.sb.probation, &self.sb.protected] {
            list.assert_valid();
        }
        self.sb.inodes.lru.assert_valid();
        census
    }

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
                let found = self.core.d_lookup(&qstr).expect("what is hashed is found (D1)");
                assert!(Arc::ptr_eq(&found, &child), "what is found is what is hashed (D1, D2)");
                found.count.put();
            }
            self.assert_findable(&child);
        }
    }
}
