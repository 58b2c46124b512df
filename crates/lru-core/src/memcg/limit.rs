//! The four limits of a group, and what its guarantees are worth under those of its ancestors.
//!
//! | limit | default | means |
//! |---|---|---|
//! | `min` | 0 | reclaim does not touch a group that uses no more than this |
//! | `low` | 0 | reclaim touches it only when nothing else gives enough |
//! | `high` | max | charges succeed above it, and say so: reclaim should begin |
//! | `max` | max | charges that would go above it fail |
//!
//! # Effective protection
//!
//! A guarantee holds against the siblings, and a parent can give its children no more than it has itself. So what counts is
//! not the setting but what arrives from above. With `claim = min(usage, setting)`, and `E` the effective value:
//!
//! ```text
//!     E(child of the group where reclaim starts) = its setting
//!     E(other) = claim                                        if the siblings' claims fit into E(parent)
//!              = claim x E(parent) / sum of claims            if they do not: all give way in proportion
//!     and what of E(parent) nobody claims goes to the children in proportion to what they use beyond their claims
//! ```
//!
//! That last line is cgroup v2's `memory_recursiveprot`: a guarantee of a group also serves children that have none.
//! It is not an option here, since to be left alone below a protected group one would have to ask for less than nothing.
//!
//! # The sums
//!
//! A pass asks this for every group, so the sum of the siblings' claims is kept in the parent. Each group tells its parent the
//! difference whenever its usage or its setting changed; groups without guarantees, nearly all, only find two zeros.
//!
//! # Orderings
//!
//! A change of usage and a change of the setting may meet. Each side changes its own first and reads the other's after:
//!
//! ```text
//!     charge                        set_low
//!       usage += n                    setting = x
//!       fence(SeqCst)                 fence(SeqCst)
//!       refresh: read the setting     refresh: read the usage
//! ```
//!
//! - If the charge's fence comes first, `set_low` reads the new usage.
//! - If the other comes first, the charge reads the new setting.
//!
//! The charge needs it because it does nothing for a group without the guarantee. `set_low` and going offline always
//! refresh; of two refreshes at once the later one sees all that the earlier saw, by the swap of the claim.
//! Held by `tests/loom.rs`: `a_claim_is_not_lost_between_charge_and_setting`, and its twin without the fence.

use crate::memcg::Memcg;
use crate::mutated;
use crate::sync::atomic::{fence, AtomicU64, Ordering};
use crate::unit::Bytes;

/// What of a group's use is protected from a reclaim, from [`Memcg::protection`].
///
/// Reclaim leaves a group alone that uses no more than `min`, and touches one that uses no more than `low` only when
/// nothing else can give enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "emin")]
#[doc(alias = "elow")]
pub struct Protection {
    /// Effective `min`, in bytes.
    pub min: Bytes,
    /// Effective `low`, in bytes.
    pub low: Bytes,
}

/// The settings of one group.
pub(crate) struct Limits {
    pub(super) min: Guarantee,
    pub(super) low: Guarantee,
    pub(super) high: AtomicU64,
    pub(super) max: AtomicU64,
}

/// `min` or `low` of one group.
pub(crate) struct Guarantee {
    setting: AtomicU64,
    /// What of it the parent counts: `min(usage, setting)` when nothing is in progress, 0 for a dying group.
    claim: AtomicU64,
    /// The sum of the children's claims.
    children: AtomicU64,
}

impl Limits {
    pub(super) fn new() -> Self {
        Self {
            min: Guarantee::new(),
            low: Guarantee::new(),
            high: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(u64::MAX),
        }
    }
}

impl Guarantee {
    fn new() -> Self {
        Self { setting: AtomicU64::new(0), claim: AtomicU64::new(0), children: AtomicU64::new(0) }
    }

    fn setting(&self) -> u64 {
        // Relaxed: one number; where it must meet the usage, the caller fences.
        self.setting.load(Ordering::Relaxed)
    }

    /// What the parent should count.
    fn claim_now(&self, memcg: &Memcg) -> u64 {
        if memcg.is_online() {
            self.setting().min(memcg.usage().get())
        } else {
            0
        }
    }

