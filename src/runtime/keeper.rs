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

mod seat;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lowwater_lru_core::unwind::caught;
use lowwater_lru_core::{Memcg, MemcgError, NodeId, OfflineHook};
use lowwater_shrinker::CallbackScope;
use parking_lot::{Condvar, Mutex, MutexGuard};

use seat::{spawn, Replaced, Seat};

use super::retired::Retired;

/// How long it works without a rest.
const WORK: Duration = Duration::from_micros(500);
/// How long it waits for charges of a dropped group that belong to no entry, between two looks, and in all.
const SETTLE: Duration = Duration::from_millis(5);
const SETTLE_MAX: Duration = Duration::from_millis(100);
/// How long until it is tried again to end a group that has children.
const RETRY: Duration = Duration::from_millis(100);
/// What a cache has done for it. Called by one thread at a time, but for what is said to be called by others.
pub(crate) trait Chores: Send + Sync {
    /// Looks at the next few entries, and lets go of those whose time is over.
    fn let_expired_go(&self) -> Next;

    /// Lets go of a few entries of a group on a node, however much they are used. How many; 0 when there is none.
    fn let_group_go(&self, group: &Memcg, node: NodeId) -> u64;

    /// Is there any entry of a group on a node? Called by whichever thread, also while another lets go, under the keeper's lock: it runs
    /// nobody's code.
    fn has_any(&self, group: &Memcg, node: NodeId) -> bool;

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

/// Its threads. They are stopped and joined when this is dropped.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
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
    /// Work was begun, while who stands by was asleep.
    begun: Condvar,
    nodes: usize,
    /// What the caches have retired.
    retired: Arc<Retired>,
}

/// What letting a group's entries go came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emptied {
    /// There may be more.
    More,
    /// Only where a thread is held up.
    HeldUp,
    All,
}

#[derive(Default)]
struct State {
    threads: Vec<JoinHandle<()>>,
    seat: Seat,
    /// Since when who has it is where somebody's code may run.
    since: Option<Instant>,
    /// Does a thread stand by, and will it sleep until it is told?
    stands_by: bool,
    sleeps: bool,
    /// In the order of their numbers.
    caches: Vec<(ChoresId, Arc<dyn Chores>)>,
    last_id: u64,
    /// By which threads work; more than one only where somebody's code has blocked some of them.
    at_work: Vec<ChoresId>,
    /// To be emptied and ended. Only who has the seat takes some out, or changes their order: which was looked at last is last.
    dropped: VecDeque<Dropped>,
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

impl Shared {
    fn nudge(&self) {
        self.tell(self.state.lock());
    }

    fn tell(&self, mut state: MutexGuard<'_, State>) {
        state.told = true;
        self.told.notify_one();
    }

    /// What a thread does: with the seat from the beginning, or when it has taken it.
    fn run(self: &Arc<Self>, mut seat: Option<Seat>) {
        // What runs here is waited for by `Keeper::remove` and the keeper's drop, so nothing here waits for others' callbacks.
        let _scope = CallbackScope::enter();
        while let Some(has) = seat.or_else(|| self.stand_by()) {
            match self.keep(has) {
                Ok(()) => return,
                Err(Replaced) if self.is_needed() => seat = None,
                Err(Replaced) => return,
            }
        }
    }

    /// Works until all is over.
    fn keep(&self, seat: Seat) -> Result<(), Replaced> {
        loop {
            let wait = self.work(seat)?;
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
            if state.stop {
                return Ok(());
            }
            state.told = false;
        }
    }

    /// A part of what there is to do. How long until the next.
    fn work(&self, seat: Seat) -> Result<Option<Duration>, Replaced> {
        let start = Instant::now();
        let groups = self.empty_groups(seat, start)?;
        let expired = self.go_on(seat, |chores| chores.let_expired_go())?;
        let moved = self.go_on(seat, |chores| chores.migrate())?;
        Ok(groups.into_iter().chain(expired).chain(moved).min())
    }

