//! Drops of the last handles of caches and runtimes inside callbacks: by listeners, by values'
//! `Drop`, by loads; on reclaiming threads, on the reclaimer's thread, on the housekeeper's. No
//! thread waits for itself, and everything is dropped in the end.
//!
//! Each test runs on a thread of its own and fails at a deadline.
//!
//! Rule under test: a drop inside a callback waits for no thread (DESIGN, "Ends inside callbacks").
//! That thread might be inside a callback as well, and wait for the dropping one.
//!
//! A new callback gets a test that drops the last handle in it.

#![forbid(unsafe_code)]

#[path = "common/deadline.rs"]
mod deadline;
#[path = "common/wait.rs"]
mod wait;

use deadline::in_time;
use lowwater::pressure::ReclaimReason;
use lowwater::{ByteSize, Cache, Runtime};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};
use wait::{until, PATIENCE};

type Hook = Box<dyn FnOnce() + Send>;

/// A hook that is called once at most.
#[derive(Clone, Default)]
struct Once(Arc<Mutex<Option<Hook>>>);

impl Once {
    fn set(&self, hook: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(hook));
    }

    fn call(&self) {
        let hook = self.0.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
    }
}

/// A value that calls a hook when its last clone is dropped; a probe counts the clones.
#[derive(Clone)]
struct Value {
    _on_drop: Option<Arc<OnDrop>>,
    _probe: Arc<()>,
}

struct OnDrop(Once);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.call();
    }
}

type Hooked = Cache<u64, Value>;
type Slot<T> = Arc<Mutex<Option<T>>>;

/// Takes the value out of the slot and drops it without holding the slot's lock.
fn empty<T>(slot: &Slot<T>) {
    let taken = slot.lock().unwrap().take();
    drop(taken);
}

/// The event that calls a cache's hook.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Listener,
    Drop,
}

/// A cache in a slot, with a hook that is called when the first entry is removed, or dropped.
struct World {
    runtime: Runtime,
    slot: Slot<Hooked>,
    hook: Once,
    probe: Arc<()>,
}

fn runtime() -> Runtime {
    Runtime::builder().budget(ByteSize::mib(64)).topology(Arc::new(lowwater::topology::Fixed::new(1))).build().unwrap()
}

impl World {
    fn new(runtime: &Runtime, by: By) -> Self {
        let (hook, probe) = (Once::default(), Arc::new(()));
        let listener = hook.clone();
        let cache = Hooked::builder(runtime)
            .weigher(|_, _| ByteSize::new(100))
            .eviction_listener(move |_, _, _| {
                if by == By::Listener {
                    listener.call();
                }
            })
            .build()
            .unwrap();
        for key in 0..100 {
            let _on_drop = (by == By::Drop).then(|| Arc::new(OnDrop(hook.clone())));
            cache.insert(key, Value { _on_drop, _probe: Arc::clone(&probe) }).unwrap();
        }
        Self { runtime: runtime.clone(), slot: Arc::new(Mutex::new(Some(cache))), hook, probe }
    }

    fn with<R>(&self, f: impl FnOnce(&Hooked) -> R) -> Option<R> {
        self.slot.lock().unwrap().as_ref().map(f)
    }

    /// Waits until nothing of the cache remains: no value, no charge, no shrinker.
    fn is_gone(&self) {
        until("all values are dropped", || Arc::strong_count(&self.probe) == 1);
        self.runtime.tree().drain_stock();
        until("all is uncharged", || {
            self.runtime.tree().drain_stock();
            self.runtime.root().usage() == ByteSize::ZERO
        });
        until("all shrinkers have ended", || self.runtime.registry().snapshot().shrinkers.is_empty());
    }
}

/// Makes the cache of a world call its hook, on some thread.
type Start = fn(&World);

/// Checks that two caches can be dropped at the same time, each by the hook of the other.
fn two_end_each_other(runtimes: [Runtime; 2], by: By, start: Start) {
    let worlds = runtimes.each_ref().map(|runtime| World::new(runtime, by));
    let together = Arc::new(Barrier::new(2));
    let returned = Arc::new(AtomicUsize::new(0));
    for at in 0..2 {
        let (other, together, returned) =
            (Arc::clone(&worlds[1 - at].slot), Arc::clone(&together), Arc::clone(&returned));
        worlds[at].hook.set(move || {
            together.wait();
            empty(&other);
            returned.fetch_add(1, SeqCst);
        });
    }
    worlds.iter().for_each(start);
    until("both hooks return", || returned.load(SeqCst) == 2);
    drop(runtimes);
    worlds.iter().for_each(World::is_gone);
}

