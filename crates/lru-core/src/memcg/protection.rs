//! Effective protection: the guarantees of a group, limited by those of its ancestors.
//!
//! A guarantee (`min` or `low`) protects against siblings, and a parent can give its children no
//! more than it has itself: the effective value of a group is bounded by its parent's, up to the
//! group where reclaim starts. With `claim = min(usage, setting)`, and `E` the effective value:
//!
//! ```text
//!     E(child of the group where reclaim starts) = its setting
//!     E(other) = claim                                        if the siblings' claims fit into E(parent)
//!              = claim x E(parent) / sum of claims            otherwise: all are reduced in proportion
//!     and the unclaimed part of E(parent) goes to the children in proportion to their usage beyond their claims
//! ```
//!
//! The last line is cgroup v2's `memory_recursiveprot`: a guarantee of a group also protects
//! children that have none. It is always on here: without it, a child of a protected group would be
//! unprotected unless it sets a guarantee itself.
//!
//! # The sums
//!
//! A reclaim pass computes this for every group, so each parent stores the sum of its children's
//! claims. Each group adds the difference to its parent's sum whenever its usage or its setting
//! changes. A change of usage in a group without guarantees, as nearly all are, costs the fence
//! below and reads of zeros.
//!
//! # Orderings
//!
//! A change of usage may race with a change of the setting. Each side writes its own number first
//! and reads the other's afterwards:
//!
//! ```text
//!     charge                        set_low
//!       usage += n                    setting = x
//!       fence(SeqCst)                 fence(SeqCst)
//!       refresh: read the setting     refresh: read the usage
//! ```
//!
//! - If the charge's fence comes first, `set_low` reads the new usage.
//! - If the fence of `set_low` comes first, the charge reads the new setting.
//!
//! The charge needs the fence because it does nothing for a group without the guarantee. `set_low`
//! and going offline always refresh. Of two concurrent refreshes the later one sees everything that
//! the earlier one saw, by the swap of the claim. Checked by `tests/loom.rs`:
//! `a_claim_is_not_lost_between_charge_and_setting`, and its variant without the fence.
//!
//! A change must ensure that a parent's sum equals the claims of its online children whenever no
//! change is in progress, and that no effective value exceeds the parent's (children of the group
//! where reclaim starts excepted). `mutated!("name")` leaves one step out in a model check
//! (docs/ORDERINGS.md).

use super::group::Memcg;
use super::limits::{Guarantee, Limits};
use crate::mutated;
use crate::sync::atomic::{fence, Ordering};
use lowwater_base::ByteSize;

/// The part of a group's usage that is protected from a reclaim, from [`Memcg::protection`].
///
/// Reclaim skips a group that uses no more than `min`, and takes from a group that uses no more
/// than `low` only when nothing else can give enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "emin")]
#[doc(alias = "elow")]
pub struct Protection {
    /// Effective `min`, in bytes.
    pub min: ByteSize,
    /// Effective `low`, in bytes.
    pub low: ByteSize,
}

impl Guarantee {
    /// Returns the claim that the parent's sum should include: 0 for a group that is not online.
    fn claim_now(&self, memcg: &Memcg) -> u64 {
        if memcg.is_online() {
            self.setting().min(memcg.usage().get())
        } else {
            0
        }
    }

    /// Updates the parent's sum after a change of the usage, the setting or the state (online or
    /// not). `in_parent` is the same guarantee of the parent.
    fn refresh(&self, memcg: &Memcg, in_parent: &Self) {
        // Ends when usage, setting and state did not change during an iteration: then the claim in
        // the sum is right.
        loop {
            let claim = self.claim_now(memcg);
            // AcqRel: of two concurrent refreshes the later one synchronizes with the earlier one's
            // Release here. So its reads below see at least the usage and the setting that the
            // earlier one saw, and it cannot leave an older claim behind.
            let ordering = if mutated!("claim swap relaxed") { Ordering::Relaxed } else { Ordering::AcqRel };
            let before = self.claim.swap(claim, ordering);
            // Relaxed: a sum of differences, whose order does not matter; wrapping, since a
            // difference may be negative.
            in_parent.children.fetch_add(claim.wrapping_sub(before), Ordering::Relaxed);
            if self.claim_now(memcg) == claim || mutated!("refresh once") {
                return;
            }
        }
    }

    /// Returns the sum of the children's claims.
    pub(super) fn claims(&self) -> u64 {
        // Relaxed: a snapshot of changing numbers.
        let sum = self.children.load(Ordering::Relaxed);
        // The differences of one child may be added in another order than they were found, so that
        // the sum is below zero for a moment.
        if sum < 1 << 63 {
            sum
        } else {
            0
        }
    }

    /// Returns the part of `above`, the parent's effective value, that belongs to this group.
    fn effective(&self, memcg: &Memcg, in_parent: &Self, parent: &Memcg, above: u64) -> u64 {
        share(ShareInputs {
            above,
            parent_usage: parent.usage().get(),
            claims: in_parent.claims(),
            usage: memcg.usage().get(),
            claim: self.claim_now(memcg),
        })
    }
}

