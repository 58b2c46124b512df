//! A count of the bytes of values to which replies refer that a tenant's clients do not read.
//!
//! Such values stay in memory after their eviction, and while there are too many of them, no long
//! value is stored (`store/update.rs`). One tenant's clients must not prevent the stores of all
//! others for as long as they like. So while a store waits for that reason, connections that cannot
//! write their replies are closed, if those of their tenant refer to more than a part of the
//! budget.
//!
//! A change must ensure that a reply which the client's socket accepts at once is not counted: it
//! would cost each `get` an access to a shared word.

use std::sync::atomic::Ordering;

use super::Traffic;

/// The values to which the output of one connection refers, counted until drop.
#[derive(Debug)]
pub struct UnreadReplies<'a> {
    traffic: &'a Traffic,
    bytes: u64,
}

impl<'a> UnreadReplies<'a> {
    /// Counts `bytes` bytes for the tenant.
    pub fn new(traffic: &'a Traffic, bytes: u64) -> Self {
        // Relaxed, here and below: the count guards no other memory.
        traffic.unread_bytes.fetch_add(bytes, Ordering::Relaxed);
        Self { traffic, bytes }
    }

    /// Returns the bytes of all connections of the tenant.
    pub fn of_tenant(&self) -> u64 {
        self.traffic.unread_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for UnreadReplies<'_> {
    fn drop(&mut self) {
        self.traffic.unread_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
