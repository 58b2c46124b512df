//! Parsers of a control group's `memory.events` and `memory.stat`: lines of a name and a number.
//!
//! Memory that the kernel can drop by itself is no pressure, so `cgroup/read.rs` subtracts
//! [`Stat::droppable`] from the group's usage.
//!
//! A change must ensure that an unknown name is no error, as kernels add fields, and that a line
//! without a number is one.

use lowwater_lru_core::ByteSize;

use crate::text::{pairs, TextError};

/// Counts of how often a group (v2) met its limits, from `memory.events`, which includes the groups
/// below it, or from `memory.events.local`. A field that the kernel does not report is 0.
///
/// ```
/// use lowwater_pressure::cgroup::Events;
///
/// let events = Events::parse("low 0\nhigh 12\nmax 3\noom 0\noom_kill 0\n")?;
/// assert_eq!((events.high, events.max), (12, 3));
/// # Ok::<(), lowwater_pressure::TextError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Events {
    /// Times the group was reclaimed although it was below its `low`.
    pub low: u64,
    /// Times the group was throttled because it was above its `high`.
    pub high: u64,
    /// Times the group was about to exceed its `max`.
    pub max: u64,
    /// Times the group was at its `max` with nothing to reclaim.
    pub oom: u64,
    /// Processes of the group that an OOM killer has killed.
    pub oom_kill: u64,
}

impl Events {
    /// Parses the text of `memory.events`; unknown names are skipped.
    ///
    /// # Errors
    ///
    /// [`TextError`] for a line that is not a name and a number.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut events = Self::default();
        pairs(text, |key, n| match key {
            "low" => events.low = n,
            "high" => events.high = n,
            "max" => events.max = n,
            "oom" => events.oom = n,
            "oom_kill" => events.oom_kill = n,
            _ => {}
        })?;
        Ok(events)
    }
}

/// The memory of a group that the kernel can reclaim by itself, from `memory.stat` of either
/// version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// The page cache, shared memory included.
    pub file: ByteSize,
    /// Shared memory, which is in the page cache but has no file behind it.
    pub shmem: ByteSize,
    /// The kernel's own caches of dentries and inodes.
    pub slab_reclaimable: ByteSize,
    /// The active and the inactive LRU list of file pages, which have neither locked pages nor
    /// shared memory; `None` if one is not reported.
    file_lists: Option<ByteSize>,
}

impl Stat {
    /// Parses the text of `memory.stat`; unknown names are skipped. v1's `total_*` fields, which
    /// include descendants as v2 does, take precedence over its plain names.
    ///
    /// # Errors
    ///
    /// [`TextError`] for a line that is not a name and a number.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let (mut stat, mut total) = (Self::default(), [None; 2]);
        let (mut lists, mut total_lists) = ([None; 2], [None; 2]);
        pairs(text, |key, n| match key {
            "active_file" => lists[0] = Some(n),
            "inactive_file" => lists[1] = Some(n),
            "total_active_file" => total_lists[0] = Some(n),
            "total_inactive_file" => total_lists[1] = Some(n),
            "file" | "cache" => stat.file = ByteSize::new(n),
            "shmem" => stat.shmem = ByteSize::new(n),
            "slab_reclaimable" => stat.slab_reclaimable = ByteSize::new(n),
            "total_cache" => total[0] = Some(ByteSize::new(n)),
            "total_shmem" => total[1] = Some(ByteSize::new(n)),
            _ => {}
        })?;
        let sum = |[active, inactive]: [Option<u64>; 2]| Some(ByteSize::new(active?.saturating_add(inactive?)));
        Ok(Self {
            file: total[0].unwrap_or(stat.file),
            shmem: total[1].unwrap_or(stat.shmem),
            file_lists: sum(total_lists).or(sum(lists)),
            ..stat
        })
    }

    /// Returns the bytes that the kernel can drop, or write back and drop. Shared memory does not
    /// count: it can only be swapped out. Neither do locked pages (`mlock`) and the swap cache, if
    /// the kernel reports the sizes of the lists of file pages.
    pub fn droppable(&self) -> ByteSize {
        // Both bounds are necessary: the lists have anonymous pages that were freed lazily.
        let file = self.file.saturating_sub(self.shmem).min(self.file_lists.unwrap_or(ByteSize::MAX));
        file.saturating_add(self.slab_reclaimable)
    }
}