/// The numbers from which one group's share is computed, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShareInputs {
    /// The parent's effective value.
    pub(super) above: u64,
    /// The parent's usage, which includes that of its children.
    pub(super) parent_usage: u64,
    /// The sum of the claims of all children of the parent.
    pub(super) claims: u64,
    pub(super) usage: u64,
    /// The group's own claim.
    pub(super) claim: u64,
}

/// Computes the effective value of one child. See the formulae in the module's documentation.
///
/// The inputs may be from slightly different instants; in any case the result is at most `above`.
pub(super) fn share(inputs: ShareInputs) -> u64 {
    if inputs.claims > inputs.above {
        return part(inputs.above, inputs.claim.min(inputs.claims), inputs.claims);
    }
    let unclaimed = inputs.above - inputs.claims;
    let beyond = inputs.usage.saturating_sub(inputs.claim);
    let all_beyond = inputs.parent_usage.saturating_sub(inputs.claims);
    inputs.claim.saturating_add(part(unclaimed, beyond, all_beyond)).min(inputs.above)
}

/// Returns `whole` x `mine` / `all`, rounded down; an `all` of 0 counts as 1.
fn part(whole: u64, mine: u64, all: u64) -> u64 {
    let part = u128::from(whole) * u128::from(mine) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

impl Memcg {
    /// Returns the part of this group's usage that is protected from a reclaim that starts at
    /// `reclaim_root`: the settings on the path down, each limited to what its parent can give (see
    /// the formulae in the source). Zeros for a reclaim that starts at this group, or at a group
    /// that is not an ancestor.
    ///
    /// A snapshot; O(depth).
    #[doc(alias = "mem_cgroup_calculate_protection")]
    pub fn protection(&self, reclaim_root: &Memcg) -> Protection {
        if self == reclaim_root || !self.is_descendant_of(reclaim_root) {
            return Protection::default();
        }
        self.effective(reclaim_root)
    }

    // A recursion, bounded by the depth.
    fn effective(&self, reclaim_root: &Memcg) -> Protection {
        let Some(parent) = self.parent().filter(|_| self != reclaim_root) else { return Protection::default() };
        let (mine, in_parent) = (self.limits(), parent.limits());
        if parent == reclaim_root {
            return if self.is_online() {
                Protection { min: ByteSize::new(mine.min.setting()), low: ByteSize::new(mine.low.setting()) }
            } else {
                Protection::default()
            };
        }
        let above = parent.effective(reclaim_root);
        Protection {
            min: ByteSize::new(mine.min.effective(self, &in_parent.min, parent, above.min.get())),
            low: ByteSize::new(mine.low.effective(self, &in_parent.low, parent, above.low.get())),
        }
    }

    /// Sets the guarantee that `which` selects to `to`.
    pub(super) fn set_guarantee(&self, which: impl Fn(&Limits) -> &Guarantee, to: ByteSize) {
        // Relaxed: the fence below orders the store before the refresh's reads.
        which(self.limits()).setting.store(to.get(), Ordering::Relaxed);
        fence_before_refresh();
        if let Some(parent) = self.parent() {
            which(self.limits()).refresh(self, which(parent.limits()));
        }
    }

    /// Removes the claims of this group, which is dying now, from its parent's sums.
    pub(super) fn forget_protection(&self) {
        if let Some(parent) = self.parent() {
            self.limits().min.refresh(self, &parent.limits().min);
            self.limits().low.refresh(self, &parent.limits().low);
        }
    }

    /// Updates the claims of this group and its ancestors after a change of usage.
    pub(super) fn refresh_chain(&self) {
        fence_before_refresh();
        for (memcg, parent) in self.ancestry().filter_map(|memcg| Some((memcg, memcg.parent()?))) {
            let (mine, in_parent) = (memcg.limits(), parent.limits());
            for (mine, in_parent) in [(&mine.min, &in_parent.min), (&mine.low, &in_parent.low)] {
                if mine.is_used() {
                    mine.refresh(memcg, in_parent);
                }
            }
        }
    }
}

/// Orders a change before the reads of the refresh that follows.
fn fence_before_refresh() {
    if !mutated!("refresh without fence") {
        // SeqCst: pairs with the same fence on the thread that changes the other number (see
        // "Orderings").
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
impl Memcg {
    /// Checks that the sums of claims are those of the online children, when no change is in
    /// progress.
    pub(super) fn assert_claims_valid(&self) {
        fn guarantees(memcg: &Memcg) -> [&Guarantee; 2] {
            [&memcg.limits().min, &memcg.limits().low]
        }
        for which in 0..2 {
            let claim = |child: &Memcg| guarantees(child)[which].setting().min(child.usage().get());
            let claims: u64 = self.children().iter().map(claim).sum();
            // Relaxed: no other thread changes it during the check.
            let counted = guarantees(self)[which].children.load(Ordering::Relaxed);
            assert_eq!(counted, claims, "{self:?} counts other claims than its children have");
        }
    }
}
