//! Reclaim of dentries: walks over the lists of a memcg on a node, and over a tree.
//!
//! Negatives are reclaimed first where the policy keeps them on lists of their own: a missing name
//! costs the backend less to look up again than an existing one.
//!
//! An isolated dentry may get a user before it is disposed of: `dispose` then leaves it, and its
//! last put lists it again. A trim also leaves one that turned positive meanwhile. A change must
//! ensure that a scan visits at most the requested number.
//!
//! Numbers such as D24 are those of docs/INVARIANTS.md.

#[cfg(all(test, lowwater_loom))]
mod loom;
#[cfg(all(test, not(lowwater_loom)))]
mod tests;

use crate::children::ChildFilter;
use crate::dcache_core::DcacheCore;
use crate::dentry::{Dentry, DentryGuard, Dir};
use crate::flag;
use crate::ghost::GhostWindow;
use crate::stats::CounterDelta;
use crate::superblock::SuperBlock;
use lowwater_base::sync::atomic::{fence, Ordering};
use lowwater_base::sync::Arc;
use lowwater_lru_core::{Isolated, ListLru, Memcg, NodeId};
use lowwater_store::hash_chains::Reader;

/// The treatment of a dentry that was used since the last walk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SecondChance {
    /// The dentry rotates to the young end.
    Rotate,
    /// The dentry rotates to the young end and gains a usage count, which lets it rotate up to
    /// three times when it was not used.
    #[doc(alias = "GCLOCK")]
    UsageCount,
    /// The dentry moves to the protected list.
    Promote,
    /// No second chance.
    Never,
}

impl SecondChance {
    /// Returns the flags with which a dentry that a walk has isolated is spared, because it turned
    /// positive, or was used, since the walk (D19).
    fn spared(self) -> u32 {
        match self {
            Self::Never => flag::TYPE,
            Self::Rotate | Self::UsageCount | Self::Promote => flag::TYPE | flag::REFERENCED,
        }
    }
}

impl DcacheCore {
    /// Scans up to `batch` negatives of a memcg on a node, where they have lists of their own. If
    /// that frees none because all were used, scans up to `batch` positives; but kills negatives
    /// above the policy's bound before any positive (D24). Returns how many were killed. Calls the
    /// policy: the caller holds no lock of a dentry or list.
    pub(crate) fn scan_dentries(&self, sb: &SuperBlock, memcg: &Memcg, node: NodeId, batch: u64) -> u64 {
        let killed = self.scan_negatives(sb, memcg, node, &mut { batch });
        if killed > 0 {
            return killed;
        }
        match self.excess_negatives(sb, memcg, node) {
            0 => self.scan(sb, &sb.dentries, memcg, node, &mut { batch }),
            excess => self.kill_excess(sb, memcg, node, &mut excess.min(batch)),
        }
    }

    /// Scans up to `left` dentries: negatives first, then the negatives above the policy's bound
    /// (D24), even if they were used, then positives. Calls the policy: the caller holds no lock.
    pub(crate) fn reclaim_dentries(&self, sb: &SuperBlock, memcg: &Memcg, node: NodeId, left: &mut u64) -> u64 {
        let mut killed = self.scan_negatives(sb, memcg, node, left);
        if *left > 0 {
            let mut excess = self.excess_negatives(sb, memcg, node).min(*left);
            *left -= excess;
            killed += self.kill_excess(sb, memcg, node, &mut excess);
            *left += excess;
        }
        killed + self.scan(sb, &sb.dentries, memcg, node, left)
    }

    /// Kills up to `excess` of the oldest negatives, even if they were used.
    fn kill_excess(&self, sb: &SuperBlock, memcg: &Memcg, node: NodeId, excess: &mut u64) -> u64 {
        let mut killed = 0;
        for list in [&sb.probation, &sb.protected] {
            let (old, _) = self.isolate(list, memcg, node, excess, u64::MAX, SecondChance::Never);
            killed += self.dispose(sb, old, SecondChance::Never.spared(), |_| ());
        }
        killed
    }

    fn scan_negatives(&self, sb: &SuperBlock, memcg: &Memcg, node: NodeId, left: &mut u64) -> u64 {
        self.scan(sb, &sb.probation, memcg, node, left) + self.scan(sb, &sb.protected, memcg, node, left)
    }

    /// Returns the number of negatives above the policy's bound; 0 if they have no lists of their
    /// own.
    fn excess_negatives(&self, sb: &SuperBlock, memcg: &Memcg, node: NodeId) -> u64 {
        let [positives, probation, protected, _] = sb.counts(memcg, node);
        match probation + protected {
            0 => 0,
            negatives => negatives.saturating_sub(self.negatives.bound(self, positives, negatives).unwrap_or(u64::MAX)),
        }
    }

