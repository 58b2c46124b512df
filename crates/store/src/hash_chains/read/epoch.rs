//! The read side of hash chains in `std` builds: crossbeam-epoch.
//!
//! crossbeam-epoch frees retired objects when a thread flushes, or pins: at every 128th pin of a
//! thread, and at every pin of a thread that is ending and has lost its thread-locals. If an
//! object's `Drop` pins, each pin of an ending thread would free the next object inside the `Drop`
//! of the previous one, ever deeper in the stack. So of nested calls that free objects on one
//! thread, only the outermost frees; the nested ones queue their objects in its [`Frame`].
//!
//! `count.rs` has the same interface for the other builds.
//!
//! A change must ensure that frees do not nest on one thread while there is memory to queue them,
//! and that no `free` panics: `FRAME` would point to a frame that is gone.

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ptr;

std::thread_local! {
    /// The outermost freeing call on this thread; null if there is none. Without a destructor, so
    /// that it can be used until the thread's end.
    static FRAME: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// A deferred call: an argument and a function.
type Call = (*mut (), unsafe fn(*mut ()));

/// The frame of a freeing call: the calls that nested calls leave to it.
struct Frame(RefCell<Vec<Call>>);

/// Proof that the thread is inside the read side.
pub(in crate::hash_chains) struct Guard(crossbeam_epoch::Guard);

/// Enters the read side. Cheap if the thread is inside already.
#[inline]
pub(in crate::hash_chains) fn pin() -> Guard {
    Guard(crossbeam_epoch::pin())
}

impl Guard {
    /// Calls `free(ptr)` once every reader that may have seen the object at `ptr` has left.
    ///
    /// # Safety
    ///
    /// The object at `ptr` is unreachable for readers that pin from now on; `free` may be called
    /// with it once, on any thread, and does not panic.
    pub(in crate::hash_chains) unsafe fn retire_by(&self, ptr: *mut (), free: unsafe fn(*mut ())) {
        let call = move || {
            // SAFETY: this runs once, after all readers have left that may have seen the object, so
            // the caller's clauses hold.
            unsafe { run((ptr, free)) };
        };
        // SAFETY: `call` may run on another thread (the caller's clause on `free`). It borrows
        // nothing.
        unsafe { self.0.defer_unchecked(call) };
    }

    /// Hands this thread's retired objects over, so that any thread that pins later frees them, and
    /// frees objects whose readers have left. Without a flush, the last few wait until this thread
    /// retires more, or ends.
    pub(in crate::hash_chains) fn flush(&self) {
        self.0.flush();
    }
}

/// Calls `free(ptr)`, or leaves the call to an enclosing `run` on the same thread.
///
/// # Safety
///
/// No reader uses the object at `ptr`; `free` may be called with it once, on this thread, and does
/// not panic.
unsafe fn run(call: Call) {
    let outer = FRAME.get();
    if !outer.is_null() {
        // SAFETY: a frame is on the stack of a call on this thread until that call has reset
        // `FRAME`.
        let mut pending = unsafe { &*outer }.0.borrow_mut();
        if pending.try_reserve(1).is_ok() {
            return pending.push(call);
        }
        // Without memory to queue the call, it is made here, deeper in the stack.
    }
    let frame = Frame(RefCell::new(Vec::new()));
    FRAME.set(&frame);
    let mut next = Some(call);
    while let Some((ptr, free)) = next {
        // SAFETY: each call is taken once: the caller's own, and the calls that nested `run`s left
        // here under the same clauses.
        unsafe { free(ptr) };
        next = frame.0.borrow_mut().pop();
    }
    FRAME.set(outer);
}
