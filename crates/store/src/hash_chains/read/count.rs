//! Readers are counted ([`ReaderCount`]).

use alloc::vec::Vec;
use core::marker::PhantomData;
use lowwater_rcu::reader_count::{Garbage, ReaderCount};

/// What is to be called with what.
struct Call {
    ptr: *mut (),
    free: unsafe fn(*mut ()),
}

// SAFETY: only things that another thread may free are retired (a promise to `retire_by`).
unsafe impl Send for Call {}

/// Calls that wait for readers.
struct Calls(Vec<Call>);

impl Garbage for Calls {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self) -> Self {
        Self(core::mem::take(&mut self.0))
    }

    unsafe fn free(self) {
        /// The others are freed though one panics, which without `std` goes on to the caller.
        struct Rest(alloc::vec::IntoIter<Call>);
        impl Rest {
            fn free(&mut self) {
                for call in &mut self.0 {
                    // SAFETY: by the caller's promise no reader sees it; and it is called once, as it is taken out.
                    unsafe { (call.free)(call.ptr) };
                }
            }
        }
        impl Drop for Rest {
            fn drop(&mut self) {
                self.free();
            }
        }
        Rest(self.0.into_iter()).free();
    }
}

#[cfg(not(lowwater_loom))]
static READERS: ReaderCount<Calls> = ReaderCount::new(Calls(Vec::new()));

#[cfg(lowwater_loom)]
::loom::lazy_static! {
    static ref READERS: ReaderCount<Calls> = ReaderCount::new(Calls(Vec::new()));
}

/// Proof that the thread is inside the read side. Not `Send`, as `std` builds' guards are not: a
/// feature must not remove an implementation.
pub(in crate::hash_chains) struct Guard(PhantomData<*const ()>);

/// Enters the read side.
pub(in crate::hash_chains) fn pin() -> Guard {
    READERS.enter();
    Guard(PhantomData)
}

impl Guard {
    /// Calls `free(ptr)` once every reader that may have seen what `ptr` names is gone. Where no memory is left to remember it,
    /// that never happens.
    ///
    /// # Safety
    ///
    /// What `ptr` names is unreachable for readers that pin from now on; `free` may be called with it once, on any thread.
    pub(in crate::hash_chains) unsafe fn retire_by(&self, ptr: *mut (), free: unsafe fn(*mut ())) {
        let push = |Calls(garbage): &mut Calls| {
            if garbage.try_reserve(1).is_ok() {
                garbage.push(Call { ptr, free });
            }
        };
        // SAFETY: the guard is inside, and what `ptr` names is unreachable (this function's clause).
        unsafe { READERS.put(push) };
    }
}

impl Guard {
    /// Has what waits freed as soon as it can be: here it always is.
    pub(in crate::hash_chains) fn flush(&self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        // SAFETY: the guard entered, and is dropped once.
        unsafe { READERS.leave() };
    }
}