    /// Scans up to `left` of the oldest dentries of a list, and kills those that were not used
    /// since the last walk (D10, D11). Returns how many.
    #[doc(alias = "prune_dcache_sb")]
    pub(crate) fn scan(
        &self,
        sb: &SuperBlock,
        list: &ListLru<Dentry>,
        memcg: &Memcg,
        node: NodeId,
        left: &mut u64,
    ) -> u64 {
        let (old, _) = self.isolate(list, memcg, node, left, u64::MAX, SecondChance::Rotate);
        self.dispose(sb, old, 0, |_| ())
    }

    /// Ends the probation of some of the `oldest` negatives: promotes those that were looked up
    /// again, and kills up to `over` others, whose names enter the ghost table. `capacity` is the
    /// number of negatives that the memcg may have on the node. Returns how many were killed.
    pub(crate) fn end_probation(
        &self,
        sb: &SuperBlock,
        memcg: &Memcg,
        node: NodeId,
        oldest: u64,
        over: u64,
        capacity: u64,
    ) -> u64 {
        /// Dentries scanned for each one to be killed. More than one, as a dentry whose lock
        /// another thread holds is skipped, however old it is.
        const SCANS_PER_VICTIM: u64 = 2;
        /// Walks of the list. A walk of a split list ends early if another walk shortens a shard.
        const WALKS: u32 = 4;
        let window = GhostWindow { memcg, sb: sb.id, node, capacity };
        let mut left = oldest.min(over.saturating_mul(SCANS_PER_VICTIM));
        let mut killed = 0;
        for _ in 0..WALKS {
            let wanted = over.saturating_sub(killed);
            if wanted == 0 || left == 0 {
                break;
            }
            let (old, promoted) = self.isolate(&sb.probation, memcg, node, &mut left, wanted, SecondChance::Promote);
            for dentry in promoted {
                self.promote(sb, &dentry);
            }
            killed += self.trim(sb, old, SecondChance::Promote, |dentry| self.ghosts.insert(dentry.hash(), window));
        }
        killed
    }

    /// Trims `over` protected negatives, those of the lowest usage count first. They do not enter
    /// the ghost table: in a loop over more names than fit, each would come back just in time to
    /// evict the next.
    pub(crate) fn trim_protected(&self, sb: &SuperBlock, memcg: &Memcg, node: NodeId, over: u64) {
        /// Dentries scanned for each one to be trimmed.
        const SCANS_PER_VICTIM: u64 = 16;
        let mut nr_to_scan = over.saturating_mul(SCANS_PER_VICTIM);
        let (old, _) = self.isolate(&sb.protected, memcg, node, &mut nr_to_scan, over, SecondChance::UsageCount);
        let mut missing = over.saturating_sub(self.trim(sb, old, SecondChance::UsageCount, |_| ()));
        // If most were looked up between walks, the first scan finds too few: the second one trims
        // the oldest without regard to their usage count.
        let (old, _) = self.isolate(&sb.protected, memcg, node, &mut missing, u64::MAX, SecondChance::Never);
        self.trim(sb, old, SecondChance::Never, |_| ());
    }

    /// Walks a list, and sorts its oldest dentries: used ones get the second chance that `chance`
    /// describes, the others (at most `wanted`) are isolated. Returns those to be killed, and those
    /// to be promoted.
    fn isolate(
        &self,
        list: &ListLru<Dentry>,
        memcg: &Memcg,
        node: NodeId,
        left: &mut u64,
        wanted: u64,
        chance: SecondChance,
    ) -> (Isolated<Dentry>, Isolated<Dentry>) {
        let (mut old, mut promoted) = (Isolated::new(), Isolated::new());
        if *left == 0 {
            return (old, promoted);
        }
        let mut delta = CounterDelta::default();
        list.walk_one(memcg, node, left, |it| {
            if old.len() as u64 == wanted {
                return it.unlock().stop();
            }
            let dentry = it.item();
            let Some(mut locked) = dentry.try_lock() else { return it.skip() };
            let flags = dentry.flags();
            let (used, usage) = (flags & flag::REFERENCED != 0, flags & flag::USAGE_COUNT);
            // A dentry in use is isolated with the old ones: `dispose_one` sees its user, and the
            // last put lists it again.
            let idle = dentry.count.users() == Some(0);
            let (stays, usage) = match chance {
                SecondChance::UsageCount if used => (idle, (usage + flag::USAGE_ONE).min(flag::USAGE_COUNT)),
                SecondChance::UsageCount => (idle && usage != 0, usage.saturating_sub(flag::USAGE_ONE)),
                SecondChance::Rotate | SecondChance::Promote => (idle && used, usage),
                SecondChance::Never => (false, usage),
            };
            let promote = stays && chance == SecondChance::Promote;
            if stays && !promote {
                dentry.update_flags_batched(&mut locked, flag::REFERENCED | flag::USAGE_COUNT, usage, &mut delta);
                drop(locked);
                return it.rotate();
            }
            let clear = if promote { flag::REFERENCED } else { 0 };
            dentry.update_flags_batched(&mut locked, clear, flag::SHRINK_LIST, &mut delta);
            drop(locked);
            it.isolate(if promote { &mut promoted } else { &mut old })
        });
        // Any address will do: it chooses the stripe of the counters.
        self.counters.add(std::ptr::from_ref(list).addr(), delta);
        (old, promoted)
    }

