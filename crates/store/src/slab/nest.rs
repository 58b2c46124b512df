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
//! As each call that retires an object, a nested one takes objects that are ready to be dropped;
//! but all calls that are nested in one take only
//! [`NESTED_MAX`](super::thread_cache::NESTED_MAX). An object that retires another one in its
//! `Drop`, as a value does that replaces itself, would otherwise keep its thread for ever. Objects
//! above the bound stay ready, and later calls drop them.
//!
//! Rejected: a bound on the depth, because another call must then count and drop the rest; and a
//! list of slabs with pending drops, because a slab may end meanwhile.
//!
//! A change must ensure that an object left in a frame is dropped by that frame's call even if
//! another object's drop panics, that a frame is never reachable after its call has returned, and
//! that nested calls leave a bounded number of ready objects to it.

#[cfg(all(feature = "std", not(lowwater_loom)))]
pub(super) use frame::{leave_to_outer, ready_max, Frame};

#[cfg(all(feature = "std", not(lowwater_loom)))]
mod frame {
    use crate::slab::bag::Bag;
    use crate::slab::thread_cache::NESTED_MAX;
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
        /// The number of ready objects that nested calls may still leave here.
        ready_max: Cell<u32>,
        /// The frame of the enclosing call, or null.
        outer: *const Frame,
    }

    impl Frame {
        /// Calls `f` with a frame for objects of type `T`, where nested calls leave such objects.
        /// `f` drops all of them ([`pop`](Self::pop)) before it returns.
        #[inline]
        pub(in crate::slab) fn with<T: 'static>(f: impl FnOnce(&Self)) {
            let outer = INNERMOST.get();
            let (pending, ready_max) = (RefCell::new(Bag::new()), Cell::new(NESTED_MAX));
            let frame = Self { of: TypeId::of::<T>(), pending, ready_max, outer };
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
    /// returns false if there is none. `bag` is called only if there is one, with the maximum
    /// number of ready objects; it may return others, which must be dropped, in addition.
    #[inline]
    pub(in crate::slab) fn leave_to_outer<T: 'static>(layout: &LinkLayout, bag: impl FnOnce(u32) -> Bag) -> bool {
        let innermost = INNERMOST.get();
        if innermost.is_null() {
            return false;
        }
        leave_to(innermost, TypeId::of::<T>(), layout, bag)
    }

    /// Returns the maximum number of ready objects of type `T` that the caller may take to drop
    /// them: no bound if there is no enclosing call.
    pub(in crate::slab) fn ready_max<T: 'static>() -> u32 {
        // SAFETY: as in `find`: the frame is on this thread's stack, below this call.
        unsafe { find(INNERMOST.get(), TypeId::of::<T>()) }.map_or(u32::MAX, |frame| frame.ready_max.get())
    }

    /// Leaves objects to the frame for their type. Returns false if there is none.
    #[cold]
    fn leave_to(innermost: *const Frame, of: TypeId, layout: &LinkLayout, bag: impl FnOnce(u32) -> Bag) -> bool {
        // SAFETY: the frames that `INNERMOST` leads to are on this thread's stack, below this call:
        // each is removed before its call returns.
        let Some(frame) = (unsafe { find(innermost, of) }) else { return false };
        let mut bag = bag(frame.ready_max.get());
        frame.ready_max.set(frame.ready_max.get().saturating_sub(bag.len));
        frame.pending.borrow_mut().append(layout, &mut bag);
        true
    }

    /// Finds the innermost frame for a type.
    ///
    /// # Safety
    ///
    /// `innermost` is null, or leads to frames that exist while the result is used.
    unsafe fn find<'a>(innermost: *const Frame, of: TypeId) -> Option<&'a Frame> {
        let mut at = innermost;
        // SAFETY: the caller's clause: the frames exist.
        while let Some(frame) = unsafe { at.as_ref() } {
            if frame.of == of {
                return Some(frame);
            }
            at = frame.outer;
        }
        None
    }
}
