//! The configuration of a registry.
//!
//! Setters return `Self`, so that a configuration is one expression. The numeric defaults are
//! constants.
//!
//! A new setting needs a default that suits callers that never set it.

use alloc::sync::Arc;
use core::time::Duration;

use lowwater_lru_core::topology::{Fixed, Topology};

use crate::budget::{Fair, Policy};
use crate::error::ShrinkerAllocError;
use crate::work::Clock;

/// The default maximum of objects that one call of direct reclaim scans.
pub const DIRECT_SCAN_MAX: u64 = 1024;
/// The default maximum time of one call of direct reclaim, in nanoseconds: the limit that Redis
/// uses. A lowwater runtime sets its own default, `DIRECT_TIME_MAX` of `src/runtime/builder.rs`.
pub const DIRECT_TIME_MAX_NS: u64 = 500_000;
/// The default time without work before a reclaimer sweeps, and between two sweeps.
pub const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// The least time between two sweeps, which visit all lists.
const SWEEP_EVERY_MIN: Duration = Duration::from_millis(1);

/// The configuration of a [`Registry`](crate::Registry).
///
/// ```
/// use std::sync::Arc;
/// use lowwater_lru_core::{MemcgTree, topology};
/// use lowwater_shrinker::{budget::Proportional, Registry, RegistryConfig};
///
/// let tree = MemcgTree::default();
/// // Linux's policy, for comparison; and at most 50 us for a call of direct reclaim.
/// let config = RegistryConfig::with_topology(topology::detect())
///     .policy(Arc::new(Proportional))
///     .direct_time_max_ns(50_000);
/// let registry = Registry::with_config(&tree, config);
/// # drop(registry);
/// ```
#[derive(Clone)]
pub struct RegistryConfig {
    pub(crate) topology: Arc<dyn Topology>,
    /// `None` stands for [`Fair`], which takes no memory.
    policy: Option<Arc<dyn Policy>>,
    /// The clock of the time bounds; `None`: time is not bounded.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) direct_scan_max: u64,
    pub(crate) direct_time_max_ns: u64,
    pub(crate) sweep_every: Duration,
    pub(crate) by_utility: bool,
}

impl RegistryConfig {
    /// Configures `nodes` nodes, with every thread on the first; otherwise as
    /// [`with_topology`](Self::with_topology).
    ///
    /// # Panics
    ///
    /// If `nodes` is 0 or more than node ids can represent.
    pub fn new(nodes: usize) -> Self {
        Self::with_topology(Arc::new(Fixed::new(nodes)))
    }

    /// Configures the nodes of `topology`; policy [`Fair`], 1,024 objects and 500 us for direct
    /// reclaim, and with `std` the system's clock. A panic of `topology` reaches the caller of
    /// [`Registry::with_config`](crate::Registry::with_config).
    pub fn with_topology(topology: Arc<dyn Topology>) -> Self {
        #[cfg(feature = "std")]
        let clock = Some(Arc::new(crate::work::SystemClock::default()) as Arc<dyn Clock>);
        #[cfg(not(feature = "std"))]
        let clock = None;
        Self::made(topology, clock)
    }

    /// As [`with_topology`](Self::with_topology), without a clock, for callers that can handle a
    /// failure.
    ///
    /// # Errors
    ///
    /// None at present: it allocates nothing.
    pub fn try_with_topology(topology: Arc<dyn Topology>) -> Result<Self, ShrinkerAllocError> {
        Ok(Self::made(topology, None))
    }

    fn made(topology: Arc<dyn Topology>, clock: Option<Arc<dyn Clock>>) -> Self {
        Self {
            topology,
            policy: None,
            clock,
            direct_scan_max: DIRECT_SCAN_MAX,
            direct_time_max_ns: DIRECT_TIME_MAX_NS,
            sweep_every: SWEEP_EVERY,
            by_utility: false,
        }
    }

    /// Sets the policy that decides how many objects a visit scans; [`Fair`] by default.
    #[must_use]
    pub fn policy(mut self, policy: Arc<dyn Policy>) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Returns the policy in use.
    pub(crate) fn used_policy(&self) -> &dyn Policy {
        self.policy.as_deref().unwrap_or(&Fair)
    }

    /// Sets the clock for time bounds. Without one, only objects are bounded.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the maximum number of objects that one call of direct reclaim scans; a shrinker may
    /// exceed it as it may exceed [`Work::objects`](crate::Work::objects).
    #[must_use]
    pub fn direct_scan_max(mut self, objects: u64) -> Self {
        self.direct_scan_max = objects;
        self
    }

    /// Sets the maximum time of one call of direct reclaim, in nanoseconds; exceeded by at most one
    /// callback.
    #[must_use]
    pub fn direct_time_max_ns(mut self, ns: u64) -> Self {
        self.direct_time_max_ns = ns;
        self
    }

    /// Sets how long a [`Reclaimer`](crate::Reclaimer) has no work before it
    /// [sweeps](crate::Registry::sweep), and the time between two sweeps; 5 s by default. A sweep
    /// frees a list that the previous sweep also found empty, so the list was empty for this time.
    /// At least 1 ms; with [`Duration::MAX`] the reclaimer never sweeps.
    #[must_use]
    pub fn sweep_every(mut self, time: Duration) -> Self {
        self.sweep_every = time.max(SWEEP_EVERY_MIN);
        self
    }

    /// Sets whether victims are selected by utility: a [`Reclaimer`](crate::Reclaimer) and
    /// [`shrink_least_useful`](crate::Registry::shrink_least_useful) then take memory from the pair
    /// of a shrinker and a group that has the fewest hits per byte. Off by default: a reclaimer
    /// then takes from all pairs in proportion to their objects, as Linux does.
    ///
    /// An object must be uncharged in the scan that frees it: the reports of a shrinker are ignored
    /// if usage does not fall during its scans, unless it counts fewer objects afterwards. A
    /// shrinker that does not [weigh](crate::Shrinker::weigh_objects) its objects is assumed to
    /// hold all bytes that its group uses, until scans have shown the size of an object.
    ///
    /// Costs about 24 bytes for each pair of a shrinker and a group with objects, and 72 more once
    /// memory is short: for the maximum number of pairs that existed at one time.
    #[must_use]
    pub fn by_utility(mut self, yes: bool) -> Self {
        self.by_utility = yes;
        self
    }
}

impl core::fmt::Debug for RegistryConfig {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RegistryConfig")
            .field("nodes", &self.topology.nodes())
            .field("direct_scan_max", &self.direct_scan_max)
            .field("direct_time_max_ns", &self.direct_time_max_ns)
            .field("by_utility", &self.by_utility)
            .finish_non_exhaustive()
    }
}