    /// Kills isolated dentries, except those in use or with a flag of `spared`, and calls `on_kill`
    /// for each killed one. Returns how many were killed.
    #[doc(alias = "shrink_dentry_list")]
    fn dispose(&self, sb: &SuperBlock, mut old: Isolated<Dentry>, spared: u32, on_kill: impl Fn(&Dentry)) -> u64 {
        /// Hash chains that are prefetched together: each costs one or two cache misses.
        const PREFETCH_BATCH: usize = 32;
        let mut killed = 0;
        let mut window = Vec::new();
        while !old.is_empty() {
            window.reserve(PREFETCH_BATCH);
            // One reader for the batch: the reader that each removal enters is then nested, which
            // is cheap.
            let _reader = Reader::enter();
            let mut delta = CounterDelta::default();
            window.extend(old.by_ref().take(PREFETCH_BATCH));
            for dentry in &window {
                self.chains.prefetch(dentry.hash());
            }
            for dentry in &window {
                self.chains.prefetch_first(dentry.hash());
            }
            for dentry in window.drain(..) {
                if self.dispose_one(sb, &dentry, spared, &mut delta) {
                    killed += 1;
                    on_kill(&dentry);
                }
            }
            self.counters.add(std::ptr::from_ref(sb).addr(), delta);
        }
        killed
    }

    /// As [`dispose`](Self::dispose), and counts the killed negatives as trimmed: by the policy,
    /// not by reclaim. Spares those that turned positive since a walk with `chance` isolated them,
    /// or were used again, if used ones have a second chance (D19).
    fn trim(&self, sb: &SuperBlock, old: Isolated<Dentry>, chance: SecondChance, on_kill: impl Fn(&Dentry)) -> u64 {
        let killed = self.dispose(sb, old, chance.spared(), on_kill);
        self.counters.trimmed(killed);
        killed
    }

    /// Kills an isolated dentry, unless it has a user, with whose last put it is listed again, or a
    /// flag of `spared`. Returns whether it was killed.
    fn dispose_one(&self, sb: &SuperBlock, dentry: &Arc<Dentry>, spared: u32, delta: &mut CounterDelta) -> bool {
        let mut locked = dentry.lock();
        loop {
            if dentry.has(spared) {
                dentry.update_flags_batched(&mut locked, flag::LRU_LIST | flag::SHRINK_LIST, 0, delta);
                self.relist(sb, dentry, locked);
                return false;
            }
            if dentry.count.kill() {
                self.kill_batched(sb, dentry, locked, delta);
                return true;
            }
            dentry.update_flags_batched(&mut locked, flag::LRU_LIST | flag::SHRINK_LIST, 0, delta);
            // SeqCst: pairs with the fence in `last_put_one`; see lifecycle.rs.
            fence(Ordering::SeqCst);
            if dentry.count.users() != Some(0) {
                return false;
            }
        }
    }

    /// Promotes a negative before it reaches the end of the probation list.
    pub(crate) fn promote_early(&self, sb: &SuperBlock, dentry: &Arc<Dentry>) {
        let mut locked = dentry.lock();
        if dentry.flags() & (flag::TYPE | flag::PROTECTED | flag::KILLED) != 0 {
            return;
        }
        if let Some(listed) = self.unlist(sb, dentry, &mut locked) {
            dentry.update_flags(&mut locked, flag::REFERENCED, 0, &self.counters);
            self.promote_locked(sb, dentry, locked);
            drop(listed);
        }
    }

    /// Moves a negative to the protected list, after a walk has isolated it from the probation
    /// list.
    fn promote(&self, sb: &SuperBlock, dentry: &Arc<Dentry>) {
        self.promote_locked(sb, dentry, dentry.lock());
    }

