//! Sockets, file descriptors, and the input and output buffers of connections.

mod buffer_pool;
pub mod descriptors;
pub mod input;
pub mod listener;
pub mod output;
pub mod stream;
