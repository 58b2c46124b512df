//! The `count` file: the number of a shrinker's objects, a line for each group and a number for
//! each node.
//!
//! The text comes from a call of the shrinker's `count_objects` for each live pair (a group and
//! node with the shrinker's bit), so it takes as long as these calls. It changes no bit and no
//! debt, unless a call panics: then the shrinker is quarantined, as in a pass.
//!
//! A change must ensure that reading the file of a shrinker that does not panic changes nothing.

use alloc::{collections::BTreeMap, string::String, vec, vec::Vec};
use core::fmt::Write;

use lowwater_lru_core::{Memcg, MemcgId};

use crate::control::{Reclaim, ShrinkControl};
use crate::id::ShrinkerId;
use crate::map::path;
use crate::registry::Registry;

impl Registry {
    /// Returns the text of a shrinker's `count` file; `None` if there is no such shrinker, if it is
    /// quarantined, panics or ends meanwhile, if the calling thread is inside a callback or a
    /// [`no_reclaim_scope`](Self::no_reclaim_scope) (both only with `std`), or without memory:
    ///
    /// ```text
    /// <group id> <objects on node 0> <objects on node 1> ...
    /// ```
    ///
    /// One line for each online group with objects, in the order of the tree; a single line for the
    /// root if the shrinker is not memcg-aware; zeros behind node 0 if it is not NUMA-aware. Calls
    /// `count_objects` once for each pair that may have objects. O(its own pairs).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use lowwater_lru_core::{MemcgTree, NodeId};
    /// use lowwater_shrinker::{Count, Registry, Scan, ShrinkControl, Shrinker};
    ///
    /// struct Seven;
    /// impl Shrinker for Seven {
    ///     fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
    ///         Count::Objects(7)
    ///     }
    ///     fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
    ///         Scan::Stop
    ///     }
    /// }
    ///
    /// let tree = MemcgTree::default();
    /// let registry = Registry::new(&tree, 2);
    /// let prepared = registry.builder("sevens").alloc()?;
    /// prepared.occupancy().occupied(tree.root(), NodeId::new(1));
    /// let registration = prepared.register(Arc::new(Seven));
    ///
    /// assert_eq!(registry.debugfs_names(), ["sevens-0"]);
    /// assert_eq!(registry.debugfs_count(registration.id()).unwrap(), "0 0 7\n");
    /// # Ok::<(), lowwater_shrinker::ShrinkerAllocError>(())
    /// ```
    #[doc(alias = "shrinker_debugfs_count_show")]
    pub fn debugfs_count(&self, id: ShrinkerId) -> Option<String> {
        let _scope = self.core.scopes.enter_first()?;
        let mut guard = self.core.lookup(id.get())?;
        // Sorted by path, which is the order of the tree.
        let mut lines: BTreeMap<Vec<MemcgId>, (Memcg, Vec<u64>)> = BTreeMap::new();
        for (memcg, node) in self.core.map.pairs_of(id.get()) {
            if guard.is_closed() {
                // A thread may be waiting for the end of the callbacks.
                return None;
            }
            let sc = ShrinkControl::count(&memcg, node, Reclaim::FOREGROUND);
            let Ok(count) = guard.count(&sc) else {
                self.core.panicked(&mut guard);
                return None;
            };
            let Some(path) = path(MemcgId::ROOT, &memcg) else { continue };
            let line = lines.entry(path).or_insert_with(|| (memcg, vec![0; self.nodes()]));
            line.1[node.index()] = count.objects();
        }
        let mut text = String::new();
        for (memcg, nodes) in lines.values() {
            if !memcg.is_online() || nodes.iter().all(|count| *count == 0) {
                continue;
            }
            // Writing to a string does not fail.
            let _ = write!(text, "{}", memcg.id());
            for count in nodes {
                let _ = write!(text, " {count}");
            }
            text.push('\n');
        }
        Some(text)
    }
}
