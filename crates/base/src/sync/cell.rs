//! A cell whose accesses loom checks.
//!
//! Code that a model check covers accesses shared data through this cell, so that loom reports a
//! data race; in other builds it compiles to the plain access.
//!
//! A change must ensure that the plain version has no method that loom's lacks, and costs nothing.

#[cfg(not(lowwater_loom))]
mod imp {
    /// [`core::cell::UnsafeCell`] with loom's closure interface: under loom each access is checked
    /// against all others.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Creates a cell that contains `value`.
        #[inline]
        pub const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        /// Calls `f` with a pointer for reading.
        #[inline]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Calls `f` with a pointer for reading and writing.
        #[inline]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(lowwater_loom)]
mod imp {
    pub use ::loom::cell::UnsafeCell;
}

pub use imp::UnsafeCell;
