//! Construction of a runtime: its choices, its defaults, and the start of its threads.
//!
//! The order of construction matters: each thread is started after the parts that it uses, and a
//! failed start drops those that were started. A new option needs a default that changes nothing.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use lowwater_lru_core::{topology, ByteSize, MemcgTree, Topology};
use lowwater_pressure::systemd::{Systemd, SystemdError};
use lowwater_pressure::{
    machine_memory, CgroupLimit, Monitor, MonitorConfig, MonitorError, PressureConfig, Psi, Source, Trim,
};
use lowwater_shrinker::{Reclaimer, Registry, RegistryConfig, StartError, Watermarks};

use super::handle::{Runtime, RuntimeInner};
use super::housekeeper::Housekeeper;
use super::manual_clock::ManualClock;
use super::monitored::MonitoredReclaimer;
use super::retired::Retired;

/// The default time of direct reclaim for one charge: the same as Redis's limit on eviction.
const DIRECT_TIME_MAX: Duration = Duration::from_micros(500);
/// The upper bound of that time: 68 years, which can still be added to an `Instant`.
const DIRECT_TIME_MOST: Duration = Duration::from_secs(1 << 31);

/// A builder for a [`Runtime`], from [`Runtime::builder`].
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct RuntimeBuilder {
    budget: BudgetChoice,
    topology: Option<Arc<dyn Topology>>,
    watermarks: Option<Watermarks>,
    direct_time_max: Option<Duration>,
    /// `None`: no method has set a part of it. `build` adds one for `auto_pressure`, for `systemd`,
    /// and for a budget from the control group.
    monitor: Option<MonitorConfig>,
    auto_pressure: bool,
    systemd: bool,
    clock: Option<ManualClock>,
}

/// The source of the budget.
#[derive(Clone, Copy, Debug, Default)]
enum BudgetChoice {
    /// The memory limit of the control group.
    #[default]
    Cgroup,
    Bytes(ByteSize),
    Unlimited,
}

/// The error of a [`RuntimeBuilder`]: the runtime cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeBuildError {
    /// The budget is 0: nothing could ever be charged.
    #[error("the budget is 0 bytes: nothing could be charged; give a larger one, or `unlimited()`")]
    ZeroBudget,
    /// The builder has neither a budget nor a maximum of the resident memory, and the control group
    /// has no memory limit.
    #[error("there is no budget, and this process's control group has no memory limit; give one by `budget(..)`, or `unlimited()`")]
    NoBudget,
    /// The margin leaves nothing of the control group's limit, with or without a configured budget.
    #[error("the control group has a memory limit that leaves no budget beside its margin; give a smaller `margin(..)`, or raise the limit")]
    LimitTooSmall,
    /// A reclaimer thread does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The housekeeper thread does not start.
    #[error("the housekeeper thread does not start: {0}; raise the limit on threads (ulimit -u, pids.max)")]
    Housekeeper(std::io::Error),
    /// A source of pressure cannot be watched.
    #[error("pressure cannot be watched: {0}")]
    Pressure(MonitorError),
    /// The service manager's variables are wrong.
    #[error("pressure cannot be watched: {0}")]
    Systemd(SystemdError),
}

impl From<MonitorError> for RuntimeBuildError {
    fn from(error: MonitorError) -> Self {
        Self::Pressure(error)
    }
}

impl From<SystemdError> for RuntimeBuildError {
    fn from(error: SystemdError) -> Self {
        Self::Systemd(error)
    }
}

impl Runtime {
    /// Returns a builder with the default choices: the memory limit of this process's control group
    /// as the budget, the system's topology, no further watch for pressure.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }
}