/// Reclaims on a new thread, as a thread that needs memory does.
fn in_foreground(world: &World) {
    let runtime = world.runtime.clone();
    std::thread::spawn(move || {
        for _ in 0..4 {
            let _freed = runtime.reclaim(runtime.root(), ByteSize::new(10_000));
        }
    });
}

/// Wakes the reclaimer, which evicts entries on its thread.
fn in_background(world: &World) {
    world.runtime.reclaimer().wake(world.runtime.root(), ReclaimReason::Manual(ByteSize::mib(1)));
}

/// Lets all entries expire, which the housekeeper's thread then removes.
fn by_expiry(world: &World) {
    // A reclaim in flight may have evicted some.
    let expire = |cache: &Cache<_, _>, key| cache.touch(&key, Some(Duration::from_millis(1)));
    world.with(|cache| assert!((0..100).filter(|key| expire(cache, *key)).count() > 0));
}

/// Drops a group with entries, which the housekeeper's thread then removes.
fn by_drop_group(world: &World) {
    let group = world.runtime.group("tenant").unwrap();
    world.with(|cache| {
        let value = cache.get(&0).unwrap();
        (100..200).for_each(|key| assert!(cache.entry(key).group(&group).insert(value.clone()).unwrap().is_none()));
    });
    world.runtime.drop_group(&group).unwrap();
}

fn two_runtimes() -> [Runtime; 2] {
    [runtime(), runtime()]
}

fn one_runtime() -> [Runtime; 2] {
    let one = runtime();
    [one.clone(), one]
}

#[test]
fn listeners_that_drop_each_others_cache_in_the_foreground_do_not_deadlock() {
    in_time(|| {
        for _ in 0..50 {
            two_end_each_other(two_runtimes(), By::Listener, in_foreground);
            two_end_each_other(one_runtime(), By::Listener, in_foreground);
        }
    });
}

#[test]
fn values_that_drop_each_others_cache_in_the_foreground_do_not_deadlock() {
    in_time(|| {
        for _ in 0..20 {
            two_end_each_other(two_runtimes(), By::Drop, |world| {
                let cache = world.with(Cache::clone).unwrap();
                let (runtime, hook) = (world.runtime.clone(), world.hook.clone());
                std::thread::spawn(move || {
                    let _freed = runtime.reclaim(runtime.root(), ByteSize::new(10_000));
                    // Readers of other tests may hold the values back for a while.
                    while hook.0.lock().unwrap().is_some() {
                        let _stays = cache.collect();
                    }
                });
            });
        }
    });
}

#[test]
fn listeners_that_drop_each_others_cache_in_the_background_do_not_deadlock() {
    in_time(|| {
        for _ in 0..20 {
            two_end_each_other(two_runtimes(), By::Listener, in_background);
        }
    });
}

#[test]
fn listeners_that_drop_each_others_cache_on_expiry_do_not_deadlock() {
    in_time(|| {
        for _ in 0..5 {
            two_end_each_other(two_runtimes(), By::Listener, by_expiry);
        }
        // One housekeeper: another thread continues with the second cache.
        two_end_each_other(one_runtime(), By::Listener, by_expiry);
    });
}

#[test]
fn values_that_drop_each_others_cache_on_expiry_do_not_deadlock() {
    in_time(|| {
        for _ in 0..3 {
            two_end_each_other(two_runtimes(), By::Drop, by_expiry);
        }
    });
}

#[test]
fn listeners_that_drop_each_others_cache_in_drop_group_do_not_deadlock() {
    in_time(|| {
        for _ in 0..5 {
            two_end_each_other(two_runtimes(), By::Listener, by_drop_group);
        }
    });
}

#[test]
fn caches_dropped_by_reclaimer_and_housekeeper_do_not_deadlock() {
    in_time(|| {
        for _ in 0..5 {
            two_end_each_other(two_runtimes(), By::Listener, |world| {
                // Either may be first.
                by_expiry(world);
                in_background(world);
            });
        }
    });
}

/// A key that calls a hook when compaction clones it.
#[derive(PartialEq, Eq, Hash)]
struct Key(u64, Once);

