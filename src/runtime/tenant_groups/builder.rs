//! The builder of [`TenantGroups`]: the parent group, the maximum number of tenants, their idle
//! time, and the function that sets up a new group.
//!
//! A setter must accept every number and time: 0 and the largest one may neither panic nor
//! overflow.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use lowwater_lru_core::{Memcg, MemcgError};
use parking_lot::{Mutex, RwLock};

use super::{Setup, TenantGroups};
use crate::runtime::handle::Runtime;

/// The builder of [`TenantGroups`], from [`Runtime::tenant_groups`].
#[must_use = "a builder does nothing until `build`"]
pub struct TenantGroupsBuilder {
    runtime: Runtime,
    parent: String,
    count_max: usize,
    idle_time: Duration,
    setup: Option<Setup>,
}

impl Runtime {
    /// Returns a builder for groups with names that come from clients: they become children of the
    /// group `parent`, and its limits bound them all.
    pub fn tenant_groups(&self, parent: &str) -> TenantGroupsBuilder {
        TenantGroupsBuilder {
            runtime: self.clone(),
            parent: parent.into(),
            count_max: 1000,
            idle_time: Duration::from_secs(3600),
            setup: None,
        }
    }
}

impl TenantGroupsBuilder {
    /// Sets the maximum number of tenants, ended ones with entries included; 1,000 by default. With
    /// 0 no tenant gets a group: [`TenantGroups::get`] fails for each name.
    pub fn count_max(mut self, count: usize) -> Self {
        self.count_max = count;
        self
    }

    /// Sets how long a tenant may go without a request before it ends; an hour by default. An idle
    /// tenant ends at a later request of another tenant. The entries of at most 64 ended tenants
    /// are being removed at a time; further idle tenants end after that. A made-up name takes a
    /// place for as long.
    pub fn idle_time(mut self, time: Duration) -> Self {
        self.idle_time = time;
        self
    }

    /// Sets a function that is called with each new tenant's name and group, to set limits. It is
    /// called under a lock, so it must not use the [`TenantGroups`]. If it panics, the group ends,
    /// unless the program had created it before.
    ///
    /// A `min` or `low` is worth at most its part of the parent's: set [`TenantGroups::parent`]'s
    /// to [`count_max`](Self::count_max) times as much.
    pub fn setup(mut self, setup: impl Fn(&str, &Memcg) + Send + Sync + 'static) -> Self {
        self.setup = Some(Box::new(setup));
        self
    }

    /// Creates the parent group, if it does not exist.
    ///
    /// # Errors
    ///
    /// Those of [`Runtime::group`].
    pub fn build(self) -> Result<TenantGroups, MemcgError> {
        Ok(TenantGroups {
            parent: self.runtime.group(&self.parent)?,
            runtime: self.runtime,
            count_max: self.count_max,
            idle_time: self.idle_time,
            setup: self.setup.unwrap_or_else(|| Box::new(|_, _| ())),
            epoch: Instant::now(),
            tenants: RwLock::default(),
            idle: Mutex::default(),
            due: AtomicU64::new(u64::MAX),
        })
    }
}

impl fmt::Debug for TenantGroupsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantGroupsBuilder")
            .field("parent", &self.parent)
            .field("count_max", &self.count_max)
            .field("idle_time", &self.idle_time)
            .finish_non_exhaustive()
    }
}
