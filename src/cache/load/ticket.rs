//! The load of one caller, from its begin to the insert of its value.
//!
//! A change must ensure that each way out of a load lets its followers go on.

use super::single_flight::Leader;
use super::wait_graph::LoadScope;

/// A caller's load: as the leader of all callers of the key, or alone, without followers.
pub(crate) enum LoadTicket<K, V> {
    Leader(Leader<K, V>),
    Alone(K),
}

impl<K, V: Clone> LoadTicket<K, V> {
    /// Marks the thread as running the load's code until the guard is dropped. None for a load
    /// without followers.
    pub(super) fn run(&self) -> Option<LoadScope> {
        match self {
            Self::Leader(leader) => Some(leader.run()),
            Self::Alone(_) => None,
        }
    }

    /// Publishes the loaded value, unless the cache rejects it or has a value that was inserted
    /// meanwhile, which is younger; and completes the load.
    pub(super) fn finish(self, value: V, keep: impl FnOnce(K, V)) -> V {
        match self {
            Self::Leader(leader) => {
                let running = leader.run();
                leader.publish(|key| keep(key, value.clone()));
                let others = value.clone();
                drop(running);
                leader.complete(others);
            }
            Self::Alone(key) => keep(key, value.clone()),
        }
        value
    }
}
