//! The notification that the foreground has deferred objects.
//!
//! The reclaimer implements it to wake its threads; an embedder may implement it, too.
//!
//! A change must ensure that the listener is called without a lock of the registry, since it may
//! call the registry.

use lowwater_lru_core::{Memcg, NodeId};

use crate::budget::Kick;

/// Receives notifications of debts that the foreground leaves, if the policy requests them
/// ([`Policy::kick`](crate::budget::Policy::kick)).
pub trait DebtListener: Send + Sync {
    /// Reports that objects of `memcg` on `node` are owed; see
    /// [`Registry::pay_debts`](crate::Registry::pay_debts). Called on the thread that reclaims, so
    /// it must not wait.
    ///
    /// No lock is held: it may use the registry and set another listener, but reclaim calls do
    /// nothing. A panic reaches the caller of reclaim.
    #[doc(alias = "wakeup_kswapd")]
    fn notify_debt(&self, memcg: &Memcg, node: NodeId, kick: Kick);
}
