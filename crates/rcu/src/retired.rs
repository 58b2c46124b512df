//! Objects that can be retired.

use crate::sync::UnsafeCell;
use alloc::boxed::Box;

/// How the objects of one type are queued and freed. One `static` for each type: its address
/// identifies the type. A process has at most [`KINDS_MAX`](crate::KINDS_MAX) of them.
#[derive(Debug)]
pub struct RetiredKind {
    pub(crate) next: unsafe fn(*mut ()) -> *mut (),
    pub(crate) set_next: unsafe fn(*mut (), *mut ()),
    pub(crate) free: unsafe fn(*mut ()),
    #[cfg(lowwater_loom)]
    pub(crate) assert_unread: unsafe fn(*mut ()),
}

impl RetiredKind {
    /// The kind of `T`.
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
/// returns always the same part of the object, which no other code reads or writes once the object is retired.
#[doc(alias = "rcu_head")]
pub unsafe trait Retired: Send + Sized + 'static {
    /// Is one object by itself worth a heavy fence?
    const IS_LARGE: bool = false;

    /// The kind of this type.
    fn kind() -> &'static RetiredKind;

    /// The link by which retired objects are queued.
    fn link(&self) -> &UnsafeCell<*mut Self>;

    /// Frees the object: a box by default.
    ///
    /// # Safety
    ///
    /// The object was retired, and its grace period is over.
    unsafe fn free(this: *mut Self) {
        // SAFETY: an object that does not override this came from a box (clause of `Guard::retire`), and nobody uses it.
        drop(unsafe { Box::from_raw(this) });
    }

    /// Tells a model checker that the object is freed, so that it finds a reader that may still read it.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free).
    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self);
}

/// # Safety
///
/// `this` is a live `T` that is queued.
unsafe fn next<T: Retired>(this: *mut ()) -> *mut () {
    // SAFETY: it is a live `T` (clause of this function).
    let link = unsafe { &*this.cast::<T>() }.link();
    // SAFETY: the queue alone uses the link of a retired object.
    link.with(|next| unsafe { *next }).cast()
}

/// # Safety
///
/// `this` is a live `T` that is retired, and `next` is null or one as well.
unsafe fn set_next<T: Retired>(this: *mut (), next: *mut ()) {
    // SAFETY: it is a live `T` (clause of this function).
    let link = unsafe { &*this.cast::<T>() }.link();
    // SAFETY: the queue alone uses the link of a retired object.
    link.with_mut(|place| unsafe { *place = next.cast() });
}

/// # Safety
///
/// `this` is a `T`, and the clause of [`Retired::free`].
unsafe fn free<T: Retired>(this: *mut ()) {
    // SAFETY: the clause of this function.
    unsafe { T::free(this.cast()) };
}

/// # Safety
///
/// As for [`free`].
#[cfg(lowwater_loom)]
unsafe fn assert_unread<T: Retired>(this: *mut ()) {
    // SAFETY: the clause of this function.
    unsafe { T::assert_unread(this.cast()) };
}
