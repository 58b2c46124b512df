//! memcached's protocols: parse lines and binary requests into commands. Pure: no socket, no cache,
//! and no clock except in [`expiry`].
//!
//! ```text
//!   login                    the stream before a client has logged in
//!   binary                   the binary protocol
//!   line                     the classic commands
//!   meta                     the meta commands
//!   admin                    administration commands, memcached's and this server's own
//!   field                    keys, lengths, noreply
//!   command, meta_command    the parsed commands
//!   command_set              the kinds of commands that a tenant may be denied
//!   error                    the errors of refused lines
//!   event                    the kinds of events that `watch` shows
//!   words, number, expiry    words of a line, numbers, exptimes
//!   base64, uri, item        encodings of keys, memcached's size of an item
//! ```
//!
//! # Differences of the text protocol from memcached 1.6.18
//!
//! 1. Numbers out of range are refused; in memcached, flags, lengths and times wrap at 32 bits (a
//!    date after 2038 is in the past).
//! 2. The block after a store line with an invalid key, flags, time or CAS number is discarded;
//!    memcached runs it as commands. An `ms` with an opaque that is too long, or with too many
//!    flags, is such a line; an `mg` or `ma` with such an opaque only answers with the error.
//! 3. A key with a zero byte is refused; memcached ends the line there. Keys in base64 may contain
//!    any bytes.
//! 4. A line that is too long is answered before the connection closes; a `get` may have 256 KiB of
//!    keys, not an unlimited number.
//! 5. A `get` with an invalid key is answered with an error; memcached also loses the pending
//!    replies of earlier commands.
//! 6. A value that is too large is refused after its line was received; memcached refuses it after
//!    its block.
//!
//! `main.rs` lists the differences of the commands, and those that follow a later memcached. All
//! other replies to the commands that both servers have are equal byte for byte;
//! `ci/memcached.sh` compares them.

mod admin;
pub mod base64;
pub mod binary;
pub mod command;
pub mod command_set;
pub mod error;
pub mod event;
pub mod expiry;
mod field;
pub mod item;
pub mod line;
pub mod login;
mod meta;
pub mod meta_command;
pub mod number;
#[cfg(test)]
mod tests;
pub mod uri;
pub mod words;
