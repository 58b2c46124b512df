//! [`ErasedArc`]: an `Arc` of a shared state, without the bounds of the state's type.
//!
//! If `State<T>` has bounds on `T`, a handle with a field `Arc<State<T>>` must repeat them, and so
//! must each type with such a handle in a field. [`ErasedArc`] owns the state as a trait object,
//! and has an untyped pointer to it in addition. A method casts the pointer back where the bounds
//! hold. An access costs one load, as with an `Arc`; a handle is three words.
//!
//! The parameter of an [`ErasedArc`] is a marker type, which exists without the bounds. The
//! marker's implementation of [`HasState`] has the bounds and gives the type of the state.
//!
//! A change must ensure that [`ErasedArc::new`] is the only constructor, and that the type is
//! invariant in its parameter.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

/// Gives the type of the state for a marker type.
///
/// The marker exists without the bounds of the state's type, as a struct with a field
/// `PhantomData<fn(T) -> T>` does; only the implementation of this trait has the bounds.
pub trait HasState {
    /// The type of the state to which the pointers of the marker point.
    type State;
}

/// A shared pointer to the state of a marker type; see the [module](self). Clones are pointers to
/// the same state, which is dropped with the last of them.
///
/// ```
/// use core::marker::PhantomData;
/// use lowwater_base::erased_arc::{ErasedArc, HasState};
///
/// #[derive(Debug)]
/// struct State<T: Send + Sync + 'static>(T);
///
/// struct Marker<T>(PhantomData<fn(T) -> T>);
/// impl<T: Send + Sync + 'static> HasState for Marker<T> {
///     type State = State<T>;
/// }
///
/// // Without bounds.
/// #[derive(Clone, Debug)]
/// struct Handle<T> {
///     state: ErasedArc<Marker<T>>,
/// }
/// impl<T: Send + Sync + 'static> Handle<T> {
///     fn get(&self) -> &T {
///         &self.state.0
///     }
/// }
/// let handle = Handle { state: ErasedArc::new(State(7)) };
/// assert_eq!(*handle.clone().get(), 7);
/// ```
///
/// The type is invariant, so that a pointer for one marker does not become one for a subtype of
/// that marker, whose state may have another type:
///
/// ```compile_fail,E0308
/// use core::marker::PhantomData;
/// use lowwater_base::erased_arc::ErasedArc;
///
/// type Any = ErasedArc<PhantomData<for<'a> fn(&'a u8)>>;
/// fn shorten(any: Any) -> ErasedArc<PhantomData<fn(&'static u8)>> {
///     any
/// }
/// ```
pub struct ErasedArc<M> {
    /// Points to the `M::State` in `owner`.
    state: NonNull<()>,
    owner: Arc<dyn Owner>,
    marker: PhantomData<fn(M) -> M>,
}

/// A state of any type.
trait Owner: fmt::Debug + Send + Sync {}

impl<T: fmt::Debug + Send + Sync> Owner for T {}

// SAFETY: the fields are a share of an `Owner`, which is Send and Sync, and a pointer to it.
unsafe impl<M> Send for ErasedArc<M> {}
// SAFETY: a shared pointer gives access to an `Owner` alone, which is Sync.
unsafe impl<M> Sync for ErasedArc<M> {}

impl<M: HasState> ErasedArc<M> {
    /// Creates the first pointer to a state. Aborts the process without memory, as [`Arc`] does.
    pub fn new(state: M::State) -> Self
    where
        M::State: fmt::Debug + Send + Sync + 'static,
    {
        let owner = Arc::new(state);
        // Not from a reference, whose permissions could end before those of the `Arc`.
        let state = NonNull::new(Arc::as_ptr(&owner).cast_mut()).expect("an Arc is not null").cast();
        Self { state, owner, marker: PhantomData }
    }
}

impl<M: HasState> Deref for ErasedArc<M> {
    type Target = M::State;

    #[inline]
    fn deref(&self) -> &M::State {
        // SAFETY: `new` is the only constructor, and the type is invariant in its parameter, so the
        // pointer is to an `M::State`: a type has one implementation of `HasState`. `owner` keeps
        // the state alive and in its place, and gives only shared access to it.
        unsafe { self.state.cast::<M::State>().as_ref() }
    }
}

impl<M> Clone for ErasedArc<M> {
    fn clone(&self) -> Self {
        Self { state: self.state, owner: Arc::clone(&self.owner), marker: PhantomData }
    }
}

impl<M> fmt::Debug for ErasedArc<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.owner.fmt(f)
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[derive(Debug)]
    #[repr(align(128))]
    struct Counted<T: Send + Sync + 'static>(T, Arc<AtomicUsize>);

    impl<T: Send + Sync + 'static> Drop for Counted<T> {
        fn drop(&mut self) {
            // Relaxed: read after the threads were joined.
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Marker<T>(PhantomData<fn(T) -> T>);

    impl<T: Send + Sync + 'static> HasState for Marker<T> {
        type State = Counted<T>;
    }

    #[test]
    fn the_last_of_the_clones_on_any_thread_drops_the_state_once() {
        let drops = Arc::new(AtomicUsize::new(0));
        let first = ErasedArc::<Marker<String>>::new(Counted(String::from("state"), Arc::clone(&drops)));
        let threads: alloc::vec::Vec<_> =
            (0..4).map(|_| first.clone()).map(|clone| thread::spawn(move || assert_eq!(clone.0, "state"))).collect();
        assert!(format!("{first:?}").contains("state"));
        assert!(core::ptr::from_ref::<Counted<String>>(&first).is_aligned());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        drop(first);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }
}
