//! The cache: one hash table of names for all mounts, and the settings they share.
//!
//! The public entry of the crate; `dcache_core.rs` has the state behind it. The settings are fixed
//! at `build`, because the hash table and the ghost table are sized by them.
//!
//! A change that adds a setting must give it a default, and a builder method that states it.

use crate::backend::Backend;
use crate::dcache_core::{DcacheCore, OnUnlink};
use crate::dentry::Dentry;
use crate::error::ErrorKind;
use crate::footprint;
use crate::ghost::GhostTable;
use crate::inode::Inodes;
use crate::kind::Kind;
use crate::mount::Mount;
use crate::negative::{NegativePolicy, PolicyHook, Probation};
use crate::qstr::{Name, QStr};
use crate::reclaim_cursor::ReclaimCursors;
use crate::seqcount::SeqLock;
use crate::shrinker::{MountShrinker, BATCH};
use crate::stats::{Counters, Statistics};
use crate::superblock::SuperBlock;
use lowwater_base::sync::{Arc, RwLock};
use lowwater_lru_core::topology;
use lowwater_lru_core::topology::Topology;
use lowwater_lru_core::{ByteSize, ListLru, Memcg, NodeId};
use lowwater_shrinker::Registry;
use lowwater_store::hash_chains::HashChains;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;

/// A cache of names in front of one or more backends.
///
/// A `Dcache` is a handle: clones share one cache. Dentries, and the memory of the built-in
/// backends, come from the global allocator: when memory is exhausted the process aborts.
///
/// ```
/// use lowwater_dcache_model::{backend::Memory, Dcache, Kind};
/// use lowwater_lru_core::MemcgTree;
/// use lowwater_shrinker::Registry;
/// use std::sync::Arc;
///
/// let tree = MemcgTree::default();
/// let registry = Registry::new(&tree, 1);
/// let dcache = Dcache::builder().buckets(1 << 10).build();
/// let mount = dcache.mount(Arc::new(Memory::new()), &registry, tree.root())?;
///
/// mount.mkdir(b"/etc")?;
/// mount.create(b"/etc/passwd")?;
/// assert_eq!(mount.lookup(b"/etc/passwd")?.unwrap().kind(), Kind::File);
///
/// assert!(mount.lookup(b"/etc/shadow")?.is_none()); // calls the backend,
/// assert!(mount.lookup(b"/etc/shadow")?.is_none()); // does not call it
/// assert_eq!(dcache.statistics().nr_negative, 1);
///
/// registry.drop_caches();
/// assert_eq!(dcache.statistics().nr_dentry, 1); // the root
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dcache {
    pub(crate) core: Arc<DcacheCore>,
    policy: std::sync::Arc<dyn NegativePolicy>,
}

/// The settings of a [`Dcache`], from [`Dcache::builder`].
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    buckets: usize,
    policy: Box<dyn NegativePolicy>,
    topology: Option<Arc<dyn Topology>>,
    on_unlink: OnUnlink,
    charges: bool,
}

/// The default number of buckets, whose heads take 512 KiB. Linux's default on a machine of 32 GiB,
/// a table of 32 MiB, would be too much for a library in another program.
const BUCKETS_DEFAULT: usize = 1 << 16;

impl Dcache {
    /// Returns a builder with the defaults: 65,536 buckets, the policy [`Probation`], the topology
    /// of this machine, removed names kept as negatives, and no charges.
    pub fn builder() -> Builder {
        Builder {
            buckets: BUCKETS_DEFAULT,
            policy: Box::new(Probation::default()),
            topology: None,
            on_unlink: OnUnlink::default(),
            charges: false,
        }
    }

    /// Mounts a backend under this cache. Its dentries belong to `group` unless a lookup names
    /// another memcg.
    ///
    /// The memcgs must be of the tree of `registry`, through which memory pressure frees the
    /// dentries. Dentries of a memcg of another tree are not reclaimed; only the policy,
    /// [`Mount::shrink_tree`] and the drop of the mount free them.
    ///
    /// # Errors
    ///
    /// The error of the backend's `root`; [`ErrorKind::NotADirectory`] if the root is none;
    /// [`ErrorKind::TooManyReferences`] if the cache has 65,536 mounts, or the registry has no
    /// shrinker id or no memory left.
    pub fn mount(&self, backend: Arc<dyn Backend>, registry: &Registry, group: &Memcg) -> Result<Mount, crate::Error> {
        self.try_mount(backend, registry, group).map_err(|kind| kind.at(b"/"))
    }

