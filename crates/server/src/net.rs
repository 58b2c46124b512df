//! Sockets, file descriptors, and the input and output buffers of connections.
//!
//! Below the commands: nothing here knows keys, values' meaning or the store, except that output
//! may reference a value.
//!
//! A change must keep this direction of dependence.

mod buffer_pool;
pub mod descriptors;
pub mod input;
pub mod listener;
pub mod output;
pub mod stream;
#[cfg_attr(not(feature = "tls"), path = "net/no_tls.rs")]
pub mod tls;
mod trace;
