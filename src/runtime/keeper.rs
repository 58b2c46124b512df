//! What is done for caches in idle time: one thread lets go of entries whose time is over, and of those of groups that were dropped, and moves
//! together what is left in few of many places. It knows all caches, so it is also by whom they hear of groups that end.
//!
//! It sleeps while there is none of it. It works for half a millisecond at a time, and rests between: as long again while it empties a group
//! or moves entries; for expired entries 3 times as long where many of those it looks at are, else 19 times, so that looking costs a
//! twentieth of one processor at most.

use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lowwater_lru_core::{Memcg, MemcgError, NodeId, OfflineHook};
use lowwater_shrinker::Registration;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// How long it works without a rest.
const WORK: Duration = Duration::from_micros(500);
/// How long it waits for charges of a dropped group that belong to no entry, between two looks, and in all.
const SETTLE: Duration = Duration::from_millis(5);
const SETTLE_MAX: Duration = Duration::from_millis(100);
/// How long until it is tried again to end a group that has children.
const RETRY: Duration = Duration::from_millis(100);

/// What a cache has done for it. Called by one thread.
pub(crate) trait Chores: Send + Sync {
    /// Looks at the next few entries, and lets go of those whose time is over.
    fn let_expired_go(&self) -> Next;

    /// Lets go of a few entries of a group on a node, however much they are used. How many; 0 when there is none.
    fn let_group_go(&self, group: &Memcg, node: NodeId) -> u64;

    /// Forgets what was learnt of a group whose end has come. Called by whoever ends it, under the keeper's lock: it waits for nothing, and runs
    /// nobody's code.
    fn forget_group(&self, dying: &Memcg);

    /// Moves the next few entries together, if that is wanted.
    fn migrate(&self) -> Next;

    /// Gives memory back that what was let go of had; what must stay for a reader goes with a later [`let_expired_go`](Self::let_expired_go).
    fn settle(&self);
}

/// When there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Now, or when it has rested for so many times as long as it worked.
    Now { rest: u32 },
    /// In so long.
    In(Duration),
    /// When [`Keeper::nudge`] is called.
    Told,
}

/// The thread. It is stopped and joined when this is dropped.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// By which a cache is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChoresId(u64);

/// Has the thread look what there is to do.
pub(crate) struct Bell(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// There is something to do.
    told: Condvar,
    /// A cache is not worked on any more.
    left: Condvar,
    nodes: usize,
}

#[derive(Default)]
struct State {
    /// In the order of their numbers.
    caches: Vec<(ChoresId, Arc<dyn Chores>)>,
    last_id: u64,
    at_work: Option<ChoresId>,
    /// To be emptied and ended. Only the thread takes some out, or changes their order: which was looked at last is last.
    dropped: VecDeque<Dropped>,
    /// Of caches that were dropped inside their own callback.
    ending: Vec<Registration>,
    /// Does the thread end one, which may take until that callback is over?
    ends: bool,
    told: bool,
    stop: bool,
}

#[derive(Clone)]
struct Dropped {
    group: Memcg,
    /// Since when no cache has anything of it.
    empty: Option<Instant>,
}

