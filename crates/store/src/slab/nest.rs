//! Bounded stack for objects that retire other objects of their type in their `Drop`: calls that
//! drop objects of one type do not nest on one thread.
//!
//! The outermost call on a thread that drops objects of a type has a frame on its stack, and nested
//! calls for the same type leave their objects in that frame. So the stack is no deeper than there
//! are types of objects that drop each other, however many slabs there are. An object in a frame
//! still has its slot, and so keeps its slab's shared part alive, even if the slab is dropped.
//!
//! Without `std` there is no thread-local storage. There (and in a model check) a thread cache
//! records that a thread is dropping its objects, and other calls, nested or concurrent, leave
//! theirs to that thread ([`ThreadCache::pending`](super::thread_cache::ThreadCache::pending)). So
//! one call may be nested in another for each slab, and for each of its thread caches if a thread
//! moves between processors.
//!
//! Rejected: a bound on the depth, because another call must then count and drop the rest; and a
//! list of slabs with pending drops, because a slab may end meanwhile.
//!
//! A change must ensure that an object left in a frame is dropped by that frame's call even if
//! another object's drop panics, and that a frame is never reachable after its call has returned.

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
        /// The innermost frame of this thread; null if there is none. Without a destructor, so that
        /// it can be used until the thread's end.
        static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
    }

    /// The frame of a call that drops objects of one type: the objects that nested calls leave to
    /// it.
    pub(in crate::slab) struct Frame {
        /// The type of the objects.
        of: TypeId,
        pending: RefCell<Bag>,
        /// The frame of the enclosing call, or null.
        outer: *const Frame,
    }

    impl Frame {
        /// Calls `f` with a frame for objects of type `T`, where nested calls leave such objects.
        /// `f` drops all of them ([`pop`](Self::pop)) before it returns.
        #[inline]
        pub(in crate::slab) fn with<T: 'static>(f: impl FnOnce(&Self)) {
            let outer = INNERMOST.get();
            let frame = Self { of: TypeId::of::<T>(), pending: RefCell::new(Bag::new()), outer };
            /// Removes the frame even if `f` panics.
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

        /// Takes the next object that a nested call left here.
        #[inline]
        pub(in crate::slab) fn pop(&self, layout: &LinkLayout) -> Option<NonNull<Hook>> {
            self.pending.borrow_mut().pop(layout)
        }
    }

    /// Leaves objects of type `T` to the enclosing call on this thread that drops such objects;
    /// returns false if there is none. `bag` is called only if there is one.
    #[inline]
    pub(in crate::slab) fn leave_to_outer<T: 'static>(layout: &LinkLayout, bag: impl FnOnce() -> Bag) -> bool {
        let innermost = INNERMOST.get();
        if innermost.is_null() {
            return false;
        }
        leave_to(innermost, TypeId::of::<T>(), layout, bag)
    }

    /// Leaves objects to the frame for their type. Returns false if there is none.
    #[cold]
    fn leave_to(innermost: *const Frame, of: TypeId, layout: &LinkLayout, bag: impl FnOnce() -> Bag) -> bool {
        let mut at = innermost;
        // SAFETY: the frames that `INNERMOST` leads to are on this thread's stack, below this call:
        // each is removed before its call returns.
        while let Some(frame) = unsafe { at.as_ref() } {
            if frame.of == of {
                frame.pending.borrow_mut().append(layout, &mut bag());
                return true;
            }
            at = frame.outer;
        }
        false
    }
}
