//! User space: a mark for each thread ([`marks`](super::marks)), and one place for what waits to be freed.
//!
//! A thread registers its mark at its first pin, and unregisters the mark when the thread ends. If
//! the thread has guards at that moment (in thread-locals that are destroyed later, or leaked), the
//! mark stays, and the last guard unregisters it. A thread that pins without a mark (no memory for
//! one; the mark is unregistered already) is a stray: strays are counted in one word, and no memory
//! is freed while there are any.
//!
//! `membarrier` costs microseconds and reaches every processor that runs a thread of ours, so what
//! is retired is collected by the [`BATCH`]. Where the system does not have it (Linux before 4.14,
//! a sandbox, another system), readers bring a fence, as told by their mark. If the system refuses
//! it later, a thread of this library [visits all processors](super::heavy_fence) instead; retired
//! memory is freed by the first collection after the visit.

use super::heavy_fence::{self, Processors, Thread};
use super::marks::{before_fence, Mark, Reached, Time};
use super::{HeavyFences, Queues, Retired};
use crate::sync::atomic::{fence, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ptr::{self, NonNull};

/// So many things wait before it is worth a fence on every processor. A list is 64 bytes.
const BATCH: usize = 64;

static DOMAIN: Domain = Domain {
    time: Time::new(),
    readers: Mutex::new(Readers {
        marks: Vec::new(),
        fenced: None,
        process: 0,
        can_visit: false,
        reached: Reached::new(),
        visitor: Visitor::None,
        fences: HeavyFences { visited: 0, refused: 0 },
    }),
    is_wanted: Condvar::new(),
    strays: AtomicUsize::new(0),
    garbage: Mutex::new(Garbage { queues: Queues::new(), sealed: None, due_at: BATCH }),
};

std::thread_local! {
    /// This thread's mark; null before its first pin and after its end. No destructor, so that asking costs nothing.
    static MARK: Cell<*const Mark> = const { Cell::new(ptr::null()) };
    /// Takes the mark back.
    static END: End = const { End };
}

struct Domain {
    time: Time,
    readers: Mutex<Readers>,
    /// [`Visitor::Wanted`], to the visitor.
    is_wanted: Condvar,
    /// Readers without a mark.
    strays: AtomicUsize,
    /// Time moves on under this lock.
    garbage: Mutex<Garbage>,
}

struct Readers {
    marks: Vec<Registered>,
    /// Must readers bring fences? `None` until the first asks.
    fenced: Option<bool>,
    /// The id of the process at the first pin. The child of a fork has another.
    process: u32,
    /// [`heavy_fence::can_visit`], at the first pin.
    can_visit: bool,
    reached: Reached,
    visitor: Visitor,
    fences: HeavyFences,
}

struct Registered {
    mark: *const Mark,
    /// `None`: the thread has ended, and left guards.
    thread: Option<Thread>,
}

/// The state of the thread that visits processors when `membarrier` is refused.
#[derive(Clone, Copy, PartialEq)]
enum Visitor {
    /// Not needed so far, or it could not be spawned.
    None,
    /// The thread sleeps or visits, and no other visit is wanted.
    Idle,
    /// A visit is wanted that begins from now on.
    Wanted,
}

// SAFETY: marks are live while they are here, and what may be done through a shared one is what `Mark` allows any thread.
unsafe impl Send for Readers {}

/// What waits for its readers.
struct Garbage {
    /// Retired things without a stamp.
    queues: Queues,
    /// The things that a collection could not free. They keep their stamp: with a new one at each
    /// collection, the fence of the visitor would always be too old.
    sealed: Option<Sealed>,
    /// From so many in `queues` on it is worth collecting.
    due_at: usize,
}

/// Retired things that were unreachable at a stamp.
struct Sealed {
    queues: Queues,
    stamp: u64,
}

impl Garbage {
    fn is_due(&self) -> bool {
        self.queues.len() >= self.due_at
    }

    /// Takes back the things that a collection could not free. `later` loses its stamp if there is
    /// an `earlier` one.
    fn put_back(&mut self, earlier: Option<Sealed>, later: Sealed) {
        let mut kept = match earlier {
            None => later,
            Some(earlier) => {
                self.queues.append(later.queues);
                earlier
            }
        };
        if let Some(other) = self.sealed.take() {
            // Of another collection that ran at the same time.
            kept.queues.append(other.queues);
            kept.stamp = kept.stamp.max(other.stamp);
        }
        // Not before there is twice as much: a reader that stays must not make each retiring
        // O(all).
        self.due_at = (2 * self.queues.len() + kept.queues.len()).max(BATCH);
        self.sealed = (kept.queues.len() != 0).then_some(kept);
    }
}

/// That of guards without one.
static STRAY: Mark = Mark::shared();

/// Proof that the thread is inside the read side.
pub(crate) struct Guard {
    mark: NonNull<Mark>,
}

/// Enters the read side.
#[inline]
pub(crate) fn pin() -> Guard {
    let Some(mark) = NonNull::new(MARK.get().cast_mut()) else { return pin_slow() };
    // SAFETY: `MARK` is null or leads to a live mark: `take_back`, which frees it, sets `MARK` to
    // null.
    unsafe { mark.as_ref() }.enter(&DOMAIN.time);
    Guard { mark }
}

#[cold]
fn pin_slow() -> Guard {
    if let Some(mark) = DOMAIN.register() {
        // SAFETY: the mark was registered just now, and is freed by this thread's `END` or last
        // guard, which come later.
        unsafe { mark.as_ref() }.enter(&DOMAIN.time);
        return Guard { mark };
    }
    // Relaxed: ordered by the fence.
    super::check_guards(DOMAIN.strays.fetch_add(1, Ordering::Relaxed));
    // SeqCst: between the count and what the reader follows; meets the heavy fence, as a mark's light one does.
    fence(Ordering::SeqCst);
    Guard { mark: NonNull::from_ref(&STRAY) }
}

/// A moment, after which readers are waited for.
#[derive(Clone, Debug)]
pub(crate) struct Stamp(u64);

/// The moment that is now: what was made unreachable before, by this thread or under a lock that it took since, may be freed once
/// this [`is_past`](Stamp::is_past).
pub(crate) fn seal() -> Stamp {
    let _garbage = DOMAIN.garbage.lock();
    let stamp = DOMAIN.time.stamp();
    DOMAIN.time.move_on(stamp);
    Stamp(stamp)
}

impl Stamp {
    /// Can [`is_past`](Self::is_past) be asked without a heavy fence, because somebody has run one since?
    pub(crate) fn is_fenced(&self) -> bool {
        DOMAIN.has_fence(self.0)
    }

    /// Has every reader left that was inside then? Never true for a thread that is inside itself since then. A heavy fence the
    /// first time, then O(threads).
    pub(crate) fn is_past(&self) -> bool {
        DOMAIN.is_reached(self.0)
    }
}

/// Frees what can be freed, without waiting for a batch.
pub(crate) fn flush() {
    DOMAIN.collect();
}

impl Guard {
    /// Frees what is behind `ptr` once every reader that may have seen it is gone. Needs no memory.
    ///
    /// # Safety
    ///
    /// `ptr` is what [`Retired::free`] frees, is unreachable for readers that pin from now on, and is retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        let mut garbage = DOMAIN.garbage.lock();
        // SAFETY: it is retired, says the caller.
        unsafe { T::queue(&mut garbage.queues).push(ptr) };
        if (T::IS_LARGE || garbage.is_due()) && !is_stray(self.mark) {
            // Not now: as long as we are inside, it would wait for ourselves.
            self.mark().set_due();
        }
    }

    #[inline]
    fn mark(&self) -> &Mark {
        // SAFETY: a guard does not leave its thread (it has a raw pointer), whose mark lives as long as its guards; and `STRAY` stays.
        unsafe { self.mark.as_ref() }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if !self.mark().leave() {
            leave_further(self.mark);
        }
    }
}

