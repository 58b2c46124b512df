//! How many negatives stay: a policy, asked once for each negative, when its first user lets go.
//!
//! | policy | bound | what a deceiver who asks for each name twice gets |
//! |---|---|---|
//! | [`Unbounded`] | memory | memory |
//! | [`ThreeInARow`] | 3 a bucket, and those asked for again | memory |
//! | [`PerDirectory`] | n a directory | n a directory |
//! | [`Probation`], the default | a share of what the group holds in positives, or a floor | the share of its own group |

mod per_directory;
mod probation;
mod three_in_a_row;
mod unbounded;

pub use per_directory::PerDirectory;
pub use probation::Probation;
pub use three_in_a_row::ThreeInARow;
pub use unbounded::Unbounded;

use crate::dcache::Core;
use crate::dentry::{flag, Dentry};
use crate::siblings::Children;
use crate::superblock::SuperBlock;
use lowwater_lru_core::chains::Reader;
use lowwater_lru_core::sync::Arc;
use std::fmt;

/// Which negatives stay. Called without locks.
pub trait NegativePolicy: Send + Sync + fmt::Debug {
    /// A name for people.
    fn name(&self) -> &'static str;

    /// Do negatives have lists of their own, from which they are taken before any positive?
    fn apart(&self) -> bool {
        false
    }

    /// A new negative is on its list. May kill it, and others.
    fn settled(&self, negative: &Settled<'_>);

    /// The most negatives that one group on one node keeps at rest, in a cache of `buckets` that holds `positives` and in which
    /// negatives are spread over `directories`; `None` for no bound. Threads add one each while they work.
    fn bound(&self, situation: Situation) -> Option<u64>;
}

/// What a bound depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Buckets of the cache.
    pub buckets: u64,
    /// Positive dentries of the group that nobody uses.
    pub positives: u64,
    /// Directories with negatives.
    pub directories: u64,
}

/// A negative that was just put on its list, and what a policy may do about it.
pub struct Settled<'a> {
    pub(crate) core: &'a Core,
    pub(crate) sb: &'a SuperBlock,
    pub(crate) dentry: &'a Arc<Dentry>,
}

/// Dentries that a trim looks at before it takes one that was asked for again.
const LOOKS: usize = 8;
/// A list is trimmed when it is this much over its limit, or a quarter if that is less, so that the walk pays.
const TRIM_BATCH: u64 = 32;

/// How much that is.
fn trim_batch(limit: u64) -> u64 {
    (limit / 4).clamp(1, TRIM_BATCH)
}

impl Settled<'_> {
    /// Follows its hash chain from the younger to the older, as long as there is one unused negative behind the other that nobody
    /// asked for again; `keep` of them stay, the next is killed. O(keep + length of the chain up to it).
    pub fn trim_chain(&self, keep: usize) {
        let victim = {
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
            behind.nth(keep).map(|found| found.to_arc())
        };
        if let Some(victim) = victim {
            self.kill(&victim, false);
        }
    }

    /// If its directory has more than `limit` negatives, kills one of its group's: the clock's next that nobody asked for again. O(1).
    pub fn trim_directory(&self, limit: usize) {
        self.trim_directory_of(|_| 0, limit);
    }

    /// As [`trim_directory`](Self::trim_directory), of the directory's negatives that are on probation; those that were asked for
    /// again come off it.
    pub fn trim_directory_probation(&self, limit: usize) {
        self.trim_directory_of(|children| children.kept, limit);
    }

    fn trim_directory_of(&self, spared: impl Fn(&Children) -> usize, limit: usize) {
        let parent = self.dentry.lock().parent.clone();
        let Some(dir) = parent.as_ref().and_then(|parent| parent.dir()) else { return };
        for _ in 0..LOOKS {
            let victim = {
                let mut children = dir.children.lock();
                if children.negatives() - spared(&children) <= limit {
                    return;
                }
                let Some(victim) = children.next_negative() else { return };
                Arc::clone(victim)
            };
            let probation = self.sb.apart && !victim.has(flag::KEPT);
            if victim.memcg != self.dentry.memcg || self.sb.apart && !probation {
                continue;
            }
            if self.kill(&victim, false) {
                return;
            }
            if probation && victim.has(flag::REFERENCED) {
                self.core.promote_early(self.sb, &victim);
            } else if !Arc::ptr_eq(&victim, self.dentry) {
                self.core.forgive(&victim);
            }
        }
        // All that were looked at are somebody else's, or were asked for again: then the new one goes.
        self.kill(self.dentry, true);
    }

    /// How many positives its group has on its node that nobody uses.
    pub fn positives(&self) -> u64 {
        self.sb.dentries.count_one(&self.dentry.memcg, self.dentry.node)
    }

    /// Takes the oldest off probation when there are more than `probation`: those that were asked for again are kept, the
    /// others killed; then the oldest of the kept, when there are more than `kept`.
    pub fn trim_group(&self, probation: u64, kept: u64) {
        let (memcg, node) = (&self.dentry.memcg, self.dentry.node);
        let over = self.sb.probation.count_one(memcg, node).saturating_sub(probation);
        if over >= trim_batch(probation) {
            self.core.end_probation(self.sb, memcg, node, over);
        }
        let over = self.sb.kept.count_one(memcg, node).saturating_sub(kept);
        if over > 0 {
            self.core.trim_kept(self.sb, memcg, node, over);
        }
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

impl fmt::Debug for Settled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settled").finish_non_exhaustive()
    }
}
