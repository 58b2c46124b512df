//! User space: crossbeam-epoch.
//!
//! The library frees where a thread pins, and a thread whose locals are gone pins anew each time: an object's `Drop` that pins there would
//! have the next one dropped, and so on, each deeper in the stack. So of nested calls on one thread only the first frees ([`Frame`]).

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ptr;

std::thread_local! {
    /// The call on this thread that frees; null: none. No destructor, so that it is there until the thread's end.
    static FRAME: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// What is to be called with what.
type Call = (*mut (), unsafe fn(*mut ()));

/// Of a call that frees, what calls inside of it leave to it.
struct Frame(RefCell<Vec<Call>>);

/// Proof that the thread is inside the read side.
pub(in crate::hash_chains) struct Guard(crossbeam_epoch::Guard);

/// Enters the read side. Cheap when the thread is inside already.
#[inline]
pub(in crate::hash_chains) fn pin() -> Guard {
    Guard(crossbeam_epoch::pin())
}

impl Guard {
    /// Calls `free(ptr)` once every reader that may have seen what `ptr` names is gone.
    ///
    /// # Safety
    ///
    /// What `ptr` names is unreachable for readers that pin from now on; `free` may be called with it once, on any thread, and
    /// does not panic.
    pub(in crate::hash_chains) unsafe fn retire_by(&self, ptr: *mut (), free: unsafe fn(*mut ())) {
        let call = move || {
            // SAFETY: this runs once, after the readers have left, so what the caller promised holds.
            unsafe { run((ptr, free)) };
        };
        // SAFETY: `call` may run on another thread by the caller's promise on `free`. It borrows nothing.
        unsafe { self.0.defer_unchecked(call) };
    }

    /// Has what this thread retired freed by whoever pins later: else the last few wait until it retires more, or ends.
    pub(in crate::hash_chains) fn flush(&self) {
        self.0.flush();
    }
}

/// Calls `free(ptr)`, or has it called by the call of this on the same thread that is under way.
///
/// # Safety
///
/// No reader sees what `ptr` names; `free` may be called with it once, on this thread, and does not panic.
unsafe fn run(call: Call) {
    let outer = FRAME.get();
    if !outer.is_null() {
        // SAFETY: a frame is there until its call has set `FRAME` back.
        let mut pending = unsafe { &*outer }.0.borrow_mut();
        if pending.try_reserve(1).is_ok() {
            return pending.push(call);
        }
        // Without memory for one more the stack has to do.
    }
    let frame = Frame(RefCell::new(Vec::new()));
    FRAME.set(&frame);
    let mut next = Some(call);
    while let Some((ptr, free)) = next {
        // SAFETY: each is taken once: the caller's own, and those that calls inside of this one were made with, and left here.
        unsafe { free(ptr) };
        next = frame.0.borrow_mut().pop();
    }
    FRAME.set(outer);
}