/// What a guard with this mark does that is not the last of its thread, or not all there is to do. Not a guard's method, so that guards
/// need not be in memory.
#[cold]
fn leave_further(mark: NonNull<Mark>) {
    if is_stray(mark) {
        // Release: meets the Acquire in `is_reached`.
        DOMAIN.strays.fetch_sub(1, Ordering::Release);
        return;
    }
    // SAFETY: a guard does not leave its thread, and `END` leaves the mark alone while the thread
    // has guards.
    let duties = unsafe { mark.as_ref() }.leave_further();
    if duties.has_ended {
        // SAFETY: the mark is this thread's, and `has_ended` is set for the last guard only.
        unsafe { DOMAIN.take_back(mark.as_ptr()) };
    }
    if duties.is_due {
        DOMAIN.collect();
    }
}

/// Returns the counts for [`super::heavy_fences`].
pub(crate) fn heavy_fences() -> HeavyFences {
    DOMAIN.readers.lock().fences
}

fn is_stray(mark: NonNull<Mark>) -> bool {
    ptr::eq(mark.as_ptr(), &STRAY)
}

// === impl Domain ===

impl Domain {
    /// A mark for this thread; none without memory, or when the thread is ending.
    fn register(&self) -> Option<NonNull<Mark>> {
        let mut readers = self.readers.lock();
        let fenced = readers.is_fenced();
        readers.marks.try_reserve(1).ok()?;
        let mark = crate::list_lru::try_box(Mark::new(fenced))?;
        END.try_with(|_| ()).ok()?;
        let mark = NonNull::from(Box::leak(mark));
        readers.marks.push(Registered { mark: mark.as_ptr(), thread: Some(heavy_fence::thread()) });
        MARK.set(mark.as_ptr());
        Some(mark)
    }

