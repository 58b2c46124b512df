//! Construction of a runtime: its choices, its defaults, and the start of its threads.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use lowwater_lru_core::{topology, ByteSize, MemcgTree, Topology};
use lowwater_pressure::systemd::{Systemd, SystemdError};
use lowwater_pressure::{CgroupLimit, Monitor, MonitorConfig, MonitorError, PressureConfig, Psi, Source, Trim};
use lowwater_shrinker::{Reclaimer, Registry, RegistryConfig, StartError, Watermarks};

use super::handle::{Runtime, RuntimeInner};
use super::housekeeper::Housekeeper;
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
    budget: Option<ByteSize>,
    topology: Option<Arc<dyn Topology>>,
    watermarks: Option<Watermarks>,
    direct_time_max: Option<Duration>,
    /// `None`: pressure is not watched.
    monitor: Option<MonitorConfig>,
    systemd: bool,
}

/// The error of a [`RuntimeBuilder`]: the runtime cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeBuildError {
    /// The budget is 0: nothing could ever be charged.
    #[error("the budget is 0 bytes; give one, or none for no limit")]
    NoBudget,
    /// A reclaimer thread does not start.
    #[error("the reclaimer does not start: {0}")]
    Start(#[from] StartError),
    /// The housekeeper thread does not start.
    #[error("no thread for idle work: {0}; raise the limit on threads (ulimit -u, pids.max)")]
    Housekeeper(#[source] std::io::Error),
    /// A source of pressure cannot be watched.
    #[error("pressure cannot be watched: {0}")]
    Pressure(#[from] MonitorError),
    /// The service manager's variables are wrong.
    #[error("pressure cannot be watched: {0}")]
    Systemd(#[from] SystemdError),
}

impl Runtime {
    /// Returns a builder with the default choices: no limit, the system's topology, no watch for
    /// pressure.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }
}

impl RuntimeBuilder {
    /// Sets the limit on all charged bytes together; no limit by default. [`Runtime`] describes
    /// what is guaranteed, and which memory is not counted.
    pub fn budget(mut self, budget: ByteSize) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Sets the topology of NUMA nodes; read from the system by default.
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

    /// Sets how long the direct reclaim of one charge may take, 500 us by default.
    pub fn direct_time_max(mut self, time: Duration) -> Self {
        self.direct_time_max = Some(time);
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
    /// [`build`](Self::build) fails where the kernel has no PSI, or the process may not open it.
    /// The builder is [`Clone`], so that a program can try with PSI and then build without.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use lowwater::pressure::{Psi, Trigger};
    /// use lowwater::{ByteSize, Runtime};
    ///
    /// // Some task waited for 150 ms of 2 s. Without privileges windows are multiples of 2 s.
    /// let trigger = Trigger::some(Duration::from_millis(150), Duration::from_secs(2))?;
    /// let builder = Runtime::builder().budget(ByteSize::gib(1));
    /// let runtime = builder.clone().watch_psi(Psi::system(trigger)).build().or_else(|error| {
    ///     eprintln!("{error}");
    ///     builder.build()
    /// })?;
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
    /// is no bound.
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

    /// As [`cgroup_limit`](Self::cgroup_limit), with another control group or another margin.
    pub fn cgroup(mut self, limit: CgroupLimit) -> Self {
        self.monitor().cgroup = Some(limit);
        self
    }

    /// Watches the file that the service manager names: [`build`](Self::build) reads systemd's
    /// variables `$MEMORY_PRESSURE_WATCH` and `$MEMORY_PRESSURE_WRITE`. Where they are not set, or
    /// name `/dev/null`, nothing is watched.
    #[doc(alias = "MemoryPressureWatch")]
    pub fn systemd(mut self, yes: bool) -> Self {
        self.systemd = yes;
        self
    }

    /// Sets the function that makes the allocator return freed memory to the system after a large
    /// shrink. By default it is [`Trim::system`]: `malloc_trim` where the C library is glibc. It is
    /// never called in a runtime that does not watch for pressure.
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

    fn monitor(&mut self) -> &mut MonitorConfig {
        self.monitor.get_or_insert_default()
    }

    /// Builds the runtime and starts its threads: a reclaimer per node, the housekeeper and its
    /// standby, and the pressure monitor if one of its choices was made.
    ///
    /// # Errors
    ///
    /// [`RuntimeBuildError`], if a choice is invalid, a pressure file cannot be opened, or a thread
    /// does not start. The message names the choice or the file.
    pub fn build(mut self) -> Result<Runtime, RuntimeBuildError> {
        if self.systemd {
            if let Systemd::Watch(watch) = Systemd::from_env()? {
                self.monitor().sources.push(Source::Systemd(watch));
            }
        }
        let budget = self.budget.unwrap_or(ByteSize::MAX);
        if budget == ByteSize::ZERO {
            return Err(RuntimeBuildError::NoBudget);
        }
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
            direct_time_max,
            retired,
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
            .field("systemd", &self.systemd)
            .finish_non_exhaustive()
    }
}
