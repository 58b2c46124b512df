//! A new negative dentry, and the ways in which a policy may trim negatives: along a hash chain, in
//! a directory, in a memcg.
//!
//! A trim kills unused negatives only, at most `TRIM_MAX` of a memcg, and scans a bounded number of
//! dentries, so that no lookup pays for a flood. Policies call these functions and have no other
//! way to kill.
//!
//! Numbers such as D20 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that a trim scans and kills a bounded number of dentries, kills only unused
//! negatives (D19), and holds a reader or a reference wherever it releases a lock (D20).

use crate::children::Children;
use crate::dcache_core::DcacheCore;
use crate::dentry::Dentry;
use crate::flag;
use crate::ghost::GhostWindow;
use crate::superblock::SuperBlock;
use lowwater_base::sync::Arc;
use lowwater_lru_core::{Memcg, NodeId};
use lowwater_store::hash_chains::Reader;
use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// A negative that was just added to its list, or a removed name that may become one, with the
/// operations that a policy may call on it.
pub struct NewNegative<'a> {
    pub(crate) core: &'a DcacheCore,
    pub(crate) sb: &'a SuperBlock,
    pub(crate) dentry: &'a Arc<Dentry>,
}

/// Dentries that a trim scans for each dentry it may kill.
const SCANS_PER_VICTIM: u64 = 8;
/// One of this many negatives that a directory loses enters the ghost table.
const GHOST_SAMPLE: u64 = 16;
/// A memcg is trimmed when it is this far over its capacity (or over by its probation limit, if
/// that is less), so that the fixed cost of a walk is shared by a batch.
const TRIM_BATCH: u64 = 32;
/// Negatives of a memcg that one lookup kills at most. Later lookups trim the rest, so that none
/// pays for all of a capacity that was lost at once. More than one, so that the excess shrinks:
/// each lookup adds one negative itself. The documentation of `policy.rs` and `probation.rs` has
/// this number.
pub(super) const TRIM_MAX: u64 = 32;

/// Returns the excess at which a memcg is trimmed.
pub(super) fn trim_batch(probation: u64) -> u64 {
    probation.clamp(1, TRIM_BATCH)
}