    /// Unregisters the calling thread's mark, and frees it.
    ///
    /// # Safety
    ///
    /// The mark is the calling thread's, which has no guards.
    unsafe fn take_back(&self, mark: *const Mark) {
        MARK.set(ptr::null());
        self.readers.lock().marks.retain(|other| other.mark != mark);
        // SAFETY: `register` got the pointer from a box. `MARK`, the readers and (by this
        // function's clause) guards no longer lead to the mark, so no other call frees or uses it.
        drop(unsafe { Box::from_raw(mark.cast_mut()) });
    }

    /// Keeps the calling thread's mark registered for guards that outlive the thread.
    fn keep(&self, mark: *const Mark) {
        let mut readers = self.readers.lock();
        let kept = readers.marks.iter_mut().find(|other| other.mark == mark);
        // The id of a thread that has ended may become that of another thread.
        kept.expect("a mark is registered until it is freed").thread = None;
    }

    fn collect(&'static self) {
        let (mut earlier, mut later) = {
            let mut garbage = self.garbage.lock();
            if garbage.queues.len() == 0 && garbage.sealed.is_none() {
                return;
            }
            let stamp = self.time.stamp();
            self.time.move_on(stamp);
            garbage.due_at = BATCH;
            (garbage.sealed.take(), Sealed { queues: garbage.queues.take(), stamp })
        };
        // The later stamp first: its fence serves both.
        if self.is_reached(later.stamp) {
            if let Some(earlier) = earlier {
                later.queues.append(earlier.queues);
            }
            // SAFETY: the things were unreachable when time moved on, and by `is_reached` every
            // reader inside came in later.
            unsafe { later.queues.free() };
            return;
        }
        let is_past = |sealed: &mut Sealed| self.has_fence(sealed.stamp) && self.is_reached(sealed.stamp);
        let gone = earlier.take_if(is_past);
        self.garbage.lock().put_back(earlier, later);
        if let Some(gone) = gone {
            // SAFETY: the things were unreachable at their stamp, and by `is_reached` every reader
            // inside came in later.
            unsafe { gone.queues.free() };
        }
    }

