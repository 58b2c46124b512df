//! The traffic of a tenant: limits of its requests, bytes, connections and commands, and counts of
//! the refusals.
//!
//! A connection belongs to the tenant of its listener or of its login, and otherwise to the default
//! tenant. All connections of a tenant share its limits, on all threads. A command of a tenant
//! without limits costs one load ([`Traffic::is_limited`]).
//!
//! A change must ensure that a limit can be set while clients are served, and that no tenant's
//! traffic takes a lock of another tenant.

pub mod connection_permit;
mod rate;
pub mod unread_replies;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::protocol::command_set::CommandSet;
use crate::receive_budget::ReceiveBudget;
use crate::settings::traffic_limits::TrafficLimits;

use rate::Rate;

/// The limits of a tenant's traffic, and its counts.
#[derive(Debug)]
pub struct Traffic {
    /// Origin of the times of the rates.
    started: Instant,
    /// Requests, bytes or commands are limited.
    is_limited: AtomicBool,
    requests: Rate,
    /// Bytes received and sent.
    bytes: Rate,
    /// The commands that are refused: the bits of a [`CommandSet`].
    denied: AtomicU32,
    /// `u64::MAX`: no limit.
    connections_max: AtomicU64,
    /// Open connections.
    connections: AtomicU64,
    /// Commands refused because of the limit of requests or of bytes.
    refused_requests: AtomicU64,
    denied_commands: AtomicU64,
    rejected_connections: AtomicU64,
    /// The budget of the values that the tenant's connections receive; created for the first of
    /// them, as most tenants have none.
    receive_budget: OnceLock<Arc<ReceiveBudget>>,
    /// See [`unread_replies`].
    unread_bytes: AtomicU64,
}

/// The counts of a tenant's traffic: its open connections now, and refusals since the tenant
/// exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    pub connections: u64,
    pub refused_requests: u64,
    pub denied_commands: u64,
    pub rejected_connections: u64,
}

/// The reason why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The limit of this name is reached: `requests` or `bandwidth`. A command is admitted again
    /// after `wait`.
    OverLimit {
        limit: &'static str,
        wait: Duration,
    },
    Denied {
        command: &'static str,
    },
}

impl std::ops::AddAssign for TrafficCounts {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.refused_requests += other.refused_requests;
        self.denied_commands += other.denied_commands;
        self.rejected_connections += other.rejected_connections;
    }
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            is_limited: AtomicBool::new(false),
            requests: Rate::default(),
            bytes: Rate::default(),
            denied: AtomicU32::new(0),
            connections_max: AtomicU64::new(u64::MAX),
            connections: AtomicU64::new(0),
            refused_requests: AtomicU64::new(0),
            denied_commands: AtomicU64::new(0),
            rejected_connections: AtomicU64::new(0),
            receive_budget: OnceLock::new(),
            unread_bytes: AtomicU64::new(0),
        }
    }
}

// All atomics here are relaxed: limits and statistics that guard no other memory. A command that
// runs while a limit changes meets the limit before or after the change.
impl Traffic {
    /// Sets the limits. Open connections above the new limit stay.
    pub fn set_limits(&self, limits: &TrafficLimits) {
        let TrafficLimits { requests, bandwidth, connections, deny } = *limits;
        self.requests.set(requests.unwrap_or(u64::MAX));
        self.bytes.set(bandwidth.get());
        self.denied.store(deny.bits(), Ordering::Relaxed);
        self.connections_max.store(connections.unwrap_or(u64::MAX), Ordering::Relaxed);
        let unlimited = TrafficLimits { connections, ..TrafficLimits::default() };
        self.is_limited.store(*limits != unlimited, Ordering::Relaxed);
    }