    /// Has the group this guarantee, or had it a moment ago?
    fn is_used(&self) -> bool {
        // Relaxed: who makes this true while we read false, refreshes after our change of usage (see "Orderings").
        self.setting() != 0 || self.claim.load(Ordering::Relaxed) != 0
    }

    /// Tells the parent what this group claims now. The caller has changed the usage, the setting or the state.
    fn refresh(&self, memcg: &Memcg, in_parent: &Self) {
        // Ends when nobody changed usage, setting or state meanwhile: then what was told last is right.
        loop {
            let claim = self.claim_now(memcg);
            // AcqRel: of two refreshes at once the later meets the earlier's Release here, and so sees below at least the usage
            // and setting that the earlier saw: it cannot leave an older claim behind.
            let ordering = if mutated!("claim swap relaxed") { Ordering::Relaxed } else { Ordering::AcqRel };
            let told = self.claim.swap(claim, ordering);
            // Relaxed: a sum of differences, whose order does not matter; wrapping, since a difference may be negative.
            in_parent.children.fetch_add(claim.wrapping_sub(told), Ordering::Relaxed);
            if self.claim_now(memcg) == claim || mutated!("refresh once") {
                return;
            }
        }
    }

    /// The part of `above`, the parent's effective value, that belongs to this group.
    fn effective(&self, memcg: &Memcg, in_parent: &Self, parent: &Memcg, above: u64) -> u64 {
        share(Family {
            above,
            parent_usage: parent.usage().get(),
            // Relaxed: a snapshot of numbers that move.
            claims: in_parent.children.load(Ordering::Relaxed),
            usage: memcg.usage().get(),
            claim: self.claim_now(memcg),
        })
    }
}

/// What one group's share depends on; bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// The parent's effective value.
    pub(super) above: u64,
    pub(super) parent_usage: u64,
    /// The sum of the claims of all children of the parent.
    pub(super) claims: u64,
    pub(super) usage: u64,
    /// The group's own claim.
    pub(super) claim: u64,
}

/// The effective value of one child. See the formulae at the top.
///
/// The numbers may be of slightly different instants; whatever they are, the result is at most `above`.
pub(super) fn share(f: Family) -> u64 {
    if f.claims > f.above {
        return part(f.above, f.claim.min(f.claims), f.claims);
    }
    let unclaimed = f.above - f.claims;
    let beyond = f.usage.saturating_sub(f.claim);
    let all_beyond = f.parent_usage.saturating_sub(f.claims);
    f.claim.saturating_add(part(unclaimed, beyond, all_beyond)).min(f.above)
}