impl std::hash::Hash for Once {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl PartialEq for Once {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Once {}

impl Clone for Key {
    fn clone(&self) -> Self {
        self.1.call();
        Self(self.0, self.1.clone())
    }
}

#[test]
fn clones_that_drop_each_others_cache_in_compaction_do_not_deadlock() {
    in_time(|| {
        let runtimes = two_runtimes();
        let hooks = [Once::default(), Once::default()];
        let slots: [Slot<Cache<Key, [u64; 16]>>; 2] = [0, 1].map(|at: usize| {
            let cache = Cache::builder(&runtimes[at]).weigher(|_: &Key, _: &[u64; 16]| ByteSize::ZERO).build().unwrap();
            for key in 0..100_000 {
                cache.insert(Key(key, hooks[at].clone()), [key; 16]).unwrap();
            }
            Arc::new(Mutex::new(Some(cache)))
        });
        let (entered, returned) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for at in 0..2 {
            let (other, entered, returned) = (Arc::clone(&slots[1 - at]), Arc::clone(&entered), Arc::clone(&returned));
            hooks[at].set(move || {
                // A clone is made inside a read-side critical section, which holds back the other
                // cache's compaction: so this hook waits for the other one for a short time only.
                entered.fetch_add(1, SeqCst);
                let start = Instant::now();
                while entered.load(SeqCst) < 2 && start.elapsed() < Duration::from_millis(300) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                empty(&other);
                returned.fetch_add(1, SeqCst);
            });
        }
        for slot in &slots {
            // Scattered entries, so that compaction moves them.
            if let Some(cache) = &*slot.lock().unwrap() {
                cache.retain(|key, _| key.0 % 16 == 0);
                let _stays = cache.collect();
            }
        }
        // Both hooks run, unless the first one has dropped the other cache before its compaction.
        until(
            "all that are compacted end",
            || matches!(returned.load(SeqCst), n if n > 0 && n == entered.load(SeqCst)),
        );
        slots.iter().for_each(empty);
    });
}

#[test]
fn runtimes_dropped_by_each_others_caches_do_not_deadlock() {
    in_time(|| {
        for start in [in_background as Start, by_expiry, by_drop_group] {
            for _ in 0..3 {
                let worlds = two_runtimes().map(|runtime| World::new(&runtime, By::Listener));
                let (together, returned) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
                // The caches' handles are the last ones of their runtimes as soon as `worlds` is
                // taken apart, below.
                for at in 0..2 {
                    let (other, together, returned) =
                        (Arc::clone(&worlds[1 - at].slot), Arc::clone(&together), Arc::clone(&returned));
                    worlds[at].hook.set(move || {
                        together.wait();
                        empty(&other);
                        returned.fetch_add(1, SeqCst);
                    });
                }
                worlds.iter().for_each(start);
                let probes = worlds.map(|World { probe, .. }| probe);
                until("both hooks return", || returned.load(SeqCst) == 2);
                until("all is dropped", || probes.iter().all(|probe| Arc::strong_count(probe) == 1));
            }
        }
    });
}

#[test]
fn a_runtime_is_dropped_in_a_callback_for_which_its_own_thread_waits() {
    for start in [in_background as Start, by_expiry] {
        in_time(move || {
            let ours = World::new(&runtime(), By::Listener);
            let (entered, may_go) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
            {
                let (entered, may_go) = (Arc::clone(&entered), Arc::clone(&may_go));
                ours.hook.set(move || {
                    entered.wait();
                    until("the other callback returns", || may_go.load(SeqCst));
                });
            }
            start(&ours);
            entered.wait();
            let other = World::new(&runtime(), By::Listener);
            other.hook.set(move || {
                let start = Instant::now();
                drop(ours);
                assert!(start.elapsed() < PATIENCE / 2, "a thread was joined inside a callback");
                may_go.store(true, SeqCst);
            });
            other.with(|cache| drop(cache.remove(&1)));
            assert_eq!(other.with(|cache| cache.stats().listener_panics), Some(0));
        });
    }
}

/// A load drops a cache while the reclaimer's thread, inside that cache's listener, waits for the
/// load.
#[test]
fn a_load_may_drop_a_cache_whose_listener_waits_for_the_load() {
    in_time(|| {
        let runtime = runtime();
        let loads = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
        let world = World::new(&self::runtime(), By::Listener);
        let (entered, asks) = (Arc::new(Barrier::new(2)), loads.clone());
        {
            let entered = Arc::clone(&entered);
            world.hook.set(move || {
                entered.wait();
                assert_eq!(asks.get_or_insert_with(1, || 2), 1);
            });
        }
        let value = loads.get_or_insert_with(1, || {
            in_background(&world);
            entered.wait();
            // Most likely, the listener waits by then.
            std::thread::sleep(Duration::from_millis(50));
            empty(&world.slot);
            1
        });
        assert_eq!(value, 1);
        world.is_gone();
    });
}

/// A panic's payload that panics when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the payload's own fault");
        }
    }
}

/// State captured by a closure, which panics when it is dropped.
struct Captured(Arc<AtomicUsize>);

impl Drop for Captured {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        // A second panic in the same drop would abort the process, as in any Rust program.
        if !std::thread::panicking() {
            std::panic::panic_any(Grenade);
        }
    }
}

