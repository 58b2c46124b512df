//! Intended panics: caught, or passed on.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

use crate::callback::IntendedPanic;
use crate::token::fail;

/// Runs a closure that may panic on purpose.
pub fn catch_intended(f: impl FnOnce()) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { return };
    if payload.downcast_ref::<IntendedPanic>().is_none() {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("of unknown type");
        fail(&format!("a panic that is not ours: {text}"));
    }
}

/// Runs a closure that may panic on purpose, and `then` if it did.
pub fn or_panicked<R>(f: impl FnOnce() -> R, then: impl FnOnce()) -> R {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(payload) => {
            then();
            resume_unwind(payload)
        }
    }
}