    /// Has a heavy fence begun after time moved on from `stamp`?
    fn has_fence(&self, stamp: u64) -> bool {
        self.readers.lock().reached.has(stamp)
    }

    /// Has every reader left, or come in, after what is stamped so was unreachable? A heavy fence, unless one came later than the stamp.
    fn is_reached(&'static self, stamp: u64) -> bool {
        let mut readers = self.readers.lock();
        let fenced = readers.fenced;
        let heavy_fence = || {
            // SeqCst: the heavy fence, as the marks' table has it; enough by itself where readers bring theirs, and for strays.
            fence(Ordering::SeqCst);
            fenced != Some(false) || heavy_fence::run()
        };
        if !readers.reached.reach(stamp, &self.time, heavy_fence) {
            self.want_visit(&mut readers);
            return false;
        }
        // Acquire: meets the Release of a stray's end.
        self.strays.load(Ordering::Acquire) == 0
            // SAFETY: marks are live while they are registered, and the lock is held.
            && readers.marks.iter().all(|other| unsafe { &*other.mark }.is_past(stamp))
    }

    /// Wakes the visitor, as `membarrier` was refused. The visit serves a later call of
    /// [`is_reached`](Self::is_reached).
    #[cold]
    fn want_visit(&'static self, readers: &mut Readers) {
        // In the child of a fork there is no visitor, and the thread ids are those of the parent.
        if !readers.can_visit || readers.process != std::process::id() {
            readers.fences.refused += 1;
            return;
        }
        if readers.visitor == Visitor::None {
            // The new thread waits for the readers' lock, which is held here.
            let visitor = std::thread::Builder::new().name("lowwater-fence".into()).spawn(|| self.visit_for_ever());
            if visitor.is_err() {
                readers.fences.refused += 1;
                return;
            }
        }
        readers.visitor = Visitor::Wanted;
        self.is_wanted.notify_one();
    }

    /// The visitor.
    fn visit_for_ever(&self) -> ! {
        loop {
            let mut readers = self.readers.lock();
            while readers.visitor != Visitor::Wanted {
                self.is_wanted.wait(&mut readers);
            }
            readers.visitor = Visitor::Idle;
            let now = before_fence(&self.time);
            let mut processors = Processors::new();
            let mut threads = readers.marks.iter().filter_map(|other| other.thread);
            let are_known = threads.all(|thread| processors.add(thread));
            drop(readers);
            // SeqCst: the heavy fence for strays, as in `is_reached`.
            fence(Ordering::SeqCst);
            let has_visited = are_known && processors.visit();
            let mut readers = self.readers.lock();
            if has_visited {
                readers.fences.visited += 1;
                readers.reached.complete(now);
            } else {
                readers.fences.refused += 1;
            }
        }
    }
}

impl Readers {
    /// Must readers bring fences? The first call registers for `membarrier`.
    fn is_fenced(&mut self) -> bool {
        *self.fenced.get_or_insert_with(|| {
            let fenced = !heavy_fence::register();
            self.process = std::process::id();
            self.can_visit = !fenced && heavy_fence::can_visit();
            fenced
        })
    }
}

