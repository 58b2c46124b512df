//! The read side for builds without `std` and for loom: readers are counted ([`ReaderCount`]).
//!
//! The interface is that of `epoch.rs`; a change of the interface must be made in both. The queue
//! of retired objects is one place and a vector. So without memory an object is still freed if no
//! other one waits for readers; else, if the vector cannot grow, the object leaks.

use alloc::vec::{self, Vec};
use core::iter::Chain;
use core::marker::PhantomData;
use core::option;
use lowwater_rcu::reader_count::{Garbage, ReaderCount};

/// A deferred call of `free(ptr)`, which frees one retired object.
struct Call {
    ptr: *mut (),
    free: unsafe fn(*mut ()),
}

// SAFETY: the clause of `retire_by`: the call may be made on any thread.
unsafe impl Send for Call {}

/// Deferred calls that wait for readers.
struct Calls {
    /// The first call, which needs no memory.
    first: Option<Call>,
    /// The other calls.
    more: Vec<Call>,
}

impl Calls {
    const fn new() -> Self {
        Self { first: None, more: Vec::new() }
    }

    /// Adds a call. Without memory for it, and with another call waiting, it is lost.
    fn push(&mut self, call: Call) {
        if self.first.is_none() {
            self.first = Some(call);
        } else if self.more.try_reserve(1).is_ok() {
            self.more.push(call);
        }
    }
}

impl Garbage for Calls {
    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }

    unsafe fn free(self) {
        /// Makes the remaining calls even if one of them panics. The panic then goes on to the
        /// caller, since it cannot be caught without `std`.
        struct Rest(Chain<option::IntoIter<Call>, vec::IntoIter<Call>>);
        impl Rest {
            fn free(&mut self) {
                for call in &mut self.0 {
                    // SAFETY: the caller's clause: no reader uses the object. Each call is taken
                    // from the iterator, so it is made once.
                    unsafe { (call.free)(call.ptr) };
                }
            }
        }
        impl Drop for Rest {
            fn drop(&mut self) {
                self.free();
            }
        }
        Rest(self.first.into_iter().chain(self.more)).free();
    }
}

#[cfg(not(lowwater_loom))]
static READERS: ReaderCount<Calls> = ReaderCount::new(Calls::new());

#[cfg(lowwater_loom)]
::loom::lazy_static! {
    static ref READERS: ReaderCount<Calls> = ReaderCount::new(Calls::new());
}

/// Proof that the thread is inside the read side. Not `Send`, as the guard of `std` builds is not:
/// enabling a feature must not remove a trait implementation.
pub(in crate::hash_chains) struct Guard(PhantomData<*const ()>);

/// Enters the read side.
pub(in crate::hash_chains) fn pin() -> Guard {
    READERS.enter();
    Guard(PhantomData)
}

impl Guard {
    /// Calls `free(ptr)` once every reader that may have seen the object at `ptr` has left. If
    /// other objects wait already, and there is no memory to record the call, it is never made and
    /// the object leaks.
    ///
    /// # Safety
    ///
    /// The object at `ptr` is unreachable for readers that enter from now on; `free` may be called
    /// with it once, on any thread.
    pub(in crate::hash_chains) unsafe fn retire_by(&self, ptr: *mut (), free: unsafe fn(*mut ())) {
        let push = |calls: &mut Calls| calls.push(Call { ptr, free });
        // SAFETY: the guard is inside, and the object at `ptr` is unreachable (this function's
        // clause).
        unsafe { READERS.put(push) };
    }
}

impl Guard {
    /// Frees waiting objects as soon as possible. Does nothing here: the exit of the last reader
    /// always frees them.
    pub(in crate::hash_chains) fn flush(&self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        // SAFETY: `pin` entered the read side, and the guard is dropped once.
        unsafe { READERS.leave() };
    }
}
