//! The configuration of a registry.

use alloc::sync::Arc;
use core::time::Duration;

use lowwater_lru_core::topology::{Fixed, Topology};

use crate::budget::{Fair, Policy};
use crate::error::ShrinkerAllocError;
use crate::work::Clock;

/// Objects that one call of direct reclaim scans at most, by default.
pub const DIRECT_SCAN_MAX: u64 = 1024;
/// Nanoseconds that one call of direct reclaim takes at most, by default: what Redis allows itself.
pub const DIRECT_TIME_MAX_NS: u64 = 500_000;
/// How long a reclaimer has nothing to do before it sweeps, and between two sweeps, by default.
pub const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The choices of a [`Registry`](crate::Registry).
///
/// ```
/// use std::sync::Arc;
/// use lowwater_lru_core::{MemcgTree, topology};
/// use lowwater_shrinker::{budget::Proportional, Registry, RegistryConfig};
///
/// let tree = MemcgTree::default();
/// // As Linux does it, to compare with; and at most 50 us for a thread that reclaims for itself.
/// let config = RegistryConfig::with_topology(topology::detect())
///     .policy(Arc::new(Proportional))
///     .direct_time_max_ns(50_000);
/// let registry = Registry::with_config(&tree, config);
/// # drop(registry);
/// ```
#[derive(Clone)]
pub struct RegistryConfig {
    pub(crate) topology: Arc<dyn Topology>,
    /// None: [`Fair`], which takes no memory.
    policy: Option<Arc<dyn Policy>>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) direct_scan_max: u64,
    pub(crate) direct_time_max_ns: u64,
    pub(crate) sweep_every: Duration,
    pub(crate) by_utility: bool,
}

impl RegistryConfig {
    /// `nodes` nodes, of which every thread is on the first; else as [`with_topology`](Self::with_topology).
    ///
    /// # Panics
    ///
    /// If `nodes` is 0 or more than a node id can tell apart.
    pub fn new(nodes: usize) -> Self {
        Self::with_topology(Arc::new(Fixed::new(nodes)))
    }

    /// The nodes of `topology`; policy [`Fair`], 1,024 objects and 500 us for direct reclaim, and under `std` the system's
    /// clock.
    pub fn with_topology(topology: Arc<dyn Topology>) -> Self {
        #[cfg(feature = "std")]
        let clock = Some(Arc::new(crate::work::SystemClock::default()) as Arc<dyn Clock>);
        #[cfg(not(feature = "std"))]
        let clock = None;
        Self::made(topology, clock)
    }

    /// As [`with_topology`](Self::with_topology), without a clock, for callers that can do without.
    ///
    /// # Errors
    ///
    /// None today: it allocates nothing.
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

    /// The policy that decides how many objects are scanned.
    #[must_use]
    pub fn policy(mut self, policy: Arc<dyn Policy>) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The policy that is used.
    pub(crate) fn used_policy(&self) -> &dyn Policy {
        self.policy.as_deref().unwrap_or(&Fair)
    }

    /// The clock for time bounds. Without one, only objects are bounded.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Objects that one call of direct reclaim scans at most; passed as
    /// [`Work::objects`](crate::Work::objects) is.
    #[must_use]
    pub fn direct_scan_max(mut self, objects: u64) -> Self {
        self.direct_scan_max = objects;
        self
    }

    /// Nanoseconds that one call of direct reclaim takes at most; passed by one callback.
    #[must_use]
    pub fn direct_time_max_ns(mut self, ns: u64) -> Self {
        self.direct_time_max_ns = ns;
        self
    }

    /// How long a [`Reclaimer`](crate::Reclaimer) has nothing to do before it [sweeps](crate::Registry::sweep), and between two
    /// sweeps; 5 s by default. A list that is given back was empty for as long.
    #[must_use]
    pub fn sweep_every(mut self, time: Duration) -> Self {
        self.sweep_every = time;
        self
    }

    /// Whether victims are chosen by utility: memory is taken from the shrinker and group to which it
    /// brings the fewest hits per byte, by a [`Reclaimer`](crate::Reclaimer) and by
    /// [`shrink_least_useful`](crate::Registry::shrink_least_useful). Off by default: then a reclaimer
    /// takes from all in proportion to what they hold, as Linux does.
    ///
    /// An object is to be uncharged in the scan that frees it: a shrinker whose scans make nobody use less
    /// is not believed, unless it counts fewer objects afterwards. One that does not
    /// [weigh](crate::Shrinker::weigh_objects) its objects is taken to hold all that its group uses, until
    /// scans have shown what an object weighs.
    ///
    /// Costs about 24 bytes for each pair of a shrinker and a group that holds something, and 72 more once
    /// memory is short: for the most pairs that there were at a time.
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
