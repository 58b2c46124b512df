//! How a runtime is made.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use lowwater_lru_core::{topology, Bytes, MemcgTree, Topology};
use lowwater_shrinker::pressure::Watermarks;
use lowwater_shrinker::{Reclaimer, Registry, RegistryConfig, StartError};

use super::{Inner, Runtime};

/// How long one charge reclaims for itself, where nothing else is said: what Redis allows itself.
const DIRECT_TIME_MAX: Duration = Duration::from_micros(500);

/// The choices of a [`Runtime`].
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct RuntimeBuilder {
    budget: Option<Bytes>,
    topology: Option<Arc<dyn Topology>>,
    watermarks: Option<Watermarks>,
    direct_time_max: Option<Duration>,
}

/// A runtime cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The budget is 0: nothing could ever be charged.
    #[error("the budget is 0 bytes; give one, or none for no limit")]
    NoBudget,
    /// A reclaimer thread does not start.
    #[error("the reclaimer does not start: {0}")]
    Start(#[from] StartError),
}

impl RuntimeBuilder {
    /// The most that may be charged in all; no limit by default.
    pub fn budget(mut self, budget: Bytes) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Which NUMA nodes there are; asked of the system by default.
    pub fn topology(mut self, topology: Arc<dyn Topology>) -> Self {
        self.topology = Some(topology);
        self
    }

    /// How far below a limit the reclaimer starts and stops; a 32nd and a 16th of the budget by default.
    pub fn watermarks(mut self, watermarks: Watermarks) -> Self {
        self.watermarks = Some(watermarks);
        self
    }

    /// How long one charge may reclaim for itself, 500 us by default.
    pub fn direct_time_max(mut self, time: Duration) -> Self {
        self.direct_time_max = Some(time);
        self
    }

    /// Makes the runtime and starts its threads, one a node.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says which choice does not work, or that a thread does not start.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let budget = self.budget.unwrap_or(Bytes::MAX);
        if budget == Bytes::ZERO {
            return Err(BuildError::NoBudget);
        }
        let topology = self.topology.unwrap_or_else(topology::detect);
        let direct_time_max = self.direct_time_max.unwrap_or(DIRECT_TIME_MAX);
        let watermarks = self.watermarks.unwrap_or_else(|| Watermarks::for_budget(budget));

        let tree = MemcgTree::default();
        tree.root().set_max(budget);
        let direct_ns = u64::try_from(direct_time_max.as_nanos()).unwrap_or(u64::MAX);
        let config = RegistryConfig::with_topology(Arc::clone(&topology)).direct_time_max_ns(direct_ns);
        let registry = Registry::with_config(&tree, config);
        let reclaimer = Reclaimer::start(&registry, Arc::clone(&topology), watermarks)?;
        let inner = Inner { reclaimer, registry, groups: DashMap::new(), topology, direct_time_max, tree };
        Ok(Runtime { inner: Arc::new(inner) })
    }
}

impl std::fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("budget", &self.budget)
            .field("watermarks", &self.watermarks)
            .field("direct_time_max", &self.direct_time_max)
            .finish_non_exhaustive()
    }
}
