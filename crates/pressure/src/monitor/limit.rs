//! The control group as a limit, and how close its usage is.
//!
//! The kernel charges more to the control group than a runtime charges to its memcgs: code, stacks,
//! the allocator's rounding, socket buffers. So the budget ends a [`Margin`] below the limit, and
//! the control group's own usage is read as well.
//!
//! Each limit on the path is compared with the usage of the group that has the limit, because
//! sibling groups may fill it.
//!
//! A change must ensure that the budget never exceeds the limit less the margin.

use alloc::vec::Vec;
use core::time::Duration;
use std::path::Path;

use lowwater_lru_core::ByteSize;

use super::margin::Margin;
use crate::cgroup::{Cgroup, CgroupError, Limit};
use crate::Level;

/// The default margin: the limit divided by this, plus a fixed size for overhead that does not grow
/// with the limit.
const MARGIN_PARTS: u64 = 8;
const MARGIN_FIXED: ByteSize = ByteSize::mib(16);
/// The default margin is at most the limit divided by this, so that a small limit leaves a budget.
const MARGIN_PARTS_MIN: u64 = 2;

/// The time between two readings of the usage: two small files, about 30 us.
const USAGE_EVERY: Duration = Duration::from_millis(100);
/// The time between two readings of the usage while it is too close to the limit.
const USAGE_EVERY_TIGHT: Duration = Duration::from_millis(10);
/// The time between two readings of the limits, which change only when an operator changes them.
const LIMIT_EVERY: Duration = Duration::from_secs(2);
/// The time to the next reading after one that failed.
const FAILED_EVERY: Duration = Duration::from_secs(1);

/// Makes the control group of this process a limit of a monitor.
///
/// ```
/// use lowwater_lru_core::ByteSize;
/// use lowwater_pressure::CgroupLimit;
///
/// // An eighth and 16 MiB are left for memory that is not charged.
/// assert_eq!(CgroupLimit::own().budget(ByteSize::mib(96)), ByteSize::mib(68));
/// assert_eq!(CgroupLimit::own().margin(ByteSize::mib(8)).budget(ByteSize::mib(96)), ByteSize::mib(88));
/// ```
#[derive(Clone, Debug, Default)]
pub struct CgroupLimit {
    margin: Option<ByteSize>,
    cgroup: Option<Cgroup>,
}

impl CgroupLimit {
    /// Uses the group that this process belongs to when the monitor starts. Without a visible group
    /// there is no limit.
    pub fn own() -> Self {
        Self::default()
    }

    /// Uses `cgroup` instead of the group of this process, with the default
    /// [`margin`](Self::margin). The limits of its visible ancestors count as well. If the
    /// group does not exist when the monitor starts, the start fails: a group that is created later
    /// is not followed.
    pub fn of(cgroup: Cgroup) -> Self {
        Self { margin: None, cgroup: Some(cgroup) }
    }

    /// Sets how far below the limit the budget ends. Default: an eighth of the limit plus 16 MiB,
    /// at most half of the limit.
    pub fn margin(mut self, margin: ByteSize) -> Self {
        self.margin = Some(margin);
        self
    }

    /// Returns `limit` less the margin, at least 0; [`ByteSize::MAX`], which is no limit, is
    /// returned as it is. Reads no file.
    pub fn budget(&self, limit: ByteSize) -> ByteSize {
        if limit == ByteSize::MAX {
            return limit;
        }
        limit.saturating_sub(self.margin_of(limit))
    }

    /// Reads the control group once, and returns the budget that its limit leaves; `None` without a
    /// group or without a limit.
    ///
    /// ```
    /// use lowwater_pressure::CgroupLimit;
    ///
    /// match CgroupLimit::own().read()? {
    ///     Some(budget) => println!("this container leaves {budget:#} for caches"),
    ///     None => println!("no limit"),
    /// }
    /// # Ok::<(), lowwater_pressure::cgroup::CgroupError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CgroupError`], if a file of the group cannot be read, or the group is that of
    /// [`of`](Self::of) and does not exist. The message names the file.
    pub fn read(&self) -> Result<Option<ByteSize>, CgroupError> {
        let watched = WatchedCgroup::find(self.clone())?;
        Ok(watched.map(|watched| watched.budget()).filter(|budget| *budget < ByteSize::MAX))
    }