    /// Works on each dropped group in turn, from the one after that which was worked on last, while there is time.
    fn empty_groups(&self, seat: Seat, start: Instant) -> Result<Option<Duration>, Replaced> {
        let mut wait: Option<Duration> = None;
        let nr = self.state.lock().dropped.len();
        for _ in 0..nr {
            if start.elapsed() >= WORK {
                return Ok(Some(WORK));
            }
            let Some(Dropped { group, empty }) = self.state.lock().dropped.front().cloned() else { break };
            let emptied = self.empty(seat, &group, start)?;
            if emptied == Emptied::More {
                self.turn(None);
                return Ok(Some(WORK));
            }
            // What is charged and is no entry is on its way to become one; or it is somebody else's, and is not waited for.
            let since = empty.unwrap_or(start);
            let next = if emptied == Emptied::HeldUp {
                self.turn(None);
                RETRY
            } else if group.usage().get() > 0 && since.elapsed() < SETTLE_MAX {
                self.turn(Some(since));
                SETTLE
            } else if self.end_group(seat, &group)? == Some(Err(MemcgError::HasChildren)) {
                self.turn(empty);
                RETRY
            } else {
                // The handle may be the last.
                let ended = self.state.lock().dropped.pop_front();
                drop(ended);
                self.each(seat, |chores| chores.settle())?;
                continue;
            };
            wait = Some(wait.map_or(next, |wait| wait.min(next)));
        }
        Ok(wait)
    }

    /// Ends a group; none if a hook of the tree panicked. The group is offline then, too.
    fn end_group(&self, seat: Seat, group: &Memcg) -> Result<Option<Result<(), MemcgError>>, Replaced> {
        self.begins(&mut self.state.lock());
        // Hooks are the user's code.
        let ended = caught(|| group.offline());
        self.has_run(&mut self.state.lock(), seat)?;
        Ok(ended)
    }

    /// The first dropped group has had its turn, and is empty since then.
    fn turn(&self, empty: Option<Instant>) {
        let dropped = &mut self.state.lock().dropped;
        if let Some(mut first) = dropped.pop_front() {
            first.empty = empty;
            dropped.push_back(first);
        }
    }

    /// Lets go of what a group has, for a while.
    fn empty(&self, seat: Seat, group: &Memcg, start: Instant) -> Result<Emptied, Replaced> {
        let mut is_empty = true;
        let nodes = || (0..self.nodes).map(|node| NodeId::new(node as u16));
        let left_out = self.each(seat, |chores| {
            for node in nodes() {
                // All are asked before it counts as empty.
                while (is_empty || start.elapsed() < WORK) && chores.let_group_go(group, node) > 0 {
                    is_empty = false;
                }
            }
        })?;
        let has_any = |chores: &dyn Chores| nodes().any(|node| chores.has_any(group, node));
        let is_held_up = || {
            let state = self.state.lock();
            state.caches.iter().any(|(id, chores)| left_out.contains(id) && has_any(&**chores))
        };
        Ok(match is_empty {
            false => Emptied::More,
            true if is_held_up() => Emptied::HeldUp,
            true => Emptied::All,
        })
    }

    /// Has each cache do a part of what it has to do. How long until the next.
    fn go_on(&self, seat: Seat, f: impl Fn(&dyn Chores) -> Next) -> Result<Option<Duration>, Replaced> {
        let (mut wait, mut rest): (Option<Duration>, _) = (None, Duration::ZERO);
        self.each(seat, |chores| {
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
        })?;
        Ok(wait.map(|wait| wait.max(rest)))
    }

    /// Works on each cache, without the lock, but for those where another thread is held up, which come back. What panics there is that cache's
    /// own code, and costs it a part of this round.
    fn each(&self, seat: Seat, mut f: impl FnMut(&dyn Chores)) -> Result<Vec<ChoresId>, Replaced> {
        let (mut after, mut left_out) = (ChoresId(0), Vec::new());
        loop {
            let mut state = self.state.lock();
            let Some((id, chores)) = state.caches.iter().find(|(id, _)| *id > after) else { return Ok(left_out) };
            let (id, chores) = (*id, chores);
            after = id;
            if state.at_work.contains(&id) {
                left_out.push(id);
                continue;
            }
            let chores = Arc::clone(chores);
            state.at_work.push(id);
            self.begins(&mut state);
            drop(state);
            let _panicked = caught(|| f(&*chores));
            // The last handle, if the cache was dropped meanwhile: then all that it has captured goes with it.
            let _panicked = caught(|| drop(chores));
            let mut state = self.state.lock();
            state.at_work.retain(|at| *at != id);
            self.left.notify_all();
            self.has_run(&mut state, seat)?;
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