    /// Returns whether requests, bytes or commands are limited, so that commands need
    /// [`admit`](Self::admit).
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// Admits a command of these kinds that uses `requests` requests of the limit, or counts its
    /// refusal. The limit of bytes refuses a command while earlier bytes are not paid for, unless
    /// the command `has_paid` for its own; otherwise these are charged afterwards, with
    /// [`charge`](Self::charge).
    ///
    /// # Errors
    ///
    /// The reason of the refusal. A denied command has used its requests all the same.
    pub fn admit(&self, requests: u64, kinds: CommandSet, has_paid: bool) -> Result<(), Refusal> {
        let now = self.now();
        let bytes = if has_paid { Duration::ZERO } else { self.bytes.wait(now) };
        let admitted = match bytes.is_zero() {
            false => Err(Refusal::OverLimit { limit: "bandwidth", wait: bytes }),
            true => {
                let taken = self.requests.try_take(requests, now);
                taken.map_err(|wait| Refusal::OverLimit { limit: "requests", wait })
            }
        };
        if admitted.is_err() {
            self.refused_requests.fetch_add(1, Ordering::Relaxed);
            return admitted;
        }
        match CommandSet::of_bits(self.denied.load(Ordering::Relaxed)).common_name(kinds) {
            None => Ok(()),
            Some(command) => {
                self.denied_commands.fetch_add(1, Ordering::Relaxed);
                Err(Refusal::Denied { command })
            }
        }
    }

    /// Uses bytes of the limit that were received or sent, even if none are left.
    pub fn charge(&self, bytes: u64) {
        self.bytes.take(bytes, self.now());
    }

    /// Returns the wait until all bytes that were charged are paid for.
    pub fn bytes_wait(&self) -> Duration {
        self.bytes.wait(self.now())
    }

    /// Returns the counts.
    pub fn counts(&self) -> TrafficCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TrafficCounts {
            connections: read(&self.connections),
            refused_requests: read(&self.refused_requests),
            denied_commands: read(&self.denied_commands),
            rejected_connections: read(&self.rejected_connections),
        }
    }

    /// Returns the tenant's budget for values that are being received. `of_server` is that of any
    /// tenant of the server.
    pub fn receive_budget(&self, of_server: &ReceiveBudget) -> &Arc<ReceiveBudget> {
        self.receive_budget.get_or_init(|| of_server.of_another_tenant())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use lowwater::ByteSize;

    use super::*;

    #[test]
    fn limits_of_any_kind_are_noticed_and_can_be_taken_back() {
        let traffic = Traffic::default();
        let none = TrafficLimits::default();
        for limits in [
            TrafficLimits { requests: Some(1), ..none },
            TrafficLimits { bandwidth: ByteSize::kib(1), ..none },
            TrafficLimits { deny: CommandSet::parse("get").unwrap(), ..none },
        ] {
            traffic.set_limits(&limits);
            assert!(traffic.is_limited(), "{limits:?}");
            traffic.set_limits(&none);
            assert!(!traffic.is_limited());
        }
        traffic.set_limits(&TrafficLimits { connections: Some(1), ..none });
        assert!(!traffic.is_limited(), "connections are limited when they begin");
    }

    #[test]
    fn requests_wait_for_bytes_that_were_sent() {
        let traffic = Traffic::default();
        traffic.set_limits(&TrafficLimits { bandwidth: ByteSize::kib(1), ..TrafficLimits::default() });
        assert_eq!(traffic.admit(1, CommandSet::default(), false), Ok(()));
        traffic.charge(1 << 20);
        assert_eq!(traffic.admit(1, CommandSet::default(), true), Ok(()));
        let refused = traffic.admit(1, CommandSet::default(), false);
        let is_over = |wait| wait > Duration::from_secs(900);
        assert!(
            matches!(refused, Err(Refusal::OverLimit { limit: "bandwidth", wait }) if is_over(wait)),
            "{refused:?}"
        );
        assert_eq!(traffic.counts(), TrafficCounts { refused_requests: 1, ..TrafficCounts::default() });
    }
}
