//! Sockets, file descriptors, and the input and output buffers of connections.
//!
//! Below the commands and the store: no module here calls them. An output references values, and a
//! listener has the namespace of its clients; both are data.
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
