//! Sockets and buffers: what a connection reads from and writes to.

mod buffer_pool;
pub mod input;
pub mod listener;
pub mod output;
pub mod stream;
