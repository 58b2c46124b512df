//! The control group as a limit, and how near it is.
//!
//! What is charged to a runtime is not all that the group is charged for: code, stacks, the allocator's own rounding, the kernel's
//! pages for sockets. So the budget ends a margin below the limit, and the group's own usage is looked at as well: it may come
//! half way into the margin before that counts as pressure. Then it is known how much is too much, and the caches have to give that,
//! and another quarter of the margin so that it is not the same again at once.
//!
//! ```text
//!     0 -------------------------- budget ------ medium --- critical --- limit
//!                                    |<----------- margin ------------->|
//!                                                |<------- 1/2 ------->|
//!                                                           |<-- 1/4 ->|
//! ```
//!
//! Each limit on the path is looked at with the usage of the group that has it: a neighbour may fill it.

use alloc::vec::Vec;
use core::time::Duration;
use std::path::{Path, PathBuf};

use lowwater_lru_core::ByteSize;

use crate::cgroup::{Cgroup, CgroupError, Limit};
use crate::Level;

/// Of a limit, the part that is the margin, and what is added for what does not grow with it.
const MARGIN_PARTS: u64 = 8;
const MARGIN_FIXED: ByteSize = ByteSize::mib(16);
/// At most this part of a limit is margin, so that a small one leaves something.
const MARGIN_PARTS_MIN: u64 = 2;

/// Between two looks at the group's usage: two small files, some 30 us.
const USAGE_EVERY: Duration = Duration::from_millis(100);
/// The same, while it is too near the limit.
const USAGE_EVERY_TIGHT: Duration = Duration::from_millis(10);
/// Between two looks at the limits: they change when an operator changes them.
const LIMIT_EVERY: Duration = Duration::from_secs(2);

/// That the control group of this process is a limit.
///
/// ```
/// use lowwater_lru_core::ByteSize;
/// use lowwater_pressure::CgroupLimit;
///
/// // An eighth and 16 MiB are left for what is not charged.
/// assert_eq!(CgroupLimit::own().budget(ByteSize::mib(96)), ByteSize::mib(68));
/// assert_eq!(CgroupLimit::own().margin(ByteSize::mib(8)).budget(ByteSize::mib(96)), ByteSize::mib(88));
/// ```
#[derive(Clone, Debug, Default)]
pub struct CgroupLimit {
    margin: Option<ByteSize>,
    cgroup: Option<Cgroup>,
}

impl CgroupLimit {
    /// The group that this process is in when the monitor starts. Without one that can be seen there is no limit.
    pub fn own() -> Self {
        Self::default()
    }

    /// Another group.
    pub fn of(cgroup: Cgroup) -> Self {
        Self { margin: None, cgroup: Some(cgroup) }
    }

    /// How far below the limit the budget ends; by default an eighth of the limit and 16 MiB, but no more than half of it.
    pub fn margin(mut self, margin: ByteSize) -> Self {
        self.margin = Some(margin);
        self
    }

    /// The part of a limit that is left as budget.
    pub fn budget(&self, limit: ByteSize) -> ByteSize {
        if limit == ByteSize::MAX {
            return limit;
        }
        limit.saturating_sub(self.margin_of(limit))
    }

    fn margin_of(&self, limit: ByteSize) -> ByteSize {
        let by_default = ByteSize::new(limit.get() / MARGIN_PARTS).saturating_add(MARGIN_FIXED);
        self.margin.unwrap_or(by_default.min(ByteSize::new(limit.get() / MARGIN_PARTS_MIN)))
    }

    /// How much less should be used than `usage` of `limit`, if that is too much.
    fn excess(&self, usage: ByteSize, limit: ByteSize) -> ByteSize {
        let margin = self.margin_of(limit).get();
        usage.saturating_sub(limit.saturating_sub(ByteSize::new(margin - margin / 4)))
    }

    /// How bad it is to use `usage` of `limit`.
    fn level(&self, usage: ByteSize, limit: ByteSize) -> Level {
        let margin = self.margin_of(limit).get();
        let left = limit.saturating_sub(usage).get();
        if limit == ByteSize::MAX || left > margin / 2 {
            Level::Calm
        } else if left > margin / 4 {
            Level::Medium
        } else {
            Level::Critical
        }
    }
}

