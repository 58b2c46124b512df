//! A new negative dentry, and the ways in which a policy may trim negatives: along a hash chain, in
//! a directory, in a memcg.

use crate::children::Children;
use crate::dcache_core::DcacheCore;
use crate::dentry::Dentry;
use crate::flag;
use crate::superblock::SuperBlock;
use lowwater_base::sync::atomic::Ordering;
use lowwater_base::sync::Arc;
use lowwater_store::hash_chains::Reader;
use std::fmt;

/// A negative that was just added to its list, or a removed name that may become one, with the
/// operations of a policy on it.
pub struct NewNegative<'a> {
    pub(crate) core: &'a DcacheCore,
    pub(crate) sb: &'a SuperBlock,
    pub(crate) dentry: &'a Arc<Dentry>,
}

/// Dentries that a trim scans for each one to be killed.
const SCANS_PER_VICTIM: u64 = 8;
/// One in so many negatives that a directory loses enters the ghost table.
const GHOST_SAMPLE: u32 = 16;
/// A group is trimmed when it is this much over its capacity, or as much as may be on probation if
/// that is less, so that the walk pays.
const TRIM_BATCH: u64 = 32;
/// Negatives that one lookup pays with at most: what is over beyond that is left to those that
/// follow, so that none pays for all of a room that was lost at once. More than one, so that it
/// comes to an end: each adds one itself.
pub(super) const TRIM_MAX: u64 = 32;

/// How much that is.
pub(super) fn trim_batch(probation: u64) -> u64 {
    probation.clamp(1, TRIM_BATCH)
}

impl NewNegative<'_> {
    /// Follows its hash chain from the younger to the older, as long as there is one unused
    /// negative behind the other that nobody asked for again; `keep` of them stay, up to two more
    /// are killed: rows may have grown together when what stood between them went, and shrink again
    /// with each new name. O(keep + length of the chain up to them).
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
            // D20: a handle of our own, before the reader leaves.
            [behind.nth(keep).map(|found| found.to_arc()), behind.next().map(|found| found.to_arc())]
        };
        for victim in victims.iter().flatten() {
            self.kill(victim, false);
        }
    }

    /// If its directory has more than `limit` negatives, kills one of its group's: the clock's next
    /// that nobody asked for again. O(1).
    pub fn trim_directory(&self, limit: usize) {
        if self.trim_directory_of(|_| (0, limit), 1, |_| ()) == Some(0) {
            // All that were looked at are somebody else's, or were asked for again: then the new
            // one goes.
            self.kill(self.dentry, true);
        }
    }

    /// Kills up to `over` of a directory's, as the clock's hand meets them. `share` says which do
    /// not count, and how many others may stay. How many were killed; `None` if there are no more
    /// than may stay.
    pub(super) fn trim_directory_of(
        &self,
        share: impl Fn(&Children<Arc<Dentry>>) -> (usize, usize),
        over: u64,
        on_kill: impl Fn(&Dentry),
    ) -> Option<u64> {
        let parent = self.dentry.lock().parent.clone();
        let dir = parent.as_ref().and_then(|parent| parent.dir())?;
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
            let probation = self.sb.has_negative_lists && !victim.has(flag::PROTECTED);
            if victim.memcg != self.dentry.memcg || self.sb.has_negative_lists && !probation {
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

    /// How many its group has on probation on its node.
    pub fn on_probation(&self) -> u64 {
        self.sb.probation.count_one(&self.dentry.memcg, self.dentry.node)
    }

    /// How many positives its group has on its node that nobody uses.
    pub fn positives(&self) -> u64 {
        self.sb.dentries.count_one(&self.dentry.memcg, self.dentry.node)
    }

    /// Removes the name from the ghost table of a memcg with `capacity` negatives. If it was there,
    /// the negative counts as used.
    #[doc(alias = "ghost_hit")]
    pub fn take_ghost(&self, capacity: u64) {
        if self.core.ghosts.take(self.dentry.hash(), &self.dentry.memcg, capacity) {
            self.dentry.mark_referenced();
            self.core.counters.ghost_hit(self.dentry.addr());
        }
    }

    /// Trims the negatives of the memcg on this node towards `probation + protected`, by 32 at
    /// most: the lookups that follow trim the rest. Nothing is trimmed while the excess is small.
    /// First those on probation in the directory of the new negative, if that has more than
    /// `directory` there, and more than it has protected ones; then the oldest of the memcg beyond
    /// `probation`, of which those that were looked up again are promoted; then the protected ones.
    pub fn trim_group(&self, probation: u64, protected: u64, directory: u64) {
        let (memcg, node, capacity) = (&self.dentry.memcg, self.dentry.node, probation.saturating_add(protected));
        let mut over = (self.on_probation() + self.sb.protected.count_one(memcg, node)).saturating_sub(capacity);
        if over < trim_batch(probation) {
            return;
        }
        over = over.min(TRIM_MAX);
        let share = |children: &Children<Arc<Dentry>>| (children.protected, children.protected.max(directory as usize));
        // A few enter the ghost table, so that a directory whose names come round gets its share in
        // time; not all, or a flood in one would make its group forget the others'.
        let insert_ghost = |dentry: &Dentry| {
            // Relaxed: it is dead, and any number does.
            if dentry.child_index.load(Ordering::Relaxed).is_multiple_of(GHOST_SAMPLE) {
                self.core.ghosts.insert(dentry.hash(), memcg, capacity);
            }
        };
        over -= self.trim_directory_of(share, over, insert_ghost).unwrap_or(0);
        // A promoted negative takes as much room as before, so a second turn trims what the first
        // did not.
        for _ in 0..2 {
            let oldest = over.min(self.on_probation().saturating_sub(probation));
            over -= self.core.end_probation(self.sb, memcg, node, oldest, capacity);
        }
        self.core.trim_protected(self.sb, memcg, node, over);
    }

    fn kill(&self, victim: &Arc<Dentry>, even_if_referenced: bool) -> bool {
        if victim.sb == self.sb.id {
            return self.core.kill_negative(self.sb, victim, even_if_referenced);
        }
        // A chain goes through the names of all mounts.
        let sb = self.core.superblock(victim.sb);
        sb.is_some_and(|sb| self.core.kill_negative(&sb, victim, even_if_referenced))
    }
}

impl fmt::Debug for NewNegative<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewNegative").finish_non_exhaustive()
    }
}