/// The thread's end.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let mark = MARK.get();
        // SAFETY: `MARK` is null or leads to this thread's live mark: `take_back`, which frees it,
        // sets `MARK` to null.
        let Some(its) = (unsafe { mark.as_ref() }) else { return };
        if its.end_thread() {
            // SAFETY: the mark is this thread's, and `end_thread` returned that the thread has no
            // guards.
            unsafe { DOMAIN.take_back(mark) };
        } else {
            DOMAIN.keep(mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::thing::Thing;
    use super::*;
    use crate::sync::atomic::AtomicUsize;
    use crate::sync::Arc;

    fn retire(freed: &Arc<AtomicUsize>) {
        let thing = Box::into_raw(Box::new(Thing::new(freed.clone())));
        // SAFETY: nobody else knows it.
        unsafe { pin().retire(thing) };
    }

    #[test]
    fn nothing_is_freed_while_a_reader_that_was_there_before_is_inside() {
        let freed = Arc::new(AtomicUsize::new(0));
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let reader = std::thread::spawn(move || {
            let outer = pin();
            drop(pin());
            tell.send(()).unwrap();
            ended.recv().unwrap();
            drop(outer);
        });
        told.recv().unwrap();
        (0..2 * BATCH).for_each(|_| retire(&freed));
        flush();
        assert_eq!(freed.load(Ordering::Relaxed), 0);
        end.send(()).unwrap();
        reader.join().unwrap();
        // Other tests' readers come and go.
        while freed.load(Ordering::Relaxed) != 2 * BATCH {
            flush();
        }
    }

    #[test]
    fn what_is_retired_is_freed_by_those_who_retire() {
        let freed = Arc::new(AtomicUsize::new(0));
        // Other tests' readers come and go; nobody flushes for us.
        for retired in 1.. {
            retire(&freed);
            if freed.load(Ordering::Relaxed) != 0 {
                break;
            }
            if retired % BATCH == 0 {
                // One that was interrupted inside has to run for that.
                std::thread::yield_now();
            }
            assert!(retired < 10_000 * BATCH, "nothing is freed");
        }
    }

    #[test]
    fn a_thread_that_ends_may_still_pin() {
        struct Last(Arc<AtomicUsize>);
        impl Drop for Last {
            fn drop(&mut self) {
                retire(&self.0);
            }
        }
        std::thread_local! { static LAST: Cell<Option<Last>> = const { Cell::new(None) }; }
        let freed = Arc::new(AtomicUsize::new(0));
        let theirs = freed.clone();
        std::thread::spawn(move || {
            LAST.set(Some(Last(theirs)));
            drop(pin()); // So that `END` is made later, and ends earlier.
        })
        .join()
        .unwrap();
        while freed.load(Ordering::Relaxed) != 1 {
            flush();
        }
    }

    #[test]
    fn a_reader_without_a_mark_holds_back_what_it_may_have_seen() {
        struct Last(Option<Box<dyn FnOnce() + Send>>);
        impl Drop for Last {
            fn drop(&mut self) {
                let guard = pin();
                assert!(is_stray(guard.mark), "its mark was taken back before");
                drop(pin());
                self.0.take().unwrap()();
                drop(guard);
            }
        }
        std::thread_local! { static LAST: Cell<Option<Last>> = const { Cell::new(None) }; }
        let freed = Arc::new(AtomicUsize::new(0));
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let inside = move || {
            tell.send(()).unwrap();
            ended.recv().unwrap();
        };
        let reader = std::thread::spawn(move || {
            LAST.set(Some(Last(Some(Box::new(inside)))));
            drop(pin()); // So that `END` is made later, and ends earlier.
        });
        told.recv().unwrap();
        retire(&freed);
        flush();
        assert_eq!(freed.load(Ordering::Relaxed), 0);
        end.send(()).unwrap();
        reader.join().unwrap();
        // Other tests' readers come and go.
        while freed.load(Ordering::Relaxed) != 1 {
            flush();
        }
    }

    /// Leaks guards until a count of `bit` bits would overflow: earlier stamps stay held back, and
    /// no flag is set.
    #[test]
    fn no_number_of_leaked_guards_lets_a_reader_out() {
        for fenced in [false, true] {
            let (time, mark) = (Time::new(), Mark::new(fenced));
            mark.enter(&time);
            let stamp = time.stamp();
            time.move_on(stamp);
            let mut depth = 1;
            for bit in 8..61 {
                let leaked = (1 << bit) - 1 - depth;
                mark.leak(leaked);
                depth += leaked;
                for _ in 0..2 {
                    mark.enter(&time);
                    assert!(!mark.is_past(stamp), "2^{bit} guards are a reader");
                }
                for _ in 0..2 {
                    assert!(!mark.leave());
                    let duties = mark.leave_further();
                    assert!(!duties.is_due && !duties.has_ended && !mark.is_past(stamp));
                }
            }
            assert!(!mark.end_thread() && !mark.is_past(stamp));
        }
    }

    #[test]
    fn a_mark_is_taken_back_by_the_last_of_its_guards() {
        for fenced in [false, true] {
            let (time, mark) = (Time::new(), Mark::new(fenced));
            (0..3).for_each(|_| mark.enter(&time));
            mark.set_due();
            let stamp = time.stamp();
            time.move_on(stamp);
            assert!(!mark.end_thread(), "it has guards");
            mark.enter(&time);
            for guards in (0..4).rev() {
                assert!(!mark.leave(), "there is more to do than to leave");
                let duties = mark.leave_further();
                assert_eq!(
                    (duties.is_due, duties.has_ended, mark.is_past(stamp)),
                    (guards == 0, guards == 0, guards == 0)
                );
            }
            let idle = Mark::new(fenced);
            idle.enter(&time);
            assert!(idle.leave() != fenced && (!fenced || !idle.leave_further().has_ended));
            assert!(idle.end_thread(), "it has none");
        }
    }

    #[test]
    fn a_stamp_of_a_thread_that_ends_waits_for_its_guards() {
        struct Last(Option<Guard>, std::sync::mpsc::Sender<[bool; 3]>);
        impl Drop for Last {
            fn drop(&mut self) {
                let guard = self.0.take().unwrap();
                let inside = seal();
                let held = inside.is_past();
                drop(guard);
                // Without a mark, and outside.
                let outside = seal();
                while !outside.is_past() {
                    std::thread::yield_now();
                }
                let stray = pin();
                let after = seal();
                self.1.send([held, inside.is_past(), after.is_past()]).unwrap();
                drop(stray);
            }
        }
        std::thread_local! { static LAST: Cell<Option<Last>> = const { Cell::new(None) }; }
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            LAST.set(None); // So that it is destroyed after `END`.
            LAST.set(Some(Last(Some(pin()), tell)));
        })
        .join()
        .unwrap();
        let [held, left, stray] = told.recv().unwrap();
        // A stray holds all stamps back, also those from before it came.
        assert!(!held && !left && !stray);
    }

    #[test]
    fn what_could_not_be_freed_keeps_the_earlier_stamp() {
        fn things(count: usize, freed: &Arc<AtomicUsize>) -> Queues {
            let mut queues = Queues::new();
            for _ in 0..count {
                let thing = Box::into_raw(Box::new(Thing::new(freed.clone())));
                // SAFETY: nobody else knows it.
                unsafe { Thing::queue(&mut queues).push(thing) };
            }
            queues
        }
        let freed = Arc::new(AtomicUsize::new(0));
        let sealed = |count, stamp| Sealed { queues: things(count, &freed), stamp };
        let mut garbage = Garbage { queues: Queues::new(), sealed: None, due_at: BATCH };
        let look = |garbage: &Garbage| {
            let sealed = garbage.sealed.as_ref().map(|sealed| (sealed.queues.len(), sealed.stamp));
            (garbage.queues.len(), sealed, garbage.due_at)
        };
        garbage.put_back(None, sealed(0, 3));
        assert_eq!(look(&garbage), (0, None, BATCH));
        garbage.put_back(None, sealed(100, 4));
        assert_eq!(look(&garbage), (0, Some((100, 4)), 100));
        let earlier = garbage.sealed.take();
        garbage.put_back(earlier, sealed(50, 5));
        assert_eq!(look(&garbage), (50, Some((100, 4)), 200));
        // Two collections at once.
        garbage.put_back(None, sealed(10, 6));
        assert_eq!(look(&garbage), (50, Some((110, 6)), 210));
        garbage.put_back(None, sealed(0, 5));
        assert_eq!(look(&garbage), (50, Some((110, 6)), 210));
        // SAFETY: nobody else knows them.
        unsafe { garbage.queues.free() };
        // SAFETY: as for the others, nobody else knows them.
        unsafe { garbage.sealed.unwrap().queues.free() };
        assert_eq!(freed.load(Ordering::Relaxed), 160);
    }
}
