//! Files and directories that the kernel refers to by number, until it forgets them.
//!
//! The kernel counts lookups per number and forgets them in bulk. A change must ensure that a
//! number stays known until the kernel has forgotten all its lookups: it may be used until then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The kernel's number of the root.
pub const ROOT: u64 = 1;

/// A file or directory that the kernel refers to.
pub struct Node {
    /// From the mirror's root, with a leading slash.
    pub path: Box<[u8]>,
    /// Its inode number in the mirrored file system.
    pub inode: u64,
    pub seen: Mutex<Seen>,
}

/// The last check of a directory for changes, and its times then.
#[derive(Default)]
pub struct Seen {
    pub at: Option<Instant>,
    /// `None` while the times prove nothing.
    pub times: Option<[i64; 4]>,
}

struct Known {
    node: Arc<Node>,
    lookups: u64,
}

/// The table of nodes: see the module.
pub struct Nodes {
    root: u64,
    known: Mutex<HashMap<u64, Known>>,
}

impl Node {
    fn new(path: &[u8], inode: u64) -> Arc<Self> {
        Arc::new(Self { path: path.into(), inode, seen: Mutex::default() })
    }
}

impl Nodes {
    pub fn new(root: u64) -> Self {
        // The kernel never looks up the root, so it never forgets it.
        let known = [(ROOT, Known { node: Node::new(b"/", root), lookups: u64::MAX })].into();
        Self { root, known: Mutex::new(known) }
    }

    /// The kernel's number of an inode: the same, with the root's number and 1 exchanged.
    pub fn id(&self, inode: u64) -> u64 {
        match inode {
            _ if inode == self.root => ROOT,
            ROOT => self.root,
            _ => inode,
        }
    }

    pub fn get(&self, id: u64) -> Option<Arc<Node>> {
        self.lock().get(&id).map(|known| Arc::clone(&known.node))
    }

    /// Records one more lookup of a node by the kernel, at this path: the last name by which a file
    /// with several names, or a moved file, was found.
    pub fn tell(&self, inode: u64, path: &[u8]) {
        let id = self.id(inode);
        if id == ROOT {
            return;
        }
        let mut all = self.lock();
        let known = all.entry(id).or_insert_with(|| Known { node: Node::new(path, inode), lookups: 0 });
        if *known.node.path != *path {
            known.node = Node::new(path, inode);
        }
        known.lookups += 1;
    }

    /// Records that the kernel forgot this many lookups.
    pub fn forget(&self, id: u64, lookups: u64) {
        let mut all = self.lock();
        let Some(known) = all.get_mut(&id).filter(|_| id != ROOT) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0 {
            all.remove(&id);
        }
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