impl NewNegative<'_> {
    /// Trims the row of unused, unreferenced negatives that follows this one in its hash chain,
    /// from the younger to the older: the first `keep` of them stay, up to two more are killed.
    /// Two, because rows join when the dentries between them are removed, and have to shrink with
    /// each new name. O(keep + length of the chain up to them).
    pub fn trim_chain(&self, keep: usize) {
        let victims = {
            let reader = Reader::enter();
            let chain = self.core.chains.chain(self.dentry.hash(), &reader);
            let mut behind =
                chain.skip_while(|found| !std::ptr::eq(found.get(), &**self.dentry)).skip(1).take_while(|found| {
                    let flags = found.flags();
                    let idle =
                        flags & (flag::TYPE | flag::REFERENCED | flag::LRU_LIST | flag::IN_LOOKUP) == flag::LRU_LIST;
                    idle && found.count.users() == Some(0)
                });
            // D20: handles are taken before the reader leaves.
            [behind.nth(keep).map(|found| found.to_arc()), behind.next().map(|found| found.to_arc())]
        };
        for victim in victims.iter().flatten() {
            self.kill(victim, false);
        }
    }

    /// While the directory has more than `limit` negatives, kills up to two of the same memcg, and
    /// of the same node if negatives have lists of their own: the next at the clock hand that was
    /// not referenced, or this one if all scanned ones were referenced or belong to others. Two,
    /// because an excess that trims left whose victims were in use has to shrink with each new
    /// name. O(1).
    pub fn trim_directory(&self, limit: usize) {
        let Some(parent) = self.parent() else { return };
        for _ in 0..2 {
            match self.trim_children(&parent, |_| (0, limit), 1, |_| ()) {
                None => return,
                // All scanned negatives belong to others or were referenced: the new one is
                // killed.
                Some(0) => _ = self.kill(self.dentry, true),
                Some(_) => {}
            }
        }
    }

    /// Returns the directory; `None` if another thread has killed the negative meanwhile.
    fn parent(&self) -> Option<Arc<Dentry>> {
        self.dentry.lock().parent.clone()
    }

    /// Kills up to `over` negatives of the directory `parent`, in the order of the clock hand.
    /// `share` returns how many negatives do not count, and how many of the others may stay.
    /// Returns the number of killed negatives; `None` if the directory has no more than may stay,
    /// and no negative was killed.
    pub(super) fn trim_children(
        &self,
        parent: &Dentry,
        share: impl Fn(&Children<Arc<Dentry>>) -> (usize, usize),
        over: u64,
        on_kill: impl Fn(&Dentry),
    ) -> Option<u64> {
        let dir = parent.dir()?;
        let mut killed = None;
        for _ in 0..over.saturating_mul(SCANS_PER_VICTIM) {
            let victim = {
                let mut children = dir.children.lock();
                let (spared, limit) = share(&children);
                if children.negatives() - spared <= limit {
                    return killed.filter(|&killed| killed > 0);
                }
                Arc::clone(children.next_negative()?)
            };
            let killed = killed.get_or_insert(0);
            if *listed(&victim.memcg) != *self.memcg() {
                continue;
            }
            let probation = self.sb.has_negative_lists && !victim.has(flag::PROTECTED);
            // Such lists are bounded for each node.
            if self.sb.has_negative_lists && (!probation || victim.node != self.dentry.node) {
                continue;
            }
            if self.kill(&victim, false) {
                on_kill(&victim);
                *killed += 1;
                if *killed == over {
                    break;
                }
            } else if probation && victim.has(flag::REFERENCED) {
                self.core.promote_early(self.sb, &victim);
            } else if !Arc::ptr_eq(&victim, self.dentry) {
                self.core.clear_referenced(&victim);
            }
        }
        killed
    }

    /// Returns the number of negatives that the memcg has on probation on this node.
    pub fn on_probation(&self) -> u64 {
        self.sb.probation.count_one(&self.memcg(), self.dentry.node)
    }

    /// Returns the number of unused positives of the memcg on this node.
    pub fn positives(&self) -> u64 {
        self.sb.dentries.count_one(&self.memcg(), self.dentry.node)
    }

    /// Removes the name from the ghosts of its memcg and mount, on any node, each of which may have
    /// `capacity` negatives. If it was among them, the negative counts as used. O(nodes).
    #[doc(alias = "ghost_hit")]
    pub fn take_ghost(&self, capacity: u64) {
        self.take_ghost_by(|_| capacity);
    }

    /// As [`take_ghost`](Self::take_ghost); `capacity` returns the most negatives for a number of
    /// unused positives, which differs from node to node.
    pub(super) fn take_ghost_by(&self, capacity: impl Fn(u64) -> u64) {
        let memcg = &*self.memcg();
        let (here, last) = (self.dentry.node, self.sb.last_node.get());
        // The name may have been evicted on another node. Mostly it was on this one.
        let others = (0..=last).map(NodeId::new).filter(|&node| node != here);
        let is_ghost = std::iter::once(here).chain(others).any(|node| {
            let capacity = capacity(self.sb.dentries.count_one(memcg, node));
            let window = GhostWindow { memcg, sb: self.sb.id, node, capacity };
            self.core.ghosts.take(self.dentry.hash(), window)
        });
        if is_ghost {
            self.dentry.mark_referenced();
            self.core.counters.ghost_hit(self.dentry.addr());
        }
    }

    /// Trims the negatives of the memcg on this node towards `probation + protected`, by 32 at
    /// most: the lookups that follow trim the rest. Nothing is trimmed while the excess is small.
    ///
    /// Victims, in this order:
    ///
    /// 1. negatives on probation on this node, in the directory of the new one, if it has more than
    ///    `directory` of them on any node, and more than it has protected ones;
    /// 2. the oldest of the memcg on probation, beyond `probation`; those that were looked up again
    ///    are promoted instead;
    /// 3. protected negatives.
    pub fn trim_group(&self, probation: u64, protected: u64, directory: u64) {
        let (memcg, capacity) = (&*self.memcg(), probation.saturating_add(protected));
        let mut over = self.excess(memcg, capacity);
        if over < trim_batch(probation) {
            return;
        }
        // Without the directory its negatives could not be trimmed before those that recur.
        let Some(parent) = self.parent() else { return };
        over = over.min(TRIM_MAX);
        let share = |children: &Children<Arc<Dentry>>| (children.protected, children.protected.max(directory as usize));
        // A sample enters the ghost table, so that a directory with names that are looked up in
        // rounds gets its share in time. Not all, or a flood in one directory would evict the
        // fingerprints of the others in the memcg. The sample is random: a sample by index would
        // include no negative of a small directory that uses none of the sampled indices.
        let insert_ghost = |dentry: &Dentry| {
            if RandomState::new().hash_one(0) % GHOST_SAMPLE == 0 {
                let window = GhostWindow { memcg, sb: self.sb.id, node: dentry.node, capacity };
                self.core.ghosts.insert(dentry.hash(), window);
            }
        };
        over -= self.trim_children(&parent, share, over, insert_ghost).unwrap_or(0);
        self.trim_lists(memcg, over, probation, capacity);
    }

    /// As [`trim_group`](Self::trim_group), for the nearest ancestor with an excess, whatever the
    /// directories: it has the negatives of its ended children, and lookups of the children alone
    /// add no negative to it. `shares` returns the bounds of both lists for a number of unused
    /// positives. O(depth) if no ancestor has an excess.
    pub(super) fn trim_ancestor(&self, shares: impl Fn(u64) -> (u64, u64)) {
        let listed = self.memcg();
        for memcg in std::iter::successors(listed.parent(), |memcg| memcg.parent()) {
            let (probation, protected) = shares(self.sb.dentries.count_one(memcg, self.dentry.node));
            let capacity = probation.saturating_add(protected);
            let over = self.excess(memcg, capacity);
            if over >= trim_batch(probation) {
                return self.trim_lists(memcg, over.min(TRIM_MAX), probation, capacity);
            }
        }
    }

    /// Trims up to `over` negatives of a memcg on this node: from the probation list beyond
    /// `probation`, then protected ones.
    fn trim_lists(&self, memcg: &Memcg, mut over: u64, probation: u64, capacity: u64) {
        let node = self.dentry.node;
        // Other threads may have trimmed the same excess: it is read again before each step, or
        // their victims on probation would be followed by protected ones. Promoted negatives still
        // count against the capacity.
        over = over.min(self.excess(memcg, capacity));
        let oldest = self.sb.probation.count_one(memcg, node).saturating_sub(probation);
        over -= self.core.end_probation(self.sb, memcg, node, oldest, over, capacity);
        self.core.trim_protected(self.sb, memcg, node, over.min(self.excess(memcg, capacity)));
    }

    /// Returns the number of negatives of a memcg on this node beyond `capacity`.
    fn excess(&self, memcg: &Memcg, capacity: u64) -> u64 {
        let counts = [&self.sb.probation, &self.sb.protected].map(|list| list.count_one(memcg, self.dentry.node));
        counts.iter().sum::<u64>().saturating_sub(capacity)
    }

    /// Returns the memcg on whose lists the negative is.
    fn memcg(&self) -> Cow<'_, Memcg> {
        listed(&self.dentry.memcg)
    }

    fn kill(&self, victim: &Arc<Dentry>, even_if_referenced: bool) -> bool {
        if victim.sb == self.sb.id {
            return self.core.kill_negative(self.sb, victim, even_if_referenced);
        }
        // A chain holds names of all mounts.
        let sb = self.core.superblock(victim.sb);
        sb.is_some_and(|sb| self.core.kill_negative(&sb, victim, even_if_referenced))
    }
}

/// Returns the memcg on whose lists the dentries of `memcg` are: its nearest online ancestor, after
/// its end.
fn listed(memcg: &Memcg) -> Cow<'_, Memcg> {
    if memcg.is_online() {
        Cow::Borrowed(memcg)
    } else {
        Cow::Owned(memcg.nearest_online())
    }
}

impl fmt::Debug for NewNegative<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewNegative").finish_non_exhaustive()
    }
}