    /// As [`mount`](Self::mount), with an error without a path. Builds the superblock with its
    /// root, then registers the shrinker.
    fn try_mount(&self, backend: Arc<dyn Backend>, registry: &Registry, group: &Memcg) -> Result<Mount, ErrorKind> {
        let core = &self.core;
        let node = backend.root()?;
        if node.kind != Kind::Directory {
            return Err(ErrorKind::NotADirectory);
        }
        let prepared = registry.builder("dcache").batch(BATCH).alloc().map_err(|_| ErrorKind::TooManyReferences)?;
        let sb = {
            let mut supers = core.super_blocks.write();
            let at = supers.iter().position(Option::is_none).unwrap_or(supers.len());
            let id = u16::try_from(at).map_err(|_| ErrorKind::TooManyReferences)?;
            let occupancy = prepared.occupancy();
            let lists = [(); 3].map(|()| ListLru::with_occupancy(Arc::clone(&occupancy)));
            let inodes = Inodes::new(ListLru::with_occupancy(occupancy));
            let has_negative_lists = self.policy.has_own_lists();
            // A registry has 1 to 65,536 nodes.
            let last_node = NodeId::new((registry.nodes() - 1) as u16);
            let sb = Arc::new(SuperBlock::new(id, group.clone(), has_negative_lists, last_node, lists, inodes));
            let name = Name::checked(b"root");
            let qstr = QStr::new(core.secret, 0, name);
            let root = Arc::new(Dentry::new(&qstr, None, id, group.clone(), core.current_node(&sb), 0));
            core.counters.dentry_allocated(root.addr());
            let inode = sb.inodes.get(node.inode, Kind::Directory, group, root.node);
            core.instantiate(&sb, &root, inode);
            sb.set_root(root);
            if at == supers.len() {
                supers.push(None);
            }
            supers[at] = Some(Arc::clone(&sb));
            sb
        };
        // Registered last, so that no callback runs with a superblock that is half built.
        let shrink = MountShrinker { core: Arc::clone(core), sb: Arc::clone(&sb) };
        let registration = prepared.register(Arc::new(shrink));
        Ok(Mount::new(Arc::clone(core), sb, registration, backend))
    }

    /// Returns the counters. Each is exact while no other thread changes it.
    pub fn statistics(&self) -> Statistics {
        self.core.counters.read()
    }

    /// Returns the policy that decides which negatives stay cached. It is chosen by the builder and
    /// does not change.
    pub fn policy(&self) -> &dyn NegativePolicy {
        &*self.policy
    }

    /// Returns the number of buckets of the hash table: a power of two, which does not change.
    pub fn buckets(&self) -> usize {
        self.core.chains.buckets()
    }

    /// Returns the bytes of the hash table, of the ghost table of trimmed names, and of the maps of
    /// inodes of all mounts, without the dentries and inodes. Takes the lock of each map.
    pub fn table_footprint(&self) -> ByteSize {
        let supers = self.core.super_blocks.read();
        let maps: usize = supers.iter().flatten().map(|sb| sb.inodes.footprint()).sum();
        ByteSize::new(self.core.chains.footprint().get() + (self.core.ghosts.footprint() + maps) as u64)
    }

    /// Returns the bytes of one dentry with a name of up to 32 bytes, including both counts of its
    /// `Arc`, its slot among the children of its parent, and the allocator's rounding.
    pub const fn dentry_bytes() -> usize {
        footprint::DENTRY_BYTES
    }

    /// Returns a histogram of chain lengths: how many buckets have 0, 1, 2, ... dentries. The last
    /// element also counts longer chains. O(buckets).
    pub fn chain_lengths(&self) -> [u64; 32] {
        let mut lengths = [0; 32];
        for bucket in 0..self.buckets() {
            let reader = lowwater_store::hash_chains::Reader::enter();
            let len = self.core.chains.chain_at(bucket, &reader).count();
            lengths[len.min(31)] += 1;
        }
        lengths
    }

