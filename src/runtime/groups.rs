//! Groups by path: created on first use, ended, dropped.

use lowwater_base::unwind::caught;
use lowwater_lru_core::{ByteSize, Memcg, MemcgError};

use super::handle::Runtime;

/// The root's [path](Memcg::path).
const ROOT: &str = "/";

impl Runtime {
    /// The group of this path (`shop`, `/shop/carts`; `/` is the root), made with all above it if it is not there. Names are up to 255 bytes.
    ///
    /// O(1) once it is there.
    ///
    /// # Errors
    ///
    /// [`MemcgError::BadName`] for an empty name on the path or one too long, [`MemcgError::TooDeep`] for more than
    /// [`DEPTH_MAX`](Memcg::DEPTH_MAX) of them; then none is made. [`MemcgError::Dying`] if a group above it is being ended right now, or it
    /// is itself being [dropped](Self::drop_group).
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
        let mut group = self.root().clone();
        for name in path.split('/') {
            group = child(&group, name)?;
            if self.inner.housekeeper.is_dropping(&group) {
                return Err(MemcgError::Dying);
            }
        }
        self.inner.groups.insert(path.into(), group.clone());
        // It may have been dropped between.
        if self.inner.housekeeper.is_dropping(&group) {
            self.forget_group(&group);
            return Err(MemcgError::Dying);
        }
        Ok(group)
    }

    /// The group of this path, if it is there; `/` is the root.
    pub fn find_group(&self, path: &str) -> Option<Memcg> {
        if path == ROOT {
            return Some(self.root().clone());
        }
        let path = path.strip_prefix('/').unwrap_or(path);
        path.split('/').try_fold(self.root().clone(), |group, name| group.child(name))
    }

    /// Ends a group: its objects become its parent's, its id returns when the last of them is gone. O(lists of the group).
    ///
    /// Entries that shall go with it: [`drop_group`](Self::drop_group).
    ///
    /// # Errors
    ///
    /// Those of [`Memcg::offline`]: the root, a group with children, one that was ended already; and [`MemcgError::Foreign`] for one of
    /// another runtime.
    pub fn end_group(&self, group: &Memcg) -> Result<(), MemcgError> {
        if !self.owns(group) {
            return Err(MemcgError::Foreign);
        }
        group.offline()?;
        self.forget_group(group);
        Ok(())
    }

    /// Ends a group and lets go of all that caches have for it, in the background: O(1) here, however much that is.
    ///
    /// With [`end_group`](Self::end_group) the entries become the parent's, and stay. Here they leave, as by [`Cache::remove`](crate::Cache::remove):
    /// a few at a time, half a millisecond of work between rests. Until one has left, it is found. From now on nothing can be charged to the group (its
    /// `max` is 0), so inserts for it are refused; and [`group`](Self::group) says that it is dying, until the name is free again. That
    /// is when its last entry has left, or up to 100 ms later where charges remain that belong to no entry: these, and objects on lists
    /// of others, are the parent's then. An insert that was under way may leave an entry to the parent. Should the group be given a child
    /// meanwhile, it ends when that has.
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
    /// Those of [`end_group`](Self::end_group). Nothing is changed then.
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
        if !group.is_online() || self.inner.housekeeper.is_dropping(group) {
            return Err(MemcgError::AlreadyDying);
        }
        // First, so that what is found to be empty stays so.
        group.set_max(ByteSize::ZERO);
        if !self.inner.housekeeper.drop_group(group) {
            return Err(MemcgError::AlreadyDying);
        }
        self.forget_group(group);
        Ok(())
    }

    /// Ends the group that a cache has made for its limits. A group that was given children ends in
    /// the background, after the last of them; until then it keeps what other caches have there.
    pub(crate) fn end_own_group(&self, group: &Memcg) {
        // A hook of the tree may panic, and the caller may be unwinding.
        if caught(|| group.offline()) == Some(Err(MemcgError::HasChildren)) {
            self.inner.housekeeper.end_after_children(group);
        }
        self.forget_group(group);
    }

    /// The name does not lead to the group any more.
    fn forget_group(&self, group: &Memcg) {
        self.inner.groups.remove_if(group.path().trim_start_matches('/'), |_, found| found == group);
    }
}

/// The child of this name, made if need be.
fn child(group: &Memcg, name: &str) -> Result<Memcg, MemcgError> {
    loop {
        if let Some(child) = group.child(name) {
            return Ok(child);
        }
        match group.create(name) {
            // Another thread made it between our two questions.
            Err(MemcgError::NameTaken) => {}
            result => return result,
        }
    }
}
