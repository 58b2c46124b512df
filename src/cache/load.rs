//! Loads: one load for all callers that miss the same key at the same time (single flight).
//!
//! `fill` has the public calls, `refresh` those that reload an entry before it has expired or while
//! it is stale, `retry_times` when they may try again, `ticket` a caller's load, `run_task` that of
//! a task, `single_flight` one leader and its followers, `publish_scope` the insert of a loaded
//! value, `wait_graph` the check for cycles. `by_ref` and `many` have further forms of the calls of
//! `fill`, and `filled` their result.
//!
//! A change must ensure that no caller waits, directly or through others, for its own load.

mod by_ref;
pub(crate) mod fill;
pub(crate) mod filled;
pub(crate) mod many;
mod publish_scope;
pub(crate) mod refresh;
pub(crate) mod retry_times;
#[cfg(feature = "async")]
mod run_task;
pub(crate) mod single_flight;
mod ticket;
mod wait_graph;
