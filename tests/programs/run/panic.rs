//! Panics that a program intends ([`IntendedPanic`]): caught, or passed on.
//!
//! A panic that the program did not intend is a failure, and aborts the process.
//!
//! A change must ensure that an unexpected panic is never caught.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

use crate::callback::IntendedPanic;
use crate::token::fail;

/// Runs a closure, and catches an intended panic.
pub fn catch_intended(f: impl FnOnce()) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { return };
    if payload.downcast_ref::<IntendedPanic>().is_none() {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("of unknown type");
        fail(&format!("a panic that is not ours: {text}"));
    }
}

/// Runs a closure. If it panics, runs `then`, which notes that the result is uncertain, and resumes
/// the panic.
pub fn or_panicked<R>(f: impl FnOnce() -> R, then: impl FnOnce()) -> R {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(payload) => {
            then();
            resume_unwind(payload)
        }
    }
}