/// `whole` x `mine` / `all`, rounded down.
fn part(whole: u64, mine: u64, all: u64) -> u64 {
    let part = u128::from(whole) * u128::from(mine) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// # Limits
///
/// In bytes, as cgroup v2's `memory.min`, `.low`, `.high` and `.max`. Each may be set at any time, also to something that makes
/// no sense together with the others: the stricter one wins.
impl Memcg {
    /// Below this use, reclaim does not touch the group. 0 unless set.
    #[doc(alias = "memory.min")]
    pub fn min(&self) -> Bytes {
        Bytes::new(self.limits().min.setting())
    }

    /// Below this use, reclaim touches the group only when nothing else gives enough. 0 unless set.
    #[doc(alias = "memory.low")]
    pub fn low(&self) -> Bytes {
        Bytes::new(self.limits().low.setting())
    }

    /// Above this use, charges ask for reclaim. [`Bytes::MAX`] unless set.
    #[doc(alias = "memory.high")]
    pub fn high(&self) -> Bytes {
        // Relaxed: one number, that nothing else depends on.
        Bytes::new(self.limits().high.load(Ordering::Relaxed))
    }

    /// Use never grows above this. [`Bytes::MAX`] unless set.
    #[doc(alias = "memory.max")]
    pub fn max(&self) -> Bytes {
        // Relaxed: one number, that nothing else depends on.
        Bytes::new(self.limits().max.load(Ordering::Relaxed))
    }

    /// Sets [`min`](Self::min). A dying group protects nothing, whatever is set.
    pub fn set_min(&self, min: Bytes) {
        self.set_guarantee(|limits| &limits.min, min);
    }

    /// Sets [`low`](Self::low). A dying group protects nothing, whatever is set.
    pub fn set_low(&self, low: Bytes) {
        self.set_guarantee(|limits| &limits.low, low);
    }

    /// Sets [`high`](Self::high).
    pub fn set_high(&self, high: Bytes) {
        // Relaxed: as in `high`.
        self.limits().high.store(high.get(), Ordering::Relaxed);
    }

    /// Sets [`max`](Self::max). It may be below what is in use: then charges fail until enough is uncharged. A charge that is
    /// being decided on another thread right now may still go by the old value.
    ///
    /// A lower one drains what is in stock of the group and those below it, so that nothing is charged from there either: O(slots).
    pub fn set_max(&self, max: Bytes) {
        // Relaxed: as in `max`; who fills a slot asks for it under that slot's lock, which the drain takes after this.
        let before = self.limits().max.swap(max.get(), Ordering::Relaxed);
        if max.get() < before {
            self.tree().stock().drain(|memcg| memcg.is_descendant_of(self));
        }
    }

    /// What of this group's use is protected from a reclaim that starts at `reclaim_root`: the settings on the way down, cut
    /// to what their parents can give (see the formulae in the source). A group is not protected from a reclaim that starts
    /// at itself, nor does this say anything about one that starts outside its ancestors: both give zeros.
    ///
    /// A snapshot; O(depth).
    #[doc(alias = "mem_cgroup_calculate_protection")]
    pub fn protection(&self, reclaim_root: &Memcg) -> Protection {
        if self == reclaim_root || !self.is_descendant_of(reclaim_root) {
            return Protection::default();
        }
        self.effective(reclaim_root)
    }

    /// Recursion bounded by the depth.
    fn effective(&self, reclaim_root: &Memcg) -> Protection {
        let Some(parent) = self.parent().filter(|_| self != reclaim_root) else { return Protection::default() };
        let (mine, in_parent) = (self.limits(), parent.limits());
        if parent == reclaim_root {
            return if self.is_online() {
                Protection { min: self.min(), low: self.low() }
            } else {
                Protection::default()
            };
        }
        let above = parent.effective(reclaim_root);
        Protection {
            min: Bytes::new(mine.min.effective(self, &in_parent.min, parent, above.min.get())),
            low: Bytes::new(mine.low.effective(self, &in_parent.low, parent, above.low.get())),
        }
    }

    fn set_guarantee(&self, which: impl Fn(&Limits) -> &Guarantee, to: Bytes) {
        // Relaxed: the fence below orders it before the refresh's reads.
        which(self.limits()).setting.store(to.get(), Ordering::Relaxed);
        fence_before_refresh();
        if let Some(parent) = self.parent() {
            which(self.limits()).refresh(self, which(parent.limits()));
        }
    }

    /// Takes the claims of this group, which is dying now, out of its parent's sums.
    pub(super) fn forget_protection(&self) {
        if let Some(parent) = self.parent() {
            self.limits().min.refresh(self, &parent.limits().min);
            self.limits().low.refresh(self, &parent.limits().low);
        }
    }

    /// Brings the claims up the chain up to date after a change of usage.
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

/// Between a change and the reads of the refresh that follows it.
fn fence_before_refresh() {
    if !mutated!("refresh without fence") {
        // SeqCst: meets the same fence of whoever changes the other number (see "Orderings").
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
impl Memcg {
    /// Checks that the sums of claims are those of the online children, when nothing is in progress.
    pub(super) fn assert_claims_valid(&self) {
        fn guarantees(memcg: &Memcg) -> [&Guarantee; 2] {
            [&memcg.limits().min, &memcg.limits().low]
        }
        for which in 0..2 {
            let claim = |child: &Memcg| guarantees(child)[which].setting().min(child.usage().get());
            let claims: u64 = self.children().iter().map(claim).sum();
            // Relaxed: nothing is in progress.
            let counted = guarantees(self)[which].children.load(Ordering::Relaxed);
            assert_eq!(counted, claims, "{self:?} counts other claims than its children have");
        }
    }
}