/// A group that is being looked at.
#[derive(Debug)]
pub(super) struct WatchedCgroup {
    config: CgroupLimit,
    cgroup: Cgroup,
    limits: Vec<Limit>,
    /// At the last look there was less than these.
    doubted: bool,
    limit_due: u64,
    usage_due: u64,
}

/// One reading of a group.
#[derive(Debug)]
pub(super) struct CgroupReading {
    /// How bad it is.
    pub(super) level: Level,
    /// Usage below the limit that is nearest to be met, less the pages that the kernel can drop.
    pub(super) usage: ByteSize,
    /// How much has to go, if the level is not calm.
    pub(super) excess: ByteSize,
}

impl WatchedCgroup {
    /// The group, if there is one.
    pub(super) fn find(config: CgroupLimit) -> Result<Option<Self>, CgroupError> {
        let cgroup = match &config.cgroup {
            Some(cgroup) => cgroup.clone(),
            None => match Cgroup::own()? {
                Some(cgroup) => cgroup,
                None => return Ok(None),
            },
        };
        let limits = cgroup.limits()?;
        let watched = Self { config, cgroup, limits, doubted: false, limit_due: 0, usage_due: 0 };
        // That all of it can be read is seen now, not by the thread.
        watched.usages()?;
        Ok(Some(watched))
    }

    /// Where the group is.
    pub(super) fn directory(&self) -> &Path {
        self.cgroup.directory()
    }

    /// The effective limit when it was last looked at.
    pub(super) fn limit(&self) -> ByteSize {
        self.limits.iter().map(|limit| limit.bytes).min().unwrap_or(ByteSize::MAX)
    }

    /// The budget that the limit leaves.
    pub(super) fn budget(&self) -> ByteSize {
        self.config.budget(self.limit())
    }