    fn margin_of(&self, limit: ByteSize) -> ByteSize {
        let by_default = ByteSize::new(limit.get() / MARGIN_PARTS).saturating_add(MARGIN_FIXED);
        self.margin.unwrap_or(by_default.min(ByteSize::new(limit.get() / MARGIN_PARTS_MIN)))
    }

    fn excess(&self, usage: ByteSize, limit: ByteSize) -> ByteSize {
        Margin(self.margin_of(limit)).excess(usage, limit)
    }

    fn level(&self, usage: ByteSize, limit: ByteSize) -> Level {
        Margin(self.margin_of(limit)).level(usage, limit)
    }
}

/// A group whose files are read regularly.
#[derive(Debug)]
pub(super) struct WatchedCgroup {
    config: CgroupLimit,
    cgroup: Cgroup,
    limits: Vec<Limit>,
    /// The limits of `limits` that only the last reading missed; kept until the next one.
    doubted: Vec<Limit>,
    /// The time of the next reading of the limits, in nanoseconds of the monitor's clock.
    limit_due: u64,
    /// The time of the next reading of the usage.
    usage_due: u64,
}

/// The result of reading a group's files.
#[derive(Debug)]
pub(super) struct CgroupReading {
    /// The level of pressure.
    pub(super) level: Level,
    /// The usage under the limit that is closest, less the pages that the kernel can drop.
    pub(super) usage: ByteSize,
    /// How much has to be freed: the largest excess under the limits that are too close.
    pub(super) excess: ByteSize,
}

impl WatchedCgroup {
    /// Finds the group, if there is one, and reads all its files once. A group that was named must
    /// exist: all its files would count as missing, and nothing would be bounded.
    pub(super) fn find(config: CgroupLimit) -> Result<Option<Self>, CgroupError> {
        let cgroup = match &config.cgroup {
            Some(cgroup) => {
                cgroup.must_be_there()?;
                cgroup.clone()
            }
            None => match Cgroup::own()? {
                Some(cgroup) => cgroup,
                None => return Ok(None),
            },
        };
        let limits = cgroup.limits()?;
        let watched = Self { config, cgroup, limits, doubted: Vec::new(), limit_due: 0, usage_due: 0 };
        // A file that cannot be read is an error of the start, not of the thread later.
        watched.usages()?;
        Ok(Some(watched))
    }

    /// Returns the directory of the group.
    pub(super) fn directory(&self) -> &Path {
        self.cgroup.directory()
    }

    /// Returns the effective limit at the last reading.
    pub(super) fn limit(&self) -> ByteSize {
        self.limits.iter().map(|limit| limit.bytes).min().unwrap_or(ByteSize::MAX)
    }

    /// Returns the budget that the limit leaves.
    pub(super) fn budget(&self) -> ByteSize {
        self.config.budget(self.limit())
    }

    /// Returns the directories of all groups with a limit, and whether it is the process's own
    /// group or one above it.
    pub(super) fn groups_with_limit(&self) -> impl Iterator<Item = (&Path, bool)> {
        self.limits.iter().filter_map(Limit::directory).map(|directory| (directory, directory == self.directory()))
    }

    /// Returns the time of the next reading.
    pub(super) fn due(&self) -> u64 {
        self.limit_due.min(self.usage_due)
    }

    /// Postpones the next reading, after one that failed.
    pub(super) fn failed(&mut self, now_ns: u64) {
        self.usage_due = now_ns.saturating_add(FAILED_EVERY.as_nanos() as u64);
        self.limit_due = self.usage_due;
    }