impl RuntimeBuilder {
    /// Sets the limit on all charged bytes together. [`Runtime`] describes what is guaranteed, and
    /// which memory is not counted. [`Cache::ENTRY_BYTES`](crate::Cache::ENTRY_BYTES) describes the
    /// budget that a number of entries needs.
    ///
    /// Without this call the budget is the part of the control group's memory limit that
    /// [`cgroup_limit`](Self::cgroup_limit) leaves, and follows that limit: 880 MiB in a container
    /// of 1 GiB. Where there is no such limit, the budget is that of
    /// [`resident_max`](Self::resident_max); without that, [`build`](Self::build) fails with
    /// [`NoBudget`](RuntimeBuildError::NoBudget).
    ///
    /// ```
    /// use lowwater::runtime::RuntimeBuildError;
    /// use lowwater::{ByteSize, Runtime};
    ///
    /// // In a container: what its limit leaves. On a developer's machine: 256 MiB.
    /// let runtime = match Runtime::builder().build() {
    ///     Err(RuntimeBuildError::NoBudget) => Runtime::builder().budget(ByteSize::mib(256)).build()?,
    ///     built => built?,
    /// };
    /// println!("budget: {:#}", runtime.stats().budget);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn budget(mut self, budget: ByteSize) -> Self {
        self.budget = BudgetChoice::Bytes(budget);
        self
    }

    /// Sets no limit on all charged bytes together: only the `max` of groups and of caches hold.
    /// The process can then use all memory of its machine, unless
    /// [`cgroup_limit`](Self::cgroup_limit), [`auto_pressure`](Self::auto_pressure) or
    /// [`resident_max`](Self::resident_max) bounds it.
    pub fn unlimited(mut self) -> Self {
        self.budget = BudgetChoice::Unlimited;
        self
    }

    /// Watches all sources of memory pressure that this machine has: the control group's limit and
    /// usage, stalls of tasks in the control group and in the whole system (PSI, 150 ms of 2 s),
    /// and the file of the service manager (systemd). In a container the whole system is the host,
    /// which shares its memory with the container. The bound of
    /// [`cgroup_limit`](Self::cgroup_limit) applies, and a limit that leaves no budget makes
    /// [`build`](Self::build) fail as there.
    ///
    /// A source that does not exist, or that the process may not watch, is left out; the reason is
    /// in [`PressureStats::missing`](crate::pressure::PressureStats::missing). The methods for a
    /// single source make [`build`](Self::build) fail instead if the source cannot be watched:
    /// [`watch_psi`](Self::watch_psi), [`cgroup_limit`](Self::cgroup_limit),
    /// [`cgroup`](Self::cgroup), [`systemd`](Self::systemd) and
    /// [`resident_max`](Self::resident_max). For this process's control group where it is not
    /// visible, and for a file that the service manager does not name, they only note the reason.
    /// If `$MEMORY_PRESSURE_WATCH` is `/dev/null`, the service manager has switched the watch of
    /// pressure off, and only the limit is watched. [`pressure`](Self::pressure) sets the response.
    ///
    /// ```
    /// use lowwater::{ByteSize, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::gib(1)).auto_pressure(true).build()?;
    /// let pressure = runtime.stats().pressure.expect("pressure is monitored");
    /// for source in &pressure.sources {
    ///     println!("watching {}", source.file);
    /// }
    /// for reason in &pressure.missing {
    ///     println!("not watching: {reason}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn auto_pressure(mut self, yes: bool) -> Self {
        self.auto_pressure = yes;
        self
    }

    /// Sets the topology of NUMA nodes; read from the system by default. A panic of it reaches the
    /// caller of [`build`](Self::build). It must not use an object of this runtime: see
    /// [`Topology`].
    pub fn topology(mut self, topology: Arc<dyn Topology>) -> Self {
        self.topology = Some(topology);
        self
    }

    /// Sets how far below a limit the reclaimer starts and stops: by default a 32nd and a 16th of
    /// each limit ([`Watermarks::RELATIVE`]). Relative watermarks follow changes of the limit by
    /// [`Runtime::set_budget`] or by pressure; watermarks in bytes do not.
    pub fn watermarks(mut self, watermarks: Watermarks) -> Self {
        self.watermarks = Some(watermarks);
        self
    }

    /// Sets how long the direct reclaim of one charge may take, 500 us by default. A longer time
    /// than 68 years counts as 68 years. With zero, a charge may still make the 8 rounds that
    /// [`Runtime::charge`] states. The time does not bound user code: an insert may drop
    /// removed values of any cache of the runtime, even of one that has ended, and waits for a
    /// `Drop` that blocks.
    pub fn direct_time_max(mut self, time: Duration) -> Self {
        self.direct_time_max = Some(time);
        self
    }

    /// Makes the deadlines of entries follow `clock`, which only its owner advances, in all caches
    /// of the runtime: for tests. By default they follow the system's monotonic clock.
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Sets the response to memory pressure, and starts the monitor even without a source: then
    /// pressure is raised only by [`Monitor::raise`], on the monitor from [`Runtime::pressure`].
    pub fn pressure(mut self, config: PressureConfig) -> Self {
        self.monitor().pressure = config;
        self
    }

    /// Watches the kernel's pressure stall information (PSI): tasks that wait for memory, in the
    /// whole system, in a control group, or in this process's own control group. May be called
    /// several times, for several sources.
    ///
    /// [`build`](Self::build) fails where the kernel has no PSI, or the process may not open it;
    /// [`auto_pressure`](Self::auto_pressure) watches PSI only where that is possible.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use lowwater::pressure::{Psi, Trigger};
    /// use lowwater::{ByteSize, Runtime};
    ///
    /// // Some task waited for 150 ms of 2 s. Without privileges windows are multiples of 2 s.
    /// let trigger = Trigger::some(Duration::from_millis(150), Duration::from_secs(2))?;
    /// let runtime = Runtime::builder().budget(ByteSize::gib(1)).watch_psi(Psi::system(trigger)).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "memory.pressure")]
    pub fn watch_psi(mut self, psi: Psi) -> Self {
        self.monitor().sources.push(Source::Psi(psi));
        self
    }

    /// Bounds the budget by the memory limit of this process's control group, less a margin, and
    /// treats usage near that limit as pressure. The limits of the control groups above, and those
    /// of cgroup v1, are read as well. Later changes of a limit take effect. Without a limit there
    /// is no bound; without a visible group
    /// [`missing`](crate::pressure::PressureStats::missing) has the reason. A group that cannot be
    /// read makes [`build`](Self::build) fail, as does a limit that leaves nothing beside the
    /// margin ([`LimitTooSmall`](RuntimeBuildError::LimitTooSmall)).
    ///
    /// ```
    /// use lowwater::{ByteSize, Runtime};
    ///
    /// // In a container of 1 GiB: 880 MiB. Elsewhere: 4 GiB.
    /// let runtime = Runtime::builder().budget(ByteSize::gib(4)).cgroup_limit(true).build()?;
    /// println!("budget: {} bytes", runtime.stats().budget);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "memory.max")]
    #[doc(alias = "memory.high")]
    #[doc(alias = "memory.limit_in_bytes")]
    pub fn cgroup_limit(mut self, yes: bool) -> Self {
        if yes {
            self.monitor().cgroup.get_or_insert_with(CgroupLimit::own);
        } else if let Some(monitor) = &mut self.monitor {
            monitor.cgroup = None;
        }
        self
    }

    /// As [`cgroup_limit`](Self::cgroup_limit), with another control group or another margin. A
    /// group that was named ([`CgroupLimit::of`]) and does not exist makes [`build`](Self::build)
    /// fail.
    pub fn cgroup(mut self, limit: CgroupLimit) -> Self {
        self.monitor().cgroup = Some(limit);
        self
    }

    /// Bounds the memory of this process that is in RAM, by pressure: the budget bounds charged
    /// bytes only, and the allocator keeps free memory between used blocks. The memory that is in
    /// RAM, without pages of mapped files, is read ten times a second. When at most a 32nd of the
    /// maximum is left, the allocator is [trimmed](Self::trim); if that does not help, the caches
    /// free memory. Memory that is allocated within a second may exceed the maximum for about that
    /// long; and if the caches are at the floor of [`PressureConfig`], they have no more to give.
    ///
    /// [`auto_pressure`](Self::auto_pressure) does not include this. Begin with 1.15 times the
    /// budget, plus what the process needs without caches; [`ByteSize::MAX`] is no maximum.
    ///
    /// The memory is that of the whole process: with several runtimes, set the maximum in one, as
    /// otherwise each of them frees the same excess.
    ///
    /// The budget is at most the maximum. With another allocator than glibc's, set a
    /// [`trim`](Self::trim) that returns its memory at once: otherwise the caches shrink because of
    /// memory that the allocator keeps free. The caches shrink only after a trim, so that memory
    /// which is allocated while the next trim has to wait ([`Trim::interval`]) may exceed the
    /// maximum. [`build`](Self::build) fails where the resident memory cannot be read: outside
    /// Linux.
    ///
    /// ```
    /// use lowwater::{ByteSize, Runtime};
    ///
    /// # if cfg!(target_os = "linux") {
    /// let runtime = Runtime::builder().resident_max(ByteSize::gib(1)).build()?;
    /// let pressure = runtime.stats().pressure.expect("pressure is monitored");
    /// println!("{:#} of 1 GiB", pressure.resident.expect("a resident maximum is set").usage);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "VmRSS")]
    pub fn resident_max(mut self, bytes: ByteSize) -> Self {
        self.monitor().resident_max = Some(bytes);
        self
    }

    /// Watches the file that the service manager names: [`build`](Self::build) reads systemd's
    /// variables `$MEMORY_PRESSURE_WATCH` and `$MEMORY_PRESSURE_WRITE`. Where they are not set, or
    /// name `/dev/null`, nothing is watched, and
    /// [`missing`](crate::pressure::PressureStats::missing) has the reason. Wrong values, or a
    /// file that cannot be watched, make [`build`](Self::build) fail.
    #[doc(alias = "MemoryPressureWatch")]
    pub fn systemd(mut self, yes: bool) -> Self {
        self.systemd = yes;
        self
    }

    /// Sets the function that makes the allocator return freed memory to the system after a large
    /// shrink. By default it is [`Trim::system`]: `malloc_trim` where the C library is glibc. This
    /// choice starts the monitor, as [`pressure`](Self::pressure) does; in a runtime without a
    /// monitor nothing is trimmed.
    ///
    /// ```
    /// use lowwater::{pressure::Trim, ByteSize, Runtime};
    ///
    /// let trim = Trim::new(|| { /* the purge of jemalloc, mimalloc, ... */ }).threshold(ByteSize::mib(64));
    /// let runtime = Runtime::builder().budget(ByteSize::gib(1)).trim(trim).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "malloc_trim")]
    pub fn trim(mut self, trim: Trim) -> Self {
        self.monitor().trim = trim;
        self
    }

    /// Makes the control group's limit the bound, and returns the budget that holds if that limit
    /// is removed later or is above the machine's memory: that memory less a margin. Without a
    /// limit the budget is the maximum of the resident memory; where the machine's memory is
    /// unknown, it is what the present limit leaves.
    fn budget_of_cgroup(&mut self) -> Result<ByteSize, RuntimeBuildError> {
        let limit = self.monitor().cgroup.get_or_insert_with(CgroupLimit::own).clone();
        let resident_max = self.monitor().resident_max;
        let read = limit.read().map_err(MonitorError::Cgroup)?;
        let now = match (read, resident_max) {
            (Some(now), _) => now,
            (None, Some(max)) if max < ByteSize::MAX => return Ok(max),
            (None, _) => return Err(RuntimeBuildError::NoBudget),
        };
        // Where the machine does not say, the present limit is the most that is known to exist.
        match machine_memory().map_or(now, |memory| limit.budget(memory)) {
            ByteSize::ZERO => Err(RuntimeBuildError::LimitTooSmall),
            budget => Ok(budget),
        }
    }

    fn monitor(&mut self) -> &mut MonitorConfig {
        self.monitor.get_or_insert_default()
    }

    /// Builds the runtime and starts its threads: a reclaimer per node, the housekeeper and its
    /// standby, and the pressure monitor, if one of its choices was made or the budget is the
    /// control group's.
    ///
    /// # Errors
    ///
    /// [`RuntimeBuildError`], if a choice is invalid, a pressure file cannot be opened, or a thread
    /// does not start. The message names the choice or the file. Aborts the process if there is no
    /// memory.
    pub fn build(mut self) -> Result<Runtime, RuntimeBuildError> {
        if self.auto_pressure {
            self.monitor().auto = true;
        }
        let mut unwatched = None;
        if self.systemd {
            let systemd = Systemd::from_env()?;
            // With `auto`, the monitor finds the reason itself.
            unwatched = systemd.missing().filter(|_| !self.auto_pressure);
            let monitor = self.monitor();
            if let Systemd::Watch(watch) = systemd {
                monitor.sources.push(Source::Systemd(watch));
            }
        }
        let is_unset = matches!(self.budget, BudgetChoice::Cgroup);
        let budget = match self.budget {
            BudgetChoice::Bytes(ByteSize::ZERO) => return Err(RuntimeBuildError::ZeroBudget),
            BudgetChoice::Bytes(budget) => budget,
            BudgetChoice::Unlimited => ByteSize::MAX,
            BudgetChoice::Cgroup => self.budget_of_cgroup()?,
        };
        let topology = self.topology.unwrap_or_else(topology::detect);
        let direct_time_max = self.direct_time_max.unwrap_or(DIRECT_TIME_MAX).min(DIRECT_TIME_MOST);
        let watermarks = self.watermarks.unwrap_or_default();

        let tree = MemcgTree::default();
        tree.root().set_max(budget);
        let direct_ns = u64::try_from(direct_time_max.as_nanos()).unwrap_or(u64::MAX);
        let config =
            RegistryConfig::with_topology(Arc::clone(&topology)).direct_time_max_ns(direct_ns).by_utility(true);
        let registry = Registry::with_config(&tree, config);
        let reclaimer = Arc::new(Reclaimer::start(&registry, Arc::clone(&topology), watermarks)?);
        let monitored = || Arc::new(MonitoredReclaimer::from(Arc::clone(&reclaimer)));
        let monitor = |config| Monitor::start(tree.root(), budget, monitored(), config);
        let pressure = self.monitor.map(monitor).transpose()?;
        if pressure.as_ref().is_some_and(|monitor| monitor.budget() == ByteSize::ZERO) {
            // The limit bounds the configured budget, which is not 0.
            return Err(RuntimeBuildError::LimitTooSmall);
        }
        if let (Some(monitor), Some(reason)) = (&pressure, unwatched) {
            monitor.note_missing(reason);
        }
        let retired = Arc::new(Retired::new(tree.root().clone()));
        let housekeeper =
            Housekeeper::start(registry.nodes(), Arc::clone(&retired)).map_err(RuntimeBuildError::Housekeeper)?;
        tree.add_hook(housekeeper.hook());
        let groups = DashMap::new();
        let inner = RuntimeInner {
            housekeeper,
            pressure,
            reclaimer,
            registry,
            groups,
            topology,
            unset_budget: is_unset.then_some(budget),
            direct_time_max,
            retired,
            clock: self.clock,
            #[cfg(feature = "metrics")]
            published: parking_lot::Mutex::default(),
            tree,
        };
        Ok(Runtime { inner: Arc::new(inner) })
    }
}

impl std::fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("budget", &self.budget)
            .field("watermarks", &self.watermarks)
            .field("direct_time_max", &self.direct_time_max)
            .field("monitor", &self.monitor)
            .field("auto_pressure", &self.auto_pressure)
            .field("systemd", &self.systemd)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
