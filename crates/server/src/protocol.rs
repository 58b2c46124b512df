//! memcached's text protocol: lines to commands. Pure: no socket, no cache, and a clock in
//! [`expiry`] alone.
//!
//! ```text
//!   login                    lines before a client is known
//!   line                     a line to a command: the classic ones
//!   meta                     the meta commands
//!   admin                    the server's own commands
//!   field                    keys, lengths, noreply
//!   command, meta_command    what a line asks for
//!   error                    why a line is refused
//!   words, number, base64, uri, item, expiry
//! ```
//!
//! # How we differ from memcached 1.6.18
//!
//! 1. Numbers that do not fit are refused; there, flags, lengths and times wrap at 32 bits (a date
//!    after 2038 is in the past).
//! 2. The block behind a store line with a bad key, flags or time is swallowed; there, it is run as
//!    commands. An `ms` with an opaque or a number of flags that is too large is such a line; an
//!    `mg` or `ma` with such an opaque does nothing but say so.
//! 3. Keys with control characters are refused, as its `protocol.txt` says; there, they are taken.
//!    Keys in base64 may have any bytes.
//! 4. A line that is too long is answered before the connection closes; a `get` may have 256 KiB of
//!    keys, not any number.
//! 5. A `get` with a bad key gets its error; there, replies of earlier commands that were still
//!    waiting are lost with it.
//! 6. A value that is too large is refused when its line has come; there, when its block has.
//!
//! Of the commands that both have, all other replies to a line are equal byte for byte;
//! `ci/memcached.sh` compares them.

mod admin;
pub mod base64;
pub mod command;
pub mod error;
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
