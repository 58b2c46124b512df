//! A file system: some lists, and the shrinker that walks them.
//!
//! The smallest cache that uses lists and a shrinker directly; a good start for an own one.
//!
//! A change must keep it small.

use std::sync::Arc;

use lowwater::{
    linked, Count, Isolated, Links, ListLru, Memcg, NodeId, Registration, Registry, Scan, ShrinkControl, Shrinker,
};

/// An inode or a dentry: only its list links.
pub struct Object(Links);

linked!(impl[] for Object { 0, handle: Box<Object> });

impl Object {
    pub fn boxed() -> Box<Self> {
        Box::new(Self(Links::new()))
    }
}

/// A mounted file system. Its drop drops its lists and their objects.
pub struct Mount {
    // Before the lists: no callback uses them after this drop.
    #[expect(dead_code, reason = "its drop ends it")]
    registration: Registration,
    lists: Arc<Lists>,
}

struct Lists(Box<[ListLru<Object>]>);

impl Mount {
    pub fn new(registry: &Registry, number: u32, lists: u32) -> Result<Self, String> {
        let prepared = registry.builder(&format!("fs-{number}")).alloc().map_err(|why| why.to_string())?;
        let list = |_| ListLru::with_occupancy(prepared.occupancy());
        let lists = Arc::new(Lists((0..lists).map(list).collect()));
        let registration = prepared.register(Arc::clone(&lists) as Arc<dyn Shrinker>);
        Ok(Self { registration, lists })
    }

    /// Adds an object of the group to each list.
    pub fn touch(&self, memcg: &Memcg, node: NodeId) -> Result<(), String> {
        for list in &self.lists.0 {
            list.add(Object::boxed(), memcg, node).map_err(|why| why.to_string())?;
        }
        Ok(())
    }

    /// (group, node) lists that exist.
    pub fn pairs(&self) -> usize {
        self.lists.0.iter().map(ListLru::pairs).sum()
    }

    /// Bytes of the lists with their tables, without objects.
    pub fn bytes(&self) -> u64 {
        self.lists.0.iter().map(|list| list.footprint().get()).sum()
    }
}

impl Shrinker for Lists {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.0.iter().map(|list| list.count_one(sc.memcg(), sc.node())).sum() {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let mut left = sc.nr_to_scan();
        let mut unused = Isolated::new();
        for list in &self.0 {
            list.walk_one(sc.memcg(), sc.node(), &mut left, |it| it.isolate(&mut unused));
        }
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        Scan::Freed(unused.count() as u64)
    }
}
