//! The counters of a dentry cache.
//!
//! The counts of unused dentries and of negatives are exact while no call is in progress (D9): each
//! change of a dentry's flags adds the difference to a `CounterDelta`. A change must keep this;
//! tests compare the counts with `Mount::assert_valid`.
//!
//! Numbers such as D9 are those of docs/INVARIANTS.md.

use crate::flag;
use lowwater_base::striped_counters::StripedCounters;
use std::fmt;

/// The index of a counter.
#[derive(Clone, Copy)]
enum Counter {
    Dentries,
    Unused,
    Negatives,
    Trimmed,
    Promoted,
    GhostHits,
    Backend,
    Refused,
}

/// The counters of a cache.
pub(crate) struct Counters(StripedCounters<{ Counter::Refused as usize + 1 }>);

/// The numbers of `/proc/sys/fs/dentry-state`, and those of the policy for negatives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "dentry_stat")]
pub struct Statistics {
    /// Dentries that exist.
    pub nr_dentry: u64,
    /// Dentries on an LRU list or on the private list of a reclaimer: unused, or in use only since
    /// they were listed.
    pub nr_unused: u64,
    /// Negatives on an LRU list.
    pub nr_negative: u64,
    /// Negatives that the policy killed.
    pub trimmed: u64,
    /// Negatives that were promoted from probation.
    pub promoted: u64,
    /// New negatives with names in the ghost table: looked up again soon after they were trimmed.
    pub ghost_hits: u64,
    /// Lookups of single names in backends.
    pub backend_lookups: u64,
    /// Dentries that became uncharged, at their allocation or by a rename to a longer name, because
    /// their memcg had no room; the last put frees each.
    pub refused: u64,
}

impl fmt::Display for Statistics {
    /// Formats as `/proc/sys/fs/dentry-state`: an age limit of 45, no pages wanted, and 0 for the
    /// unused last field.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t45\t0\t{}\t0", self.nr_dentry, self.nr_unused, self.nr_negative)
    }
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self(StripedCounters::new())
    }

    /// Adds the changes of one dentry, or of many. `addr`, the address of a dentry, chooses the
    /// stripe; any number is correct.
    #[inline]
    pub(crate) fn add(&self, addr: usize, delta: CounterDelta) {
        let parts = [
            (Counter::Dentries, delta.dentries),
            (Counter::Unused, delta.unused),
            (Counter::Negatives, delta.negatives),
        ];
        for (counter, change) in parts {
            if change != 0 {
                self.count(addr, counter, change);
            }
        }
    }

    pub(crate) fn dentry_allocated(&self, addr: usize) {
        self.count(addr, Counter::Dentries, 1);
    }

    pub(crate) fn trimmed(&self, negatives: u64) {
        self.count(0, Counter::Trimmed, negatives as i64);
    }

    pub(crate) fn promoted(&self, addr: usize) {
        self.count(addr, Counter::Promoted, 1);
    }

    pub(crate) fn ghost_hit(&self, addr: usize) {
        self.count(addr, Counter::GhostHits, 1);
    }

    pub(crate) fn refused(&self, addr: usize) {
        self.count(addr, Counter::Refused, 1);
    }

    pub(crate) fn backend_lookup(&self, addr: usize) {
        self.count(addr, Counter::Backend, 1);
    }

    pub(crate) fn read(&self) -> Statistics {
        // A sum that is read during changes may be negative for a moment, as in the kernel.
        let sum = |counter: Counter| self.0.sum(counter as usize).max(0) as u64;
        Statistics {
            nr_dentry: sum(Counter::Dentries),
            nr_unused: sum(Counter::Unused),
            nr_negative: sum(Counter::Negatives),
            trimmed: sum(Counter::Trimmed),
            promoted: sum(Counter::Promoted),
            ghost_hits: sum(Counter::GhostHits),
            backend_lookups: sum(Counter::Backend),
            refused: sum(Counter::Refused),
        }
    }

    #[inline]
    fn count(&self, addr: usize, counter: Counter, change: i64) {
        // A dentry takes less than 256 bytes, so without the 8 lower bits neighbours mostly have
        // different stripes.
        self.0.add(addr >> 8, counter as usize, change);
    }
}

/// Changes of the counters by one dentry or many, added in one step by [`Counters::add`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CounterDelta {
    dentries: i64,
    unused: i64,
    negatives: i64,
}

impl CounterDelta {
    /// Records a change of the flags of one dentry.
    #[inline]
    pub(crate) fn flags_changed(&mut self, before: u32, after: u32) {
        self.unused += i64::from(is_unused(after)) - i64::from(is_unused(before));
        self.negatives += i64::from(is_cached_negative(after)) - i64::from(is_cached_negative(before));
    }

    pub(crate) fn dentry_freed(&mut self) {
        self.dentries -= 1;
    }
}

/// Returns whether [`Statistics::nr_unused`] counts a dentry with these flags.
fn is_unused(flags: u32) -> bool {
    flags & flag::LRU_LIST != 0
}

/// Returns whether [`Statistics::nr_negative`] counts a dentry with these flags.
fn is_cached_negative(flags: u32) -> bool {
    flags & (flag::LRU_LIST | flag::SHRINK_LIST | flag::TYPE) == flag::LRU_LIST
}