    /// The files that tell when a limit is met, of each group that has one.
    pub(super) fn events_files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.limits.iter().filter_map(Limit::directory).map(|directory| directory.join("memory.events"))
    }

    /// When to look again.
    pub(super) fn due(&self) -> u64 {
        self.limit_due.min(self.usage_due)
    }

    /// Looks.
    pub(super) fn look(&mut self, now_ns: u64) -> Result<CgroupReading, CgroupError> {
        if now_ns >= self.limit_due {
            let every = self.look_at_limits()?;
            self.limit_due = now_ns.saturating_add(every.as_nanos() as u64);
        }
        let mut seen = CgroupReading { level: Level::Calm, usage: ByteSize::ZERO, excess: ByteSize::ZERO };
        let mut left_least = ByteSize::MAX;
        for (limit, usage) in self.usages()? {
            seen.level = seen.level.max(self.config.level(usage, limit));
            seen.excess = seen.excess.max(self.config.excess(usage, limit));
            let left = limit.saturating_sub(usage);
            if left < left_least {
                (left_least, seen.usage) = (left, usage);
            }
        }
        let every = match seen.level {
            // Without a limit nobody's usage matters.
            _ if self.limits.is_empty() => LIMIT_EVERY,
            Level::Calm => USAGE_EVERY,
            _ => USAGE_EVERY_TIGHT,
        };
        self.usage_due = now_ns.saturating_add(every.as_nanos() as u64);
        Ok(seen)
    }

    /// Reads the limits. Says when to do so again.
    ///
    /// Without the directory there is no limit to be read, which does not mean that there is none: it was unmounted, or the group
    /// is gone and we are in another. A group that is removed loses its files before its directory. So that a limit is gone is
    /// believed when it is so twice, with its directory there.
    fn look_at_limits(&mut self) -> Result<Duration, CgroupError> {
        let limits = self.cgroup.limits()?;
        let is_gone = |was: &&Limit| limits.iter().all(|limit| limit.directory() != was.directory());
        let mut gone = self.limits.iter().filter(is_gone).peekable();
        let doubted = gone.peek().is_some() && !self.doubted;
        gone.try_for_each(Limit::group_must_be_there)?;
        self.doubted = doubted;
        if doubted {
            return Ok(USAGE_EVERY);
        }
        self.limits = limits;
        Ok(LIMIT_EVERY)
    }

    /// Each limit, and what is used of it.
    fn usages(&self) -> Result<Vec<(ByteSize, ByteSize)>, CgroupError> {
        let usage = |limit: &Limit| Ok((limit.bytes, self.cgroup.usage_under(limit)?.unwrap_or(ByteSize::ZERO)));
        self.limits.iter().map(usage).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Version;
    use alloc::string::ToString;
    use proptest::prelude::*;
    use std::fs;

    /// Two groups, one in the other, with a limit each.
    struct Groups {
        top: PathBuf,
        inner: PathBuf,
    }

    impl Groups {
        fn new(name: &str) -> Self {
            let top = std::env::temp_dir().join(std::format!("lowwater-limit-{}-{name}", std::process::id()));
            let inner = top.join("inner");
            let _ = fs::remove_dir_all(&top);
            fs::create_dir_all(&inner).unwrap();
            fs::write(top.join("memory.max"), "5000").unwrap();
            fs::write(inner.join("memory.max"), "1000").unwrap();
            Self { top, inner }
        }

        fn watched(&self) -> WatchedCgroup {
            let cgroup = Cgroup::at(Version::V2, &self.top, &self.inner);
            WatchedCgroup::find(CgroupLimit::of(cgroup).margin(ByteSize::new(100))).unwrap().unwrap()
        }
    }

    impl Drop for Groups {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.top);
        }
    }

    /// The budget after a look as soon as one is due.
    fn looked(watched: &mut WatchedCgroup) -> Result<ByteSize, CgroupError> {
        let due = watched.limit_due;
        watched.look(due).map(|_| watched.budget())
    }

    #[test]
    fn a_group_that_is_caught_while_it_is_removed_leaves_its_limit() {
        let groups = Groups::new("caught");
        let mut watched = groups.watched();
        assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(900));
        // First the files, then the directory, and a look in between.
        fs::remove_file(groups.inner.join("memory.max")).unwrap();
        assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(900));
        fs::remove_dir(&groups.inner).unwrap();
        let error = looked(&mut watched).unwrap_err().to_string();
        assert!(error.contains("inner cannot be read"), "{error}");
        assert_eq!(watched.budget(), ByteSize::new(900), "though the one above it still has its own");
    }

    #[test]
    fn levels_begin_at_a_half_and_a_quarter_of_the_margin() {
        let config = CgroupLimit::own().margin(ByteSize::new(100));
        let of = |left: u64| {
            let (usage, limit) = (ByteSize::new(1_000 - left), ByteSize::new(1_000));
            (config.level(usage, limit), config.excess(usage, limit).get())
        };
        assert_eq!(
            [51, 50, 26, 25].map(|left| of(left).0),
            [Level::Calm, Level::Medium, Level::Medium, Level::Critical]
        );
        assert_eq!([76, 75, 74, 0].map(|left| of(left).1), [0, 0, 1, 75], "the usage is to leave three quarters of it");
        assert_eq!(config.level(ByteSize::MAX, ByteSize::MAX), Level::Calm, "no limit");
    }

    #[test]
    fn a_limit_that_is_gone_twice_is_gone() {
        let groups = Groups::new("twice");
        let mut watched = groups.watched();
        fs::remove_file(groups.inner.join("memory.max")).unwrap();
        let begin = watched.limit_due;
        assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(900));
        assert!(watched.limit_due - begin <= USAGE_EVERY.as_nanos() as u64, "soon again");
        assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(4900));
        // One that is back at once was never gone; it is doubted anew.
        fs::write(groups.inner.join("memory.max"), "1000").unwrap();
        assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(900));
        for _ in 0..2 {
            fs::write(groups.inner.join("memory.max"), "max").unwrap();
            assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(900));
            fs::write(groups.inner.join("memory.max"), "1000").unwrap();
            assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(900));
        }
    }

    proptest! {
        #[test]
        fn a_limit_leaves_something_and_is_worse_the_nearer(limit in 2..u64::MAX, usage: u64, more: u64) {
            let (config, limit) = (CgroupLimit::own(), ByteSize::new(limit));
            let budget = config.budget(limit);
            prop_assert!(budget > ByteSize::ZERO && budget < limit);
            let usage = ByteSize::new(usage);
            prop_assert!(config.level(usage, limit) <= config.level(usage.saturating_add(ByteSize::new(more)), limit));
            // Full of what is charged only: no pressure.
            prop_assert!(config.level(budget, limit) == Level::Calm || limit < ByteSize::new(16));
            prop_assert_eq!(config.level(limit, limit), Level::Critical);
            // Without the excess it is well again.
            let left = usage.saturating_sub(config.excess(usage, limit));
            prop_assert!(config.level(left, limit) == Level::Calm || limit < ByteSize::new(16));
        }
    }
}