    /// Reads the limits if they are due, and the usage under each, and returns the level of
    /// pressure with the excess.
    pub(super) fn look(&mut self, now_ns: u64) -> Result<CgroupReading, CgroupError> {
        if now_ns >= self.limit_due {
            let every = self.look_at_limits()?;
            self.limit_due = now_ns.saturating_add(every.as_nanos() as u64);
        }
        let mut seen = CgroupReading { level: Level::Calm, usage: ByteSize::ZERO, excess: ByteSize::ZERO };
        let mut left_least = ByteSize::MAX;
        for (limit, usage) in self.usages()? {
            let level = self.config.level(usage, limit);
            seen.level = seen.level.max(level);
            // Less than three quarters of a margin may be left without pressure: only a limit that
            // is too close has an excess.
            if level > Level::Calm {
                seen.excess = seen.excess.max(self.config.excess(usage, limit));
            }
            let left = limit.saturating_sub(usage);
            if left < left_least {
                (left_least, seen.usage) = (left, usage);
            }
        }
        let every = match seen.level {
            // Without a limit the usage does not matter.
            _ if self.limits.is_empty() => LIMIT_EVERY,
            Level::Calm => USAGE_EVERY,
            _ => USAGE_EVERY_TIGHT,
        };
        self.usage_due = now_ns.saturating_add(every.as_nanos() as u64);
        Ok(seen)
    }

    /// Reads the limits. Returns the time until the next reading.
    ///
    /// A missing directory does not mean that there is no limit: the hierarchy was unmounted, or
    /// the group was removed after the process was moved to another. A removed group loses its
    /// files before its directory. So a limit is dropped only when two readings in a row miss it
    /// and its directory exists.
    fn look_at_limits(&mut self) -> Result<Duration, CgroupError> {
        let mut limits = self.cgroup.limits()?;
        let has = |limits: &[Limit], was: &Limit| limits.iter().any(|limit| limit.directory() == was.directory());
        let missing: Vec<_> = self.limits.iter().filter(|was| !has(&limits, was)).cloned().collect();
        // Another mount that shows groups above may be unmounted.
        let is_own = |was: &&Limit| was.directory().is_some_and(|at| self.cgroup.is_in_own_mount(at));
        missing.iter().filter(is_own).try_for_each(Limit::group_must_be_there)?;
        let doubted: Vec<_> = missing.into_iter().filter(|was| !has(&self.doubted, was)).collect();
        limits.extend_from_slice(&doubted);
        (self.limits, self.doubted) = (limits, doubted);
        Ok(if self.doubted.is_empty() { LIMIT_EVERY } else { USAGE_EVERY })
    }

    /// Returns each limit, with the usage of its group.
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
    use std::path::PathBuf;

    /// Two nested groups with a limit each.
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

    /// Reads the group at the time when its limits are due, and returns the budget.
    fn looked(watched: &mut WatchedCgroup) -> Result<ByteSize, CgroupError> {
        let due = watched.limit_due;
        watched.look(due).map(|_| watched.budget())
    }

