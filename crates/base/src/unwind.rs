//! Calls of user code that may panic: [`caught`] stops the panic, [`to_the_end`] and [`AtEnd`]
//! finish other work before the panic continues.
//!
//! While a thread unwinds, no second panic may leave a `Drop`: that aborts the process. Without
//! `std` no panic can be caught. When a model check of loom fails, its unwinding skips the work.
//!
//! A change must ensure that the first panic is the one that continues.

/// Calls `f`. Returns `None` if it panicked; a panic of the payload's own `Drop` is caught, too.
///
/// Without `std` a panic cannot be caught.
#[cfg(any(feature = "std", lowwater_loom))]
pub fn caught<R>(f: impl FnOnce() -> R) -> Option<R> {
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;

    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => Some(result),
        Err(payload) => {
            discard(payload);
            None
        }
    }
}

/// Drops a panic's payload: a value of any type, with a `Drop` that is user code. If that `Drop`
/// panics, the second payload is leaked: its `Drop` may panic as well, without end.
#[cfg(any(feature = "std", lowwater_loom))]
fn discard(payload: alloc::boxed::Box<dyn core::any::Any + Send>) {
    if let Err(second) = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| drop(payload))) {
        core::mem::forget(second);
    }
}

/// Calls `f`. Without `std` a panic cannot be caught.
#[cfg(not(any(feature = "std", lowwater_loom)))]
pub fn caught<R>(f: impl FnOnce() -> R) -> Option<R> {
    Some(f())
}

/// Calls `step` until it returns false. A call that panics is treated as one that returns true, so
/// `step` must have made progress before it panics.
///
/// # Panics
///
/// With the first panic of `step`, after the last call, unless the thread unwinds already.
#[cfg(all(feature = "std", not(lowwater_loom)))]
pub fn to_the_end(mut step: impl FnMut() -> bool) {
    use core::panic::AssertUnwindSafe;
    use std::panic::{catch_unwind, resume_unwind};

    let mut first = None;
    loop {
        match catch_unwind(AssertUnwindSafe(&mut step)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(panic) if first.is_none() => first = Some(panic),
            Err(panic) => discard(panic),
        }
    }
    match first {
        Some(panic) if std::thread::panicking() => discard(panic),
        Some(panic) => resume_unwind(panic),
        None => {}
    }
}

/// Calls `step` until it returns false. A call that panics is treated as one that returns true, so
/// `step` must have made progress before it panics. A second panic aborts, as none can be caught.
#[cfg(not(all(feature = "std", not(lowwater_loom))))]
pub fn to_the_end(step: impl FnMut() -> bool) {
    struct Steps<F: FnMut() -> bool>(F);
    impl<F: FnMut() -> bool> Steps<F> {
        fn run(&mut self) {
            while (self.0)() {}
        }
    }
    impl<F: FnMut() -> bool> Drop for Steps<F> {
        // Runs only while a panic of a step unwinds: otherwise `steps` is forgotten.
        fn drop(&mut self) {
            #[cfg(lowwater_loom)]
            if crate::sync::unwinding() {
                return;
            }
            self.run();
        }
    }
    let mut steps = Steps(step);
    steps.run();
    core::mem::forget(steps);
}

/// A guard that calls a function when it is dropped, also during a panic.
pub struct AtEnd<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for AtEnd<F> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        (self.0)();
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::to_the_end;
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;

    #[test]
    #[cfg_attr(panic = "abort", ignore = "it catches a panic")]
    fn all_steps_run_even_if_one_panics() {
        let mut steps = 0;
        let died = catch_unwind(AssertUnwindSafe(|| {
            to_the_end(|| {
                steps += 1;
                assert_ne!(steps, 3, "the step's own fault");
                steps < 5
            });
        }));
        assert!(died.is_err());
        assert_eq!(steps, 5);
    }

    #[test]
    #[cfg(feature = "std")]
    fn a_payload_that_panics_is_no_panic_of_the_caller() {
        struct Payload;
        impl Drop for Payload {
            fn drop(&mut self) {
                std::panic::resume_unwind(alloc::boxed::Box::new(Payload));
            }
        }
        assert!(super::caught(|| std::panic::resume_unwind(alloc::boxed::Box::new(Payload))).is_none());
        assert!(super::caught(|| ()).is_some());
    }

    #[test]
    #[cfg(feature = "std")]
    fn the_first_of_several_panics_is_resumed() {
        let mut steps = 0;
        let mut each_panics = || {
            to_the_end(|| {
                steps += 1;
                if steps % 10 == 0 {
                    return false;
                }
                std::panic::panic_any(steps)
            });
        };
        let first = catch_unwind(AssertUnwindSafe(&mut each_panics)).expect_err("each step panics");
        assert_eq!(first.downcast_ref(), Some(&1));
        let other = catch_unwind(AssertUnwindSafe(|| {
            let _at_end = super::AtEnd(each_panics);
            std::panic::panic_any("another");
        }));
        assert_eq!(other.expect_err("it panics").downcast_ref(), Some(&"another"));
        assert_eq!(steps, 20);
    }
}
