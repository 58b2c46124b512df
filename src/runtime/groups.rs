//! Groups by path: created on first use, ended, dropped.
//!
//! A table has the groups by path, so that [`Runtime::group`] takes no lock of the tree for a group
//! that it has returned before. A dropped group keeps its name until its entries are gone; a new
//! group of that name is refused meanwhile.
//!
//! A change must ensure that a name is free again only when the dropped group's entries are gone.

use lowwater_base::unwind::{caught, AtEnd};
use lowwater_lru_core::{Memcg, MemcgError};

use super::handle::Runtime;

/// The root's [path](Memcg::path).
const ROOT: &str = "/";

impl Runtime {
    /// Returns the group of this path (`shop`, `/shop/carts`; `/` is the root), and creates the
    /// group and missing groups above it. A name has at most 255 bytes.
    ///
    /// O(1) if an earlier call has returned the group.
    ///
    /// # Errors
    ///
    /// [`MemcgError::BadName`] if a name on the path is empty or too long, [`MemcgError::TooDeep`]
    /// if the path has more than [`DEPTH_MAX`](Memcg::DEPTH_MAX) names; in both cases no group is
    /// created. [`MemcgError::Dying`] if a group on the path is ending, or is being
    /// [dropped](Self::drop_group).
    pub fn group(&self, path: &str) -> Result<Memcg, MemcgError> {
        if path == ROOT {
            return Ok(self.root().clone());
        }
        let path = path.strip_prefix('/').unwrap_or(path);
        if let Some(group) = self.inner.groups.get(path).filter(|group| group.is_online()) {
            return Ok(group.clone());
        }
        for (depth, name) in path.split('/').enumerate() {
            if depth == Memcg::DEPTH_MAX {
                return Err(MemcgError::TooDeep);
            }
            if name.is_empty() || name.len() > Memcg::NAME_MAX {
                return Err(MemcgError::BadName);
            }
        }
        let mut made = Vec::new();
        let group = self.find_or_make(path, &mut made);
        if group.is_err() {
            self.end_unwanted(made);
        }
        group
    }

    /// Returns the group of this path, and adds those that this call has made to `made`.
    fn find_or_make(&self, path: &str, made: &mut Vec<Memcg>) -> Result<Memcg, MemcgError> {
        let mut group = self.root().clone();
        for name in path.split('/') {
            let (child, is_new) = child(&group, name)?;
            group = child;
            if is_new {
                made.push(group.clone());
            }
            if self.inner.housekeeper.is_dropping(&group) {
                return Err(MemcgError::Dying);
            }
        }
        self.inner.groups.insert(path.into(), group.clone());
        // Another thread may have dropped or ended the group since the check above. A group is
        // offline before it is no longer queued, so `is_online` is tested last.
        let ends_later = self.inner.housekeeper.is_queued(&group);
        let is_usable = !self.inner.housekeeper.is_dropping(&group) && group.is_online();
        // The housekeeper does not remove a group that it ends from the table.
        if ends_later || !is_usable {
            self.forget_group(&group);
        }
        is_usable.then_some(group).ok_or(MemcgError::Dying)
    }

    /// Ends those of the groups, each made below the one before it, that are below a group that is
    /// being dropped: that group would wait for them for ever, and nobody can use them.
    fn end_unwanted(&self, made: Vec<Memcg>) {
        for group in made.into_iter().rev() {
            if group.parent().is_some_and(|parent| self.inner.housekeeper.is_dropping(parent)) {
                // Another thread may have made groups below it, and is about to end them.
                self.end_own_group(&group);
            }
        }
    }

    /// Returns the group of this path, if it exists; `/` is the root.
    pub fn find_group(&self, path: &str) -> Option<Memcg> {
        if path == ROOT {
            return Some(self.root().clone());
        }
        let path = path.strip_prefix('/').unwrap_or(path);
        path.split('/').try_fold(self.root().clone(), |group, name| group.child(name))
    }