    /// Counts a negative as protected and adds it to the protected list, unless it is in use: then
    /// its last put does. The caller has taken it off its list, and holds its lock.
    fn promote_locked(&self, sb: &SuperBlock, dentry: &Arc<Dentry>, mut locked: DentryGuard<'_>) {
        // A dentry that turned positive, or died, since the walk isolated it is not protected.
        let parent = locked.parent.clone().filter(|_| dentry.is_negative() && !dentry.has(flag::KILLED));
        let protected = if parent.is_some() { flag::PROTECTED } else { 0 };
        if let Some(dir) = parent.as_ref().and_then(|parent| parent.dir()) {
            dir.children.lock().protected += 1;
        }
        dentry.update_flags(
            &mut locked,
            flag::LRU_LIST | flag::SHRINK_LIST | flag::USAGE_COUNT,
            protected,
            &self.counters,
        );
        if parent.is_some() {
            self.counters.promoted(dentry.addr());
        }
        self.relist(sb, dentry, locked);
    }

    /// Adds a dentry that is on no list to its list, unless it is in use: then its last put does.
    fn relist(&self, sb: &SuperBlock, dentry: &Arc<Dentry>, mut locked: DentryGuard<'_>) {
        // SeqCst: pairs with the fence in `last_put_one`; see lifecycle.rs. If the dentry is in
        // use, its last put lists it.
        fence(Ordering::SeqCst);
        if dentry.count.users() == Some(0) {
            dentry.update_flags(&mut locked, 0, flag::LRU_LIST, &self.counters);
            if let Err(error) = sb.list(dentry.flags()).add(Arc::clone(dentry), &dentry.memcg, dentry.node) {
                dentry.update_flags(&mut locked, flag::LRU_LIST, 0, &self.counters);
                drop(error);
                if dentry.count.kill() {
                    self.kill_and_put_parent(sb, dentry, locked);
                }
            }
        }
    }

    /// Clears `REFERENCED` of a negative that a trim of its directory met.
    pub(crate) fn clear_referenced(&self, dentry: &Arc<Dentry>) {
        let mut locked = dentry.lock();
        dentry.update_flags(&mut locked, flag::REFERENCED, 0, &self.counters);
    }

    /// Kills every unused dentry below `top`, including those that other threads have just
    /// isolated, and waits for those that other threads are killing (D22). Returns how many it
    /// killed.
    #[doc(alias = "shrink_dcache_parent")]
    pub(crate) fn shrink_tree(&self, sb: &SuperBlock, top: &Arc<Dentry>) -> u64 {
        let mut killed = 0;
        // The directories on the path down, each except `top` with one user for this walk, and the
        // next index in each.
        let mut stack = vec![(Arc::clone(top), 0)];
        while let Some((dir, index)) = stack.last_mut() {
            let Some(children) = dir.dir() else {
                // Only `top` can be other than a directory.
                break;
            };
            let next =
                children.children.lock().next(*index, ChildFilter::All).map(|(at, child)| (at, Arc::clone(child)));
            if let Some((at, child)) = next {
                *index = at + 1;
                // A directory that loses its last child loses that user under the same lock (D12).
                // So a directory without children has no user, or users that are no children.
                let has_children = child.dir().is_some_and(|dir| dir.children.lock().len() > 0);
                if has_children && child.count.get() {
                    stack.push((child, 0));
                } else {
                    killed += u64::from(self.kill_unused(sb, children, at, &child));
                }
                continue;
            }
            let done = stack.pop();
            let (Some((done, _)), Some((parent, index))) = (done, stack.last()) else { break };
            done.count.put();
            killed += u64::from(self.kill_unused(sb, parent.make_dir(), index - 1, &done));
        }
        killed
    }

    /// Kills `child`, which was found at index `at` of `parent`, if it is unused. If another thread
    /// is killing it, waits until that thread has removed it. Returns whether this call killed it.
    ///
    /// A child with another user stays. If that user is a concurrent `shrink_tree`, which has the
    /// child on its stack, that call kills it.
    fn kill_unused(&self, sb: &SuperBlock, parent: &Dir, at: u32, child: &Arc<Dentry>) -> bool {
        // Under the lock: RCU-walk finds a dead dentry until it is unhashed, and a lookup with
        // locks does not find it, but waits for the lock.
        let locked = child.lock();
        if child.count.kill() {
            self.kill_and_put_parent(sb, child, locked);
            return true;
        }
        drop(locked);
        // Another thread may be killing the child, or have frozen it. When it is done, the slot is
        // empty or holds another child, or the child has users again.
        if child.count.users().is_none() {
            parent.wait_while(&mut parent.children.lock(), |slots| {
                let there = slots.next(at, ChildFilter::All);
                there.is_some_and(|(_, there)| Arc::ptr_eq(there, child)) && child.count.users().is_none()
            });
        }
        false
    }
}