    #[test]
    fn a_group_that_is_caught_while_it_is_removed_leaves_its_limit() {
        let groups = Groups::new("caught");
        let mut watched = groups.watched();
        assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(900));
        // The files are removed before the directory, with a reading in between.
        fs::remove_file(groups.inner.join("memory.max")).unwrap();
        assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(900));
        fs::remove_dir(&groups.inner).unwrap();
        let error = looked(&mut watched).unwrap_err().to_string();
        assert!(error.contains("inner cannot be read"), "{error}");
        assert_eq!(watched.budget(), ByteSize::new(900), "though the one above it still has its own");
    }

    #[test]
    fn the_own_group_is_told_from_those_above() {
        let groups = Groups::new("own");
        let watched = groups.watched();
        let found: Vec<_> = watched.groups_with_limit().collect();
        assert_eq!(found, [(&*groups.inner, true), (&*groups.top, false)]);
    }

    #[test]
    fn a_container_of_one_gibibyte_leaves_880_mebibytes() {
        assert_eq!(CgroupLimit::own().budget(ByteSize::gib(1)), ByteSize::mib(880));
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
    fn the_excess_under_a_calm_limit_does_not_count() {
        let groups = Groups::new("calm");
        let says = |group: &Path, limit: ByteSize, left: ByteSize| {
            fs::write(group.join("memory.max"), limit.get().to_string()).unwrap();
            fs::write(group.join("memory.current"), (limit - left).get().to_string()).unwrap();
        };
        let looked = |left_above| {
            says(&groups.top, ByteSize::gib(64), left_above);
            says(&groups.inner, ByteSize::gib(1), ByteSize::mib(60));
            let cgroup = Cgroup::at(Version::V2, &groups.top, &groups.inner);
            let seen = WatchedCgroup::find(CgroupLimit::of(cgroup)).unwrap().unwrap().look(0).unwrap();
            (seen.level, seen.excess)
        };
        // The margins are 144 and 8,208 MiB. Of the larger one more than a half is left, and less
        // than three quarters.
        assert_eq!(looked(ByteSize::mib(4_200)), (Level::Medium, ByteSize::mib(48)));
        assert_eq!(looked(ByteSize::mib(4_104)), (Level::Medium, ByteSize::mib(2_052)), "both are too close");
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
        // A limit that is back at the next reading was not removed; a second miss is doubted again.
        fs::write(groups.inner.join("memory.max"), "1000").unwrap();
        assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(900));
        for _ in 0..2 {
            fs::write(groups.inner.join("memory.max"), "max").unwrap();
            assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(900));
            fs::write(groups.inner.join("memory.max"), "1000").unwrap();
            assert_eq!(looked(&mut watched).unwrap(), ByteSize::new(900));
        }
    }

    #[test]
    fn each_limit_is_missed_twice_before_it_is_gone() {
        let groups = Groups::new("each");
        let mut watched = groups.watched();
        let (top, inner) = (groups.top.join("memory.max"), groups.inner.join("memory.max"));
        let mut limits = |top_limit, inner_limit| {
            fs::write(&top, top_limit).unwrap();
            fs::write(&inner, inner_limit).unwrap();
            looked(&mut watched).unwrap();
            let mut limits: Vec<_> = watched.limits.iter().map(|limit| limit.bytes.get()).collect();
            limits.sort_unstable();
            limits
        };
        assert_eq!(limits("max", "1000"), [1_000, 5_000]);
        assert_eq!(limits("5000", "max"), [1_000, 5_000], "the inner limit is missing for the first time");
        assert_eq!(limits("max", "900"), [900, 5_000], "the others are as read");
        assert_eq!(limits("max", "max"), [900], "missing for the second time, and for the first");
        assert_eq!(limits("6000", "max"), [6_000]);
    }

    proptest! {
        #[test]
        fn a_limit_leaves_something_and_is_worse_the_nearer(
            limit in prop_oneof![2..64_u64, 2..u64::MAX],
            usage in prop_oneof![0..64_u64, any::<u64>()],
            more: u64,
        ) {
            let (config, limit) = (CgroupLimit::own(), ByteSize::new(limit));
            let budget = config.budget(limit);
            prop_assert!(budget > ByteSize::ZERO && budget < limit);
            let usage = ByteSize::new(usage);
            prop_assert!(config.level(usage, limit) <= config.level(usage.saturating_add(ByteSize::new(more)), limit));
            // A usage that consists of the full budget only is no pressure.
            prop_assert_eq!(config.level(budget, limit), Level::Calm);
            prop_assert_eq!(config.level(limit, limit), Level::Critical);
            // After the excess is freed, there is no pressure.
            let left = usage.saturating_sub(config.excess(usage, limit));
            prop_assert_eq!(config.level(left, limit), Level::Calm);
        }
    }
}