impl Keeper {
    pub(crate) fn start(nodes: usize) -> std::io::Result<Self> {
        let shared = Shared { state: Mutex::default(), told: Condvar::new(), left: Condvar::new(), nodes };
        let shared = Arc::new(shared);
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("lowwater/keeper".into()).spawn(move || theirs.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(crate) fn add(&self, chores: Arc<dyn Chores>) -> ChoresId {
        let mut state = self.shared.state.lock();
        state.last_id += 1;
        let id = ChoresId(state.last_id);
        state.caches.push((id, chores));
        id
    }

    /// Works on this cache no more. Waits until the thread has left it, unless it is the caller.
    pub(crate) fn remove(&self, id: ChoresId) {
        let mut state = self.shared.state.lock();
        let removed = state.caches.iter().position(|(other, _)| *other == id).map(|at| state.caches.remove(at));
        let is_thread = self.is_current();
        while state.at_work == Some(id) && !is_thread {
            self.shared.left.wait(&mut state);
        }
        drop(state);
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

    /// Ends what its own callback cannot end.
    pub(crate) fn end(&self, registration: Registration) {
        let mut state = self.shared.state.lock();
        state.ending.push(registration);
        self.shared.tell(state);
    }

    /// Is the group, or one above it, to be ended?
    pub(crate) fn drops(&self, group: &Memcg) -> bool {
        let state = self.shared.state.lock();
        state.dropped.iter().any(|dropped| group.is_descendant_of(&dropped.group))
    }

    fn is_current(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.stop = true;
        // By a listener on the thread itself, or inside a callback for which the thread waits: then it ends by itself.
        let ends_by_itself = self.is_current() || state.ends || !state.ending.is_empty();
        self.shared.tell(state);
        if ends_by_itself {
            return;
        }
        let ended = self.thread.take().map(JoinHandle::join);
        if ended.is_some_and(|ended| ended.is_err()) && !std::thread::panicking() {
            panic!("the keeper thread panicked outside of any cache's code: this is a bug in lowwater");
        }
    }
}

impl Bell {
    /// There is something to do.
    pub(crate) fn ring(&self) {
        self.0.nudge();
    }
}

impl Shared {
    fn nudge(&self) {
        self.tell(self.state.lock());
    }

    fn tell(&self, mut state: MutexGuard<'_, State>) {
        state.told = true;
        self.told.notify_one();
    }

    fn run(&self) {
        loop {
            self.end_all();
            let wait = self.work();
            let mut state = self.state.lock();
            let until = wait.and_then(|wait| Instant::now().checked_add(wait));
            while !state.told && !state.stop {
                let Some(until) = until else {
                    self.told.wait(&mut state);
                    continue;
                };
                if self.told.wait_until(&mut state, until).timed_out() {
                    break;
                }
            }
            if state.stop && state.ending.is_empty() {
                return;
            }
            state.told = false;
        }
    }

    fn end_all(&self) {
        let mut state = self.state.lock();
        while let Some(registration) = state.ending.pop() {
            state.ends = true;
            drop(state);
            // With it may go what the cache had, which is the user's code.
            let _panicked = catch_unwind(AssertUnwindSafe(|| drop(registration)));
            state = self.state.lock();
            state.ends = false;
        }
    }

    /// A part of what there is to do. How long until the next.
    fn work(&self) -> Option<Duration> {
        let start = Instant::now();
        let groups = self.empty_groups(start);
        let expired = self.go_on(|chores| chores.let_expired_go());
        let moved = self.go_on(|chores| chores.migrate());
        groups.into_iter().chain(expired).chain(moved).min()
    }

    /// Works on each dropped group in turn, from the one after that which was worked on last, while there is time.
    fn empty_groups(&self, start: Instant) -> Option<Duration> {
        let mut wait: Option<Duration> = None;
        let nr = self.state.lock().dropped.len();
        for _ in 0..nr {
            if start.elapsed() >= WORK {
                return Some(WORK);
            }
            let Some(Dropped { group, empty }) = self.state.lock().dropped.front().cloned() else { break };
            if !self.empty(&group, start) {
                self.turn(None);
                return Some(WORK);
            }
            // What is charged and is no entry is on its way to become one; or it is somebody else's, and is not waited for.
            let since = empty.unwrap_or(start);
            let next = if group.usage().get() > 0 && since.elapsed() < SETTLE_MAX {
                self.turn(Some(since));
                SETTLE
            } else if group.offline() == Err(MemcgError::HasChildren) {
                self.turn(empty);
                RETRY
            } else {
                // The handle may be the last.
                let ended = self.state.lock().dropped.pop_front();
                drop(ended);
                self.each(|chores| chores.settle());
                continue;
            };
            wait = Some(wait.map_or(next, |wait| wait.min(next)));
        }
        wait
    }

    /// The first dropped group has had its turn, and is empty since then.
    fn turn(&self, empty: Option<Instant>) {
        let dropped = &mut self.state.lock().dropped;
        if let Some(mut first) = dropped.pop_front() {
            first.empty = empty;
            dropped.push_back(first);
        }
    }

    /// Lets go of what a group has, for a while. Was that all?
    fn empty(&self, group: &Memcg, start: Instant) -> bool {
        let mut is_empty = true;
        self.each(|chores| {
            for node in 0..self.nodes {
                // All are asked before it counts as empty.
                while (is_empty || start.elapsed() < WORK) && chores.let_group_go(group, NodeId::new(node as u16)) > 0 {
                    is_empty = false;
                }
            }
        });
        is_empty
    }

    /// Has each cache do a part of what it has to do. How long until the next.
    fn go_on(&self, f: impl Fn(&dyn Chores) -> Next) -> Option<Duration> {
        let (mut wait, mut rest): (Option<Duration>, _) = (None, Duration::ZERO);
        self.each(|chores| {
            let start = Instant::now();
            let next = loop {
                match f(chores) {
                    Next::Now { rest: times } if start.elapsed() >= WORK => {
                        rest += start.elapsed() * times;
                        break Duration::ZERO;
                    }
                    Next::Now { .. } => {}
                    Next::In(time) => break time,
                    Next::Told => return,
                }
            };
            wait = Some(wait.map_or(next, |wait| wait.min(next)));
        });
        wait.map(|wait| wait.max(rest))
    }

    /// Works on each cache, without the lock. What panics there is that cache's own code, and costs it a part of this round.
    fn each(&self, mut f: impl FnMut(&dyn Chores)) {
        let mut after = ChoresId(0);
        loop {
            let mut state = self.state.lock();
            let Some((id, chores)) = state.caches.iter().find(|(id, _)| *id > after) else { return };
            let (id, chores) = (*id, Arc::clone(chores));
            (after, state.at_work) = (id, Some(id));
            drop(state);
            let _panicked = catch_unwind(AssertUnwindSafe(|| f(&*chores)));
            drop(chores);
            self.state.lock().at_work = None;
            self.left.notify_all();
        }
    }
}

impl OfflineHook for Shared {
    fn offline(&self, dying: &Memcg, _parent: &Memcg) {
        self.state.lock().caches.iter().for_each(|(_, chores)| chores.forget_group(dying));
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
    use crate::Runtime;

    /// Of one group it always finds more.
    struct Endless(Memcg);

    impl Chores for Endless {
        fn let_expired_go(&self) -> Next {
            Next::Told
        }

        fn let_group_go(&self, group: &Memcg, _: NodeId) -> u64 {
            u64::from(*group == self.0)
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
