//! The load of one caller, from its begin to the insert of its value.
//!
//! A change must ensure that each way out of a load lets its followers go on: with a value by
//! [`LoadTicket::finish`], otherwise by the drop of the [`Leader`].

use super::single_flight::{InflightLoad, Leader};
use super::wait_graph::LoadScope;

/// A caller's load: as the leader of all callers of the key, or alone, without followers, if the
/// caller must not wait for the load in flight ([`single_flight`](super::single_flight)).
pub(crate) enum LoadTicket<K, V> {
    Leader(Leader<K, V>),
    Alone(K),
}

impl<K, V: Clone> LoadTicket<K, V> {
    /// Marks the thread as running the load's code until the guard is dropped, so that loads that
    /// would wait for each other are detected ([`wait_graph`](super::wait_graph)). None for a load
    /// without followers.
    pub(super) fn run(&mut self) -> Option<LoadScope> {
        match self {
            Self::Leader(leader) => Some(leader.run()),
            Self::Alone(_) => None,
        }
    }

    /// Inserts the loaded value by `keep`, and completes the load, if it has followers. See
    /// [`Leader::finish`].
    pub(super) fn finish(self, value: V, keep: impl FnOnce(K, V, Option<&InflightLoad<K, V>>)) -> V {
        match self {
            Self::Leader(leader) => leader.finish(value, |key, value, load| keep(key, value, Some(load))),
            Self::Alone(key) => {
                keep(key, value.clone(), None);
                value
            }
        }
    }
}

impl<K, V: Clone> Leader<K, V> {
    /// Inserts the loaded value by `keep`, and completes the load. The followers get the value even
    /// if the cache rejects it, or keeps one that was inserted meanwhile, which is younger.
    pub(super) fn finish(mut self, value: V, keep: impl FnOnce(K, V, &InflightLoad<K, V>)) -> V {
        // The value's `Clone` is the load's code, too; the followers' wakers, which `complete`
        // calls, are not.
        let running = self.run();
        self.publish(|key, load| keep(key, value.clone(), load));
        let others = value.clone();
        drop(running);
        self.complete(others);
        value
    }
}