    /// Ends a group: its objects become its parent's. The group's id can be reused when the last of
    /// these objects has been freed. O(lists of the group + caches of the runtime).
    ///
    /// [`drop_group`](Self::drop_group) removes the group's entries as well.
    ///
    /// # Errors
    ///
    /// Those of [`Memcg::offline`]: for the root, a group with children, and a group that has ended
    /// already or is being [dropped](Self::drop_group); and [`MemcgError::Foreign`] for a group of
    /// another runtime. Of two concurrent calls, of this function and `drop_group`, either may end
    /// the group.
    pub fn end_group(&self, group: &Memcg) -> Result<(), MemcgError> {
        if !self.owns(group) {
            return Err(MemcgError::Foreign);
        }
        // Its entries are to be removed, and must not become the parent's.
        if self.inner.housekeeper.is_dropping_itself(group) {
            return Err(MemcgError::AlreadyDying);
        }
        // A hook of the tree may panic when the group has ended.
        let _forget_ended = AtEnd(|| {
            if !group.is_online() {
                self.forget_group(group);
            }
        });
        group.offline()
    }

    /// Ends a group and removes its entries from all caches, in the background. The call itself is
    /// O(groups that are being dropped), however many entries there are.
    ///
    /// [`end_group`](Self::end_group) moves the entries to the parent. This function removes them,
    /// as [`Cache::remove`](crate::Cache::remove) does, with rests after each 500 us of work;
    /// lookups find an entry until it is removed. At once the group's `max` is set to 0, so that
    /// nothing can be charged to the group and inserts for it are refused. Unlike `Cache::remove`,
    /// this function stops no load: a [reload](crate::cache::Refresh) in progress inserts its value
    /// for the removed entry, charged to the parent. A reload that names the group, by
    /// [`Entry::group`](crate::cache::Entry::group), is refused as other inserts for it are.
    ///
    /// The group ends when its last entry has been removed, or up to 100 ms later if charges remain
    /// that belong to no entry. These charges, objects on other lists, and inserts with a handle on
    /// the group are the parent's from then on, without a `max` of the group, and the name can be
    /// used again. Until then [`group`](Self::group) returns [`MemcgError::Dying`] for the name. A
    /// [`charge`](Self::charge) of the group itself is refused for longer: until the
    /// [hooks](lowwater_lru_core::MemcgTree::add_hook) for the group's end have returned. An
    /// insert that is in progress during the call may leave its entry to the parent. If a child of
    /// the group is created meanwhile, the group ends after the child.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build()?;
    /// let tenant = runtime.group("tenant")?;
    /// cache.entry(1).group(&tenant).insert(1)?;
    ///
    /// runtime.drop_group(&tenant)?;
    /// while runtime.find_group("tenant").is_some() {
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!((cache.get(&1), cache.len()), (None, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`end_group`](Self::end_group). Nothing is changed then, except that a group which
    /// ends during this call loses its `max`.
    pub fn drop_group(&self, group: &Memcg) -> Result<(), MemcgError> {
        if !self.owns(group) {
            return Err(MemcgError::Foreign);
        }
        if group.parent().is_none() {
            return Err(MemcgError::Root);
        }
        if !group.children().is_empty() {
            return Err(MemcgError::HasChildren);
        }
        if self.inner.housekeeper.is_dropping(group) || !group.is_online() {
            return Err(MemcgError::AlreadyDying);
        }
        // Sets a `max` of 0, before the housekeeper starts: where it finds no entry of the group,
        // none is inserted later. The reclaimer must not evict the entries, which are removed.
        group.begin_drop();
        if !self.inner.housekeeper.drop_group(group) {
            return Err(MemcgError::AlreadyDying);
        }
        self.forget_group(group);
        Ok(())
    }

    /// Ends a group that the runtime itself has created: for the limits of a cache, or in a call
    /// that failed. A group in which a program has created children ends in the background, after
    /// the last child; until then the entries of other caches in the group stay there.
    pub(crate) fn end_own_group(&self, group: &Memcg) {
        // A group that the program is dropping ends in the background, when it is empty. A hook of
        // the tree may panic, and the caller may be unwinding.
        if self.inner.housekeeper.is_dropping_itself(group) {
            return;
        }
        if caught(|| group.offline()) == Some(Err(MemcgError::HasChildren)) {
            self.inner.housekeeper.end_after_children(group);
        }
        self.forget_group(group);
    }

    /// Removes the group from the table of paths.
    fn forget_group(&self, group: &Memcg) {
        self.inner.groups.remove_if(group.path().trim_start_matches('/'), |_, found| found == group);
    }
}

/// Returns the child of this name, and whether this call has created it.
pub(super) fn child(group: &Memcg, name: &str) -> Result<(Memcg, bool), MemcgError> {
    loop {
        if let Some(child) = group.child(name) {
            return Ok((child, false));
        }
        match group.create(name) {
            // Another thread has created the child since the lookup.
            Err(MemcgError::NameTaken) => {}
            result => return result.map(|child| (child, true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::maintenance::no_records::NoRecords;
    use crate::runtime::maintenance::MaintenanceId;
    use lowwater_lru_core::{ByteSize, OfflineHook};
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn the_table_of_paths_keeps_no_group_that_ends_after_its_children() {
        let runtime = Runtime::builder().unlimited().build().unwrap();
        let (own, child) = (runtime.group("own").unwrap(), runtime.group("own/child").unwrap());
        runtime.end_own_group(&own);
        assert_eq!(runtime.group("own").as_ref(), Ok(&own), "it has a child yet");
        runtime.end_group(&child).unwrap();
        let begun = Instant::now();
        while own.is_online() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the group does not end");
            std::thread::yield_now();
        }
        assert!(runtime.inner.groups.is_empty(), "the table keeps an ended group");
        assert_ne!(runtime.group("own").as_ref(), Ok(&own));
    }

    #[test]
    fn the_table_of_paths_keeps_no_group_whose_end_panics() {
        struct Panics;
        impl OfflineHook for Panics {
            fn offline(&self, _: &Memcg, _: &Memcg) {
                panic!("a hook's");
            }
        }
        let runtime = Runtime::builder().unlimited().build().unwrap();
        let (group, _child) = (runtime.group("a").unwrap(), runtime.group("a/b").unwrap());
        let _hook = runtime.tree().add_hook(Arc::new(Panics));
        assert_eq!(runtime.end_group(&group), Err(MemcgError::HasChildren));
        assert_eq!(runtime.inner.groups.len(), 2);
        for path in ["a/b", "a"] {
            let group = runtime.group(path).unwrap();
            assert!(catch_unwind(AssertUnwindSafe(|| runtime.end_group(&group))).is_err());
        }
        assert!(runtime.inner.groups.is_empty(), "the table keeps an ended group");
    }

    /// The states in which another thread's drop of `t` leaves a call of `group("p/t/c/d")` that
    /// has found `t` before.
    #[test]
    fn groups_made_below_one_that_is_dropped_meanwhile_do_not_keep_it() {
        let runtime = Runtime::builder().unlimited().build().unwrap();
        let above = runtime.group("p").unwrap();
        let mut ended = 0;
        for _ in 0..100 {
            let dropped = runtime.group("p/t").unwrap();
            // Charged, so that the group is not ended at once.
            runtime.charge(&dropped, ByteSize::new(1)).unwrap();
            runtime.drop_group(&dropped).unwrap();
            if let Ok((child, true)) = child(&dropped, "c") {
                let last = child.create("d").unwrap();
                runtime.end_unwanted(vec![child.clone(), last.clone()]);
                assert!(!last.is_online() && !child.is_online());
                ended += 1;
            }
            dropped.uncharge(ByteSize::new(1));
            let begun = Instant::now();
            while runtime.find_group("p/t").is_some() {
                assert!(begun.elapsed() < Duration::from_secs(60), "the dropped group does not end");
                std::thread::yield_now();
            }
        }
        assert!(ended > 0, "no group was made in time");
        // Only groups below a dropped one are ended.
        let dropped = runtime.group("p/t").unwrap();
        let (endless, id) = (dropped.clone(), MaintenanceId::new());
        let endless = NoRecords::evicting(move |group| u64::from(*group == endless));
        runtime.housekeeper().add(id, Arc::new(endless));
        runtime.drop_group(&dropped).unwrap();
        runtime.end_unwanted(vec![dropped.clone()]);
        assert!(dropped.is_online(), "it has records yet");
        runtime.housekeeper().remove(id);
        let child = runtime.group("p/c").unwrap();
        runtime.end_group(&child).unwrap();
        runtime.end_unwanted(vec![above.clone(), child]);
        assert!(above.is_online());
    }
}
