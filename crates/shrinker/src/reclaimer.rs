//! Background reclaim: one thread per node, which sleeps until a group should use less or its debts
//! are to be paid.
//!
//! ```text
//!     charge, limit, request --> WakeQueue --> thread of node n --> Job::step --> pass at a priority
//!                                      ^                               |
//!                                      +--- sleeps when every job is done, rests when nothing can be freed,
//!                                           and tries again while usage is above a limit
//! ```
//!
//! [`Job`] makes all decisions (priority, duration, done or hopeless) without thread or clock, so a
//! kernel thread can run it, and tests can step it. `WakeQueue` is the queue that loses no wake-up.
//! The thread exists with `std` only.
//!
//! A change must ensure that decisions stay in `Job`, which has no thread and no clock.

#[cfg(all(feature = "std", not(lowwater_loom)))]
mod given_up;
mod manual;
#[cfg(all(feature = "std", not(lowwater_loom)))]
mod pace;
mod reason;
mod step;
#[cfg(all(feature = "std", not(lowwater_loom)))]
mod thread;
#[cfg(any(all(feature = "std", not(lowwater_loom)), all(test, lowwater_loom)))]
mod wake;
mod watermark;

pub use reason::ReclaimReason;
pub use step::{Job, Step};
#[cfg(all(feature = "std", not(lowwater_loom)))]
pub use thread::{NodeStats, Reclaimer};
pub use watermark::Watermarks;
