//! Objects whose `Drop` retires others of their type, which drop others in turn: calls that drop objects do not nest on one thread.
//!
//! The outermost of them on the thread has a frame on its stack, and what calls inside of it would drop they leave there. So the stack is no
//! deeper than there are types of objects that drop each other, in however many slabs. What is left in a frame has its slot still, and so
//! its slab's shared part, whatever becomes of the slab.
//!
//! Without `std` no thread has memory of its own: there (and in a model check) a thread_cache knows that somebody drops what is of it, and others,
//! nested or beside him, leave theirs to him ([`ThreadCache::pending`](super::thread_cache::ThreadCache::pending)). So one call may be inside another for each
//! slab, and each thread_cache of it where a thread moves between processors.

#[cfg(all(feature = "std", not(lowwater_loom)))]
pub(super) use frame::{leave_to_outer, Frame};

#[cfg(all(feature = "std", not(lowwater_loom)))]
mod frame {
    use crate::slab::bag::Bag;
    use core::any::TypeId;
    use core::cell::{Cell, RefCell};
    use core::ptr::{self, NonNull};
    use lowwater_lru_core::list::{Hook, LinkLayout};

    std::thread_local! {
        /// The innermost frame of this thread; null: none. No destructor, so that it is there until the thread's end.
        static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
    }

    /// Of a call that drops objects of one type, what calls inside of it leave to it.
    pub(in crate::slab) struct Frame {
        of: TypeId,
        pending: RefCell<Bag>,
        outer: *const Frame,
    }

    impl Frame {
        /// Calls `f` with a frame for objects of this type, which are left to it until `f` returns.
        #[inline]
        pub(in crate::slab) fn with<T: 'static>(f: impl FnOnce(&Self)) {
            let outer = INNERMOST.get();
            let frame = Self { of: TypeId::of::<T>(), pending: RefCell::new(Bag::new()), outer };
            /// Takes the frame off, though `f` should panic.
            struct Off(*const Frame);
            impl Drop for Off {
                #[inline]
                fn drop(&mut self) {
                    INNERMOST.set(self.0);
                }
            }
            let _off = Off(outer);
            INNERMOST.set(&frame);
            f(&frame);
        }

        /// The next object that was left here.
        #[inline]
        pub(in crate::slab) fn pop(&self, shape: &LinkLayout) -> Option<NonNull<Hook>> {
            self.pending.borrow_mut().pop(shape)
        }
    }

    /// Leaves objects of this type to the call on this thread that drops such; false if there is none. An object is taken from the bag only
    /// where there is one.
    #[inline]
    pub(in crate::slab) fn leave_to_outer<T: 'static>(shape: &LinkLayout, bag: impl FnOnce() -> Bag) -> bool {
        let innermost = INNERMOST.get();
        if innermost.is_null() {
            return false;
        }
        leave_to(innermost, TypeId::of::<T>(), shape, bag)
    }

    #[cold]
    fn leave_to(innermost: *const Frame, of: TypeId, shape: &LinkLayout, bag: impl FnOnce() -> Bag) -> bool {
        let mut at = innermost;
        // SAFETY: frames that `INNERMOST` leads to are on this thread's stack, below the call that is made now: each is taken off before its
        // call returns.
        while let Some(frame) = unsafe { at.as_ref() } {
            if frame.of == of {
                frame.pending.borrow_mut().append(shape, &mut bag());
                return true;
            }
            at = frame.outer;
        }
        false
    }
}
