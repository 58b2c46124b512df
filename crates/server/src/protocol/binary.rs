//! memcached's binary protocol: requests of a header, extras and a key, and the numbers of their
//! replies. Pure, as the text protocol's parsers.
//!
//! ```text
//!   header     the 24 bytes before each request and each reply
//!   opcode     the requests that there are
//!   request    a request, as a command that the text protocol has as well where there is one
//!   status     the outcomes, and memcached's texts for errors
//! ```
//!
//! # Differences from memcached 1.6.45
//!
//! 1. The body of an unknown request is discarded; memcached discards too much of it if it has
//!    extras or a key.
//! 2. A value that a `stat`, a `touch` or a `gat` must not have is an invalid argument; memcached
//!    runs it as the next request.
//! 3. `verbosity` is answered; memcached does not know it.
//! 4. `stat` with a key that only begins with a topic's name is not found.
//! 5. SASL knows the mechanism PLAIN alone, with the users of `-Y`.
//! 6. `stat` with `detail dump` has several replies if the dump is long.
//!
//! A change must ensure that an opcode stands in the one table of `opcode.rs`, and that a refused
//! request leaves the stream in step or closes it.

pub mod header;
pub mod opcode;
pub mod request;
pub mod status;
