//! A permit for a connection of a tenant, by which a tenant's connections are bounded.
//!
//! A connection gets its permit at its login; if no login is required, after its handshake of TLS,
//! or when it is accepted. It holds the permit until it ends. A change must ensure that each permit
//! is returned once.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::Traffic;

/// A permit for one open connection of a tenant, returned on drop.
#[derive(Debug)]
pub struct TenantPermit(Arc<Traffic>);

impl TenantPermit {
    /// The refusal of a client for whom there is no permit.
    pub const REFUSAL: &[u8] = b"ERROR Too many open connections of this tenant\r\n";

    /// Returns a permit for one more connection, unless the tenant has as many as its limit allows.
    pub fn acquire(traffic: &Arc<Traffic>) -> Option<Self> {
        // Relaxed, here and below: the count guards no other memory.
        let max = traffic.connections_max.load(Ordering::Relaxed);
        if traffic.connections.fetch_add(1, Ordering::Relaxed) >= max {
            traffic.connections.fetch_sub(1, Ordering::Relaxed);
            traffic.rejected_connections.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(Self(Arc::clone(traffic)))
    }

    /// Returns the traffic of the tenant.
    pub fn traffic(&self) -> &Traffic {
        &self.0
    }

    /// Returns the traffic of the tenant, if requests, bytes or commands are limited.
    #[inline]
    pub fn limited_traffic(&self) -> Option<&Traffic> {
        Some(self.traffic()).filter(|traffic| traffic.is_limited())
    }
}

impl Drop for TenantPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::traffic_limits::TrafficLimits;

    #[test]
    fn a_returned_permit_can_be_acquired_again() {
        let traffic = Arc::new(Traffic::default());
        traffic.set_limits(&TrafficLimits { connections: Some(2), ..TrafficLimits::default() });
        let held: Vec<_> = (0..3).map(|_| TenantPermit::acquire(&traffic)).collect();
        assert_eq!(held.iter().flatten().count(), 2);
        assert_eq!((traffic.counts().connections, traffic.counts().rejected_connections), (2, 1));
        drop(held);
        assert!(TenantPermit::acquire(&traffic).is_some());
        assert_eq!(traffic.counts().connections, 0);
    }
}
