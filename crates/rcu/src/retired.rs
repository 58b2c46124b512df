//! Objects that can be retired: the trait [`Retired`], and the functions of each such type.
//!
//! The trait is unsafe because a queue links objects through `link` and frees them through `free`,
//! without knowing their type. A change must ensure that each implementor has its own `static`
//! kind: two types with one kind would be in one queue, and be freed as the same type.

use crate::sync::UnsafeCell;
use alloc::boxed::Box;

/// The functions by which objects of one type are queued and freed. One `static` for each type: its
/// address identifies the type. A process has at most [`KINDS_MAX`](crate::KINDS_MAX) of them.
#[derive(Debug)]
pub struct RetiredKind {
    pub(crate) next: unsafe fn(*mut ()) -> *mut (),
    pub(crate) set_next: unsafe fn(*mut (), *mut ()),
    pub(crate) free: unsafe fn(*mut ()),
    #[cfg(lowwater_loom)]
    pub(crate) assert_unread: unsafe fn(*mut ()),
}

impl RetiredKind {
    /// Creates the kind of `T`, for the one `static` that [`Retired::kind`] returns.
    pub const fn of<T: Retired>() -> Self {
        Self {
            next: next::<T>,
            set_next: set_next::<T>,
            free: free::<T>,
            #[cfg(lowwater_loom)]
            assert_unread: assert_unread::<T>,
        }
    }
}

/// An object that can be [retired](crate::Guard::retire): unlinked first, and freed when its grace
/// period is over.
///
/// # Safety
///
/// `kind` returns [`RetiredKind::of::<Self>()`](RetiredKind::of), always the same `static`. `link`
/// always returns the same part of the object, which no other code reads or writes once the object
/// is retired.
#[doc(alias = "rcu_head")]
pub unsafe trait Retired: Send + Sized + 'static {
    /// Whether a single object of this type justifies a heavy fence; the others wait for a full
    /// batch.
    const IS_LARGE: bool = false;

    /// Returns the `static` with the kind of this type, the same at every call.
    fn kind() -> &'static RetiredKind;

    /// Returns the link by which retired objects are queued.
    fn link(&self) -> &UnsafeCell<*mut Self>;

    /// Frees the object; by default, drops it as a box.
    ///
    /// # Safety
    ///
    /// The object was retired, and its grace period is over.
    unsafe fn free(this: *mut Self) {
        // SAFETY: an object whose type does not override this came from a box (clause of
        // `Guard::retire`), and no thread uses it.
        drop(unsafe { Box::from_raw(this) });
    }

    /// Reports to loom that the object is freed, so that loom detects a reader that may still
    /// access it.
    ///
    /// # Safety
    ///
    /// The clause of [`free`](Self::free).
    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self);
}

/// Returns the object after `this`.
///
/// # Safety
///
/// `this` is a live `T` that is queued.
unsafe fn next<T: Retired>(this: *mut ()) -> *mut () {
    // SAFETY: `this` is a live `T` (this function's clause).
    let link = unsafe { &*this.cast::<T>() }.link();
    // SAFETY: only the queue uses the link of a retired object.
    link.with(|next| unsafe { *next }).cast()
}

/// Links `next` after `this`.
///
/// # Safety
///
/// `this` is a live `T` that is retired, and `next` is null or one as well.
unsafe fn set_next<T: Retired>(this: *mut (), next: *mut ()) {
    // SAFETY: `this` is a live `T` (this function's clause).
    let link = unsafe { &*this.cast::<T>() }.link();
    // SAFETY: only the queue uses the link of a retired object.
    link.with_mut(|place| unsafe { *place = next.cast() });
}

/// Frees the object by [`Retired::free`].
///
/// # Safety
///
/// `this` is a `T`, and the clause of [`Retired::free`] holds.
unsafe fn free<T: Retired>(this: *mut ()) {
    // SAFETY: `this` is a `T`, and the clause of `Retired::free` holds (this function's clause).
    unsafe { T::free(this.cast()) };
}

/// Calls [`Retired::assert_unread`].
///
/// # Safety
///
/// The clause of [`free`].
#[cfg(lowwater_loom)]
unsafe fn assert_unread<T: Retired>(this: *mut ()) {
    // SAFETY: `this` is a `T`, and the clause of `Retired::assert_unread` holds (this function's
    // clause).
    unsafe { T::assert_unread(this.cast()) };
}