/// A hasher that panics when it is dropped.
struct Hasher(#[expect(dead_code, reason = "it is there to be dropped")] Captured, RandomState);

impl BuildHasher for Hasher {
    type Hasher = <RandomState as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        self.1.build_hasher()
    }
}

/// The last handle of a cache is dropped by its own listener, so the thread that calls the listener
/// drops all captured state: the reclaimer's thread (`background`) or the housekeeper's.
#[test]
fn captured_state_may_panic_in_its_drop_on_the_runtimes_threads() {
    in_time(|| {
        for background in [true, false] {
            let (runtime, dropped) = (runtime(), Arc::new(AtomicUsize::new(0)));
            let slot = Arc::new(Mutex::new(None));
            let [of_listener, of_hasher] = [(); 2].map(|()| Captured(Arc::clone(&dropped)));
            let theirs = Arc::clone(&slot);
            let cache = Cache::<u64, u64>::builder(&runtime)
                .weigher(|_, _| ByteSize::new(100))
                .eviction_listener(move |_, _, _| {
                    let _captured = &of_listener;
                    empty(&theirs);
                    std::panic::panic_any(Grenade);
                })
                .hasher(Hasher(of_hasher, RandomState::new()))
                .build()
                .unwrap();
            cache.entry(1).time_to_live(Duration::from_secs(3600)).insert(1).unwrap();
            *slot.lock().unwrap() = Some(cache);
            if background {
                runtime.reclaimer().wake(runtime.root(), ReclaimReason::Manual(ByteSize::mib(1)));
            } else {
                let slot = slot.lock().unwrap();
                assert!(slot.as_ref().unwrap().touch(&1, Some(Duration::from_millis(1))));
            }
            until("the listener's captures are dropped", || dropped.load(SeqCst) > 0);
            // The request may go on until nothing is charged, and would evict the entries of the
            // next caches before their hooks are set.
            let is_served = || runtime.reclaimer().stats().iter().any(|node| node.freed + node.exhausted > 0);
            until("the request is served", || !background || is_served());
            // Both threads continue to work.
            let world = World::new(&runtime, By::Listener);
            let served = Arc::new(AtomicUsize::new(0));
            for (nr, start) in (1..).zip([by_expiry as Start, in_background]) {
                let world = World::new(&runtime, By::Listener);
                let counts = Arc::clone(&served);
                world.hook.set(move || {
                    counts.fetch_add(1, SeqCst);
                });
                start(&world);
                until("another cache is served", || served.load(SeqCst) == nr);
            }
            // Joins the threads, and fails if one has panicked.
            drop((world, runtime));
        }
    });
}

/// Hooks of the tree run on the housekeeper's thread when it ends a group.
#[test]
fn a_panicking_tree_hook_does_not_end_the_housekeeper() {
    struct Panics(AtomicUsize);
    impl lowwater_lru_core::OfflineHook for Panics {
        fn offline(&self, dying: &lowwater::Memcg, parent: &lowwater::Memcg) {
            // It may call any function of the tree.
            assert!(parent.children().iter().all(|child| child != dying) && parent.is_online());
            if self.0.fetch_add(1, SeqCst) == 0 {
                std::panic::panic_any(Grenade);
            }
        }
    }
    in_time(|| {
        let runtime = runtime();
        let panics = Arc::new(Panics(AtomicUsize::new(0)));
        runtime.tree().add_hook(Arc::clone(&panics) as _);
        for name in ["a", "b"] {
            runtime.drop_group(&runtime.group(name).unwrap()).unwrap();
        }
        until("both groups were ended", || panics.0.load(SeqCst) >= 2);
        let world = World::new(&runtime, By::Listener);
        by_expiry(&world);
        until("the housekeeper continues", || world.with(|cache| cache.stats().expired == 100) == Some(true));
    });
}

#[test]
fn caches_that_own_each_other_and_their_runtimes_are_dropped_by_any_thread() {
    in_time(|| {
        for _ in 0..100 {
            let runtimes = two_runtimes();
            let inner = World::new(&runtimes[0], By::Drop);
            let outer =
                Cache::<u64, Arc<Hooked>>::builder(&runtimes[1]).weigher(|_, _| ByteSize::new(1)).build().unwrap();
            let cache = inner.slot.lock().unwrap().take().unwrap();
            outer.insert(1, Arc::new(cache)).unwrap();
            let slot = Arc::new(Mutex::new(Some(outer)));
            inner.hook.set({
                let slot = Arc::clone(&slot);
                move || empty(&slot)
            });
            runtimes[1].reclaimer().wake(runtimes[1].root(), ReclaimReason::Manual(ByteSize::mib(1)));
            let _freed = runtimes[0].drop_caches();
            empty(&slot);
            inner.is_gone();
        }
    });
}
