//! Wrong on purpose: a model check that cannot fail proves nothing.
//!
//! A place whose ordering matters asks [`mutated!`](crate::mutated) by name before it does its duty. In every build but the
//! model checks' the answer is the constant `false` and the question disappears. A model check runs itself once as the code
//! stands, and once inside `with_mutant` under the name of each fault, and the second run must fail.

/// Is the fault `name` switched on for the model check that runs now? Constant `false` outside loom builds.
#[doc(hidden)]
#[macro_export]
macro_rules! mutated {
    ($name:literal) => {
        $crate::sync::mutated($name)
    };
}

/// The function behind [`mutated!`](crate::mutated).
#[cfg(not(lowwater_loom))]
#[inline(always)]
pub const fn mutated(_name: &str) -> bool {
    false
}

#[cfg(lowwater_loom)]
mod imp {
    extern crate std;
    use core::cell::Cell;

    // loom runs all threads of a model on the OS thread of the test that started it, so this is one cell per model check.
    std::thread_local! { static ACTIVE: Cell<&'static str> = const { Cell::new("") }; }

    /// The function behind [`mutated!`](crate::mutated).
    pub fn mutated(name: &str) -> bool {
        ACTIVE.with(|a| a.get() == name)
    }

    /// Runs `check` with the fault `name` switched on; for `#[should_panic]` twins.
    pub fn with_mutant(name: &'static str, check: impl FnOnce()) {
        struct Off;
        impl Drop for Off {
            fn drop(&mut self) {
                ACTIVE.with(|a| a.set(""));
            }
        }
        let _off = Off;
        ACTIVE.with(|a| a.set(name));
        check();
    }
}

#[cfg(lowwater_loom)]
pub use imp::{mutated, with_mutant};
