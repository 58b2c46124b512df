//! What is done for caches in idle time: one thread lets go of entries whose time is over, and of those of groups that were dropped, and moves
//! together what is left in few of many places. It knows all caches, so it is also by whom they hear of groups that end.
//!
//! It sleeps while there is none of it. It works for half a millisecond at a time, and rests between: as long again while it empties a group
//! or moves entries; for expired entries 3 times as long where many of those it looks at are, else 19 times, so that looking costs a
//! twentieth of one processor at most.
//!
//! What it lets go of may be told to somebody's listener, and dropped by somebody's code; where that blocks, it is that cache's own loss. A second
//! thread stands by, asleep while nothing is done: when the first has been with one cache for a quarter of a second, it takes the seat, works for all but that one, and has
//! a third stand by. Who comes back and finds its seat taken stands by or ends. So there are two threads, and one more for each cache whose code
//! blocks.
//!
//! # Ends
//!
//! [`Keeper::remove`] and the keeper's own drop wait for the threads, but not inside a callback ([`CallbackScope`]): there the thread that
//! would be waited for may wait for the caller. The cache is closed all the same, and the thread that works on it drops the last handle.
//! The threads are inside a scope for as long as they run, and no panic ends them: of a cache's callbacks, of what these have captured,
//! of the tree's hooks.

mod dropped_groups;
mod lease;
mod shared;
mod threads;
mod visit;

use std::sync::Arc;
use std::thread;

use lowwater_lru_core::{Memcg, OfflineHook};
use lowwater_shrinker::CallbackScope;
use parking_lot::{Condvar, Mutex};

use super::maintenance::{Chores, ChoresId};
use super::retired::Retired;
use lease::Seat;
use shared::{Dropped, Shared};
use threads::spawn;

/// Its threads. They are stopped and joined when this is dropped.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
}

/// Has the thread look what there is to do.
pub(crate) struct Bell(Arc<Shared>);

impl Keeper {
    pub(crate) fn start(nodes: usize, retired: Arc<Retired>) -> std::io::Result<Self> {
        let (told, left, begun) = (Condvar::new(), Condvar::new(), Condvar::new());
        let shared = Shared { state: Mutex::default(), told, left, begun, nodes, retired };
        let keeper = Self { shared: Arc::new(shared) };
        let mut state = keeper.shared.state.lock();
        let shared = Arc::clone(&keeper.shared);
        let first = spawn("lowwater/keeper", move || shared.run(Some(Seat::default())))?;
        state.threads.push(first);
        let stands_by = keeper.shared.have_one_stand_by(&mut state);
        drop(state);
        stands_by.map(|()| keeper)
    }

    pub(crate) fn add(&self, chores: Arc<dyn Chores>) -> ChoresId {
        let mut state = self.shared.state.lock();
        state.last_id += 1;
        let id = ChoresId(state.last_id);
        state.caches.push((id, chores));
        id
    }

    /// Works on this cache no more. Waits until it is left, unless the caller is inside a callback: then a part of the work that is under
    /// way goes on, and its thread drops the last handle.
    pub(crate) fn remove(&self, id: ChoresId) {
        let mut state = self.shared.state.lock();
        let removed = state.caches.iter().position(|(other, _)| *other == id).map(|at| state.caches.remove(at));
        while state.at_work.contains(&id) && !CallbackScope::is_inside() {
            self.shared.left.wait(&mut state);
        }
        drop(state);
        // Without the lock: it may be the last handle, whose drop is the user's code.
        drop(removed);
    }

    /// Says that a time will be over sooner than was known.
    pub(crate) fn nudge(&self) {
        self.shared.nudge();
    }

    /// Tells caches of groups that end.
    pub(crate) fn hook(&self) -> Arc<dyn OfflineHook> {
        Arc::clone(&self.shared) as _
    }

    /// To call the thread, for who does not have the keeper.
    pub(crate) fn bell(&self) -> Bell {
        Bell(Arc::clone(&self.shared))
    }

    /// Has a group emptied and ended. False if it is already.
    pub(crate) fn drop_group(&self, group: &Memcg) -> bool {
        let mut state = self.shared.state.lock();
        if state.dropped.iter().any(|dropped| dropped.group == *group) {
            return false;
        }
        state.dropped.push_back(Dropped { group: group.clone(), empty: None });
        self.shared.tell(state);
        true
    }

    /// Is the group, or one above it, to be ended?
    pub(crate) fn drops(&self, group: &Memcg) -> bool {
        let state = self.shared.state.lock();
        state.dropped.iter().any(|dropped| group.is_descendant_of(&dropped.group))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.stop = true;
        let threads = std::mem::take(&mut state.threads);
        self.shared.begun.notify_one();
        self.shared.tell(state);
        // On a thread of these, or inside a callback for which one waits: then they end by themselves.
        if CallbackScope::is_inside() {
            return;
        }
        let panicked = threads.into_iter().filter_map(|thread| thread.join().err()).count();
        if panicked > 0 && !thread::panicking() {
            panic!("the keeper thread panicked outside of any cache's code: this is a bug in lowwater");
        }
    }
}

impl Bell {
    /// There is something to do.
    pub(crate) fn ring(&self) {
        self.0.nudge();
    }

    /// What the runtime's caches have retired. Reached by this, as a cache that holds nothing should be small.
    pub(crate) fn retired(&self) -> &Retired {
        &self.0.retired
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("Keeper").field("caches", &state.caches.len()).field("dropped", &state.dropped.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::maintenance::Next;
    use crate::Runtime;
    use lowwater_lru_core::NodeId;
    use std::time::{Duration, Instant};

    /// Of one group it always finds more.
    struct Endless(Memcg);

    impl Chores for Endless {
        fn let_expired_go(&self) -> Next {
            Next::Told
        }

        fn let_group_go(&self, group: &Memcg, _: NodeId) -> u64 {
            u64::from(*group == self.0)
        }

        fn has_any(&self, _: &Memcg, _: NodeId) -> bool {
            false
        }

        fn forget_group(&self, _: &Memcg) {}

        fn migrate(&self) -> Next {
            Next::Told
        }

        fn settle(&self) {}
    }

    #[test]
    fn a_group_that_is_never_empty_keeps_no_other_waiting() {
        let runtime = Runtime::builder().build().unwrap();
        let [endless, a, b] = ["endless", "a", "b"].map(|name| runtime.group(name).unwrap());
        let id = runtime.keeper().add(Arc::new(Endless(endless.clone())));
        for group in [&endless, &a, &b] {
            runtime.drop_group(group).unwrap();
        }
        let start = Instant::now();
        while a.is_online() || b.is_online() {
            assert!(start.elapsed() < Duration::from_secs(60), "they wait for one that is not emptied");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(endless.is_online());
        runtime.keeper().remove(id);
    }
}