    /// Returns the number of buckets that Linux allocates on a machine with this memory: one for
    /// every 8 KiB up to 64 GiB; the memory for each bucket doubles above 64 GiB, and again with
    /// each factor of 4. A power of two.
    #[doc(alias = "alloc_large_system_hash")]
    pub fn kernel_buckets(memory: ByteSize) -> u64 {
        const SCALE: u32 = 13;
        const ADAPT_FROM: u64 = 64 << 30;
        let mut scale = SCALE;
        let mut adapt = ADAPT_FROM;
        while adapt < memory.get() {
            scale += 1;
            adapt = adapt.saturating_mul(4);
        }
        (memory.get() >> scale).max(1).next_power_of_two()
    }
}

// === impl Builder ===

impl Builder {
    /// Sets the number of buckets of the table, rounded up to a power of two. Default: 65,536.
    /// [`Dcache::kernel_buckets`] returns the number that Linux would choose.
    pub fn buckets(mut self, buckets: usize) -> Self {
        self.buckets = buckets;
        self
    }

    /// Sets the policy that decides which negatives stay cached. Default: [`Probation`].
    pub fn policy(mut self, policy: impl NegativePolicy + 'static) -> Self {
        self.policy = Box::new(policy);
        self
    }

    /// As [`policy`](Self::policy), for a policy that is chosen at run time.
    pub fn boxed_policy(mut self, policy: Box<dyn NegativePolicy>) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the topology, which assigns dentries to NUMA nodes. Default: the topology of this
    /// machine. If it has more nodes than the registry of a mount, the mount's dentries of the
    /// further nodes are on the lists of the registry's last node.
    pub fn topology(mut self, topology: Arc<dyn Topology>) -> Self {
        self.topology = Some(topology);
        self
    }

    /// Sets whether a removed name stays cached as a negative. Default: [`OnUnlink::KeepNegative`].
    pub fn on_unlink(mut self, on_unlink: OnUnlink) -> Self {
        self.on_unlink = on_unlink;
        self
    }

    /// Sets whether the bytes of each dentry are charged to its memcg:
    /// [`dentry_bytes`](Dcache::dentry_bytes), and more for a long name. Default: false.
    ///
    /// A lookup in a memcg that is at its `max`, or at that of an ancestor, first reclaims dentries
    /// that are charged to the memcg with that limit, on any mount of this cache (negatives first,
    /// if the policy [has lists](NegativePolicy::has_own_lists) for them): its own memcg's, or
    /// those of another memcg below the limit that has more of them, unless they are within its
    /// `min` or `low`. If it finds none to free, the lookup still succeeds, and its dentry is freed
    /// by its last user.
    #[doc(alias = "SLAB_ACCOUNT")]
    pub fn charge(mut self, charge: bool) -> Self {
        self.charges = charge;
        self
    }

    /// Builds the cache and allocates the hash table; when memory is exhausted the process aborts.
    ///
    /// # Panics
    ///
    /// If the table of buckets would exceed the address space, or the policy panics.
    pub fn build(self) -> Dcache {
        let chains = HashChains::new(self.buckets);
        let ghosts = if self.policy.has_own_lists() { GhostTable::new(chains.buckets()) } else { GhostTable::empty() };
        let policy: std::sync::Arc<dyn NegativePolicy> = self.policy.into();
        let core = DcacheCore {
            chains,
            ghosts,
            secret: RandomState::new().hash_one(0),
            rename_lock: SeqLock::new(),
            counters: Counters::new(),
            negatives: Box::new(PolicyHook(std::sync::Arc::clone(&policy))),
            topology: self.topology.unwrap_or_else(topology::detect),
            on_unlink: self.on_unlink,
            charges: self.charges,
            reclaim_cursors: ReclaimCursors::default(),
            super_blocks: RwLock::new(Vec::new()),
        };
        Dcache { core: Arc::new(core), policy }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("buckets", &self.buckets).field("policy", &self.policy).finish_non_exhaustive()
    }
}
