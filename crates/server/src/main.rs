//! A memcached for many tenants in one memory, on [`lowwater`].
//!
//! ```text
//!   main            settings in, worker threads started
//!   acceptor        listeners, connections handed to workers, the end
//!   workers         an event loop for each thread
//!   banner          what is served, on stdout
//!   connection      one task for each client: bytes in, replies out
//!   http            --http: a page, metrics, shrinkers
//!   commands        what each command does
//!   session         the part of a connection that its commands use
//!   server          what all connections share
//!   decoder         a stream of bytes to commands and values
//!   net             sockets, input and output buffers
//!   store           the cache: each value charged to its key's tenant
//!   counters        what `stats` counts
//!   receive_budget  memory of values that are being received
//!   value           a stored value, in pieces of one size
//!   settings        the command line and the files that it names
//!   protocol        memcached's text protocol: lines to commands; pure
//!   version         what `version` answers
//! ```
//!
//! `cargo run --release -p lowwater-server`, then point any memcached client at 127.0.0.1:11211.
//! Give tenants their protection with `--config` (see `settings/limits.rs`), or while it runs:
//!
//! ```text
//!   tenant set shop low=8M max=32M     other limits for a tenant, at once
//!   tenant list                        who is there, with what limits, and how much they use
//!   cache_memlimit 128                 another budget, in megabytes
//!   watch evictions                    a line for each value that has to make room
//!   lru_crawler metadump all           a line for each value there is
//! ```
//!
//! # How we differ from memcached 1.6.18
//!
//! What its parser does in another way is told in `protocol.rs`. Beyond that:
//!
//! 1. `mg`, `ma`: a time in the past shows as 0 seconds left; there, it wraps to 136 years. An `ma`
//!    that gives a time to a number that grows gives it; there, it is lost. What an `mg`, `ma`,
//!    `append` or growing `incr` makes under a key in base64 shows its key in base64; there, as it
//!    is, line ends included.
//! 2. Marking a value stale, or noting who won it, replaces it, which takes its bytes a second time
//!    for a moment. Where there is no room even so, nobody wins, and what was to be stale is gone.
//!    With `-M`, an `incr` may find no room for the same reason.
//! 3. There is one slab class, 1. `lru_crawler` goes over everything in no order, whatever was
//!    asked for before. Of the things to watch there are evictions, whose `ttl` is not known (-1).
//! 4. A connection that belongs to a tenant is refused what concerns all: `flush_all`, `verbosity`,
//!    limits, and others' statistics.
//! 5. There are commands more: `tenant`, `stats tenants`, `stats shrinkers`, `stats reclaim`, and
//!    `lru_crawler mgdump`, which later memcacheds have. Where they are not known, as here
//!    `shutdown`, `slabs`, `lru`, `extstore`, `refresh_certs` and the other settings of
//!    `lru_crawler`, the answer is `ERROR`. `stats conns` and `stats sizes` tell nothing, `stats
//!    cachedump` is refused, `stats settings` has the lines that mean something here. `version`
//!    answers `1.6.18-lowwater-` and the version of this package.
//! 6. `flush_all` and `lru_crawler crawl` answer when they are done; of the first, all see the
//!    effect at once. There, they answer before, and a second crawl is told `BUSY`. Dumps may be
//!    pipelined behind other commands; there, a `metadump` may not.
//! 7. A value takes memory as it comes, not when it is announced, so it may be told that there is
//!    none in the middle of its block; the rest is swallowed. Values that are still arriving have
//!    half the budget at most, and one of them more. What clients hold who do not read is dropped
//!    nevertheless; when pieces of values take half as much again as the budget, nothing of more
//!    than 16 KiB is stored.
//! 8. With `-M`, a tenant's `max` bounds what it stores, and drops nothing either; its `min`, `low`
//!    and `high` mean nothing. When many store at once, it may have one value more for each thread
//!    but one.
//! 9. Of two keys with the same hash of 64 bits, which is keyed and new in every process, the one
//!    that is stored later takes the other's place, also with `-M` (see `store/key_hash.rs`).

#![forbid(unsafe_code)]

mod acceptor;
mod banner;
mod commands;
mod connection;
mod counters;
mod decoder;
mod http;
mod net;
mod protocol;
mod receive_budget;
mod server;
mod session;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod value;
mod version;
mod workers;

use std::process::ExitCode;

fn main() -> ExitCode {
    match settings::args::read().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("lowwater-server: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(settings: settings::Settings) -> Result<(), String> {
    let workers = workers::Workers::start(settings.threads)
        .map_err(|why| format!("cannot start {} threads: {why}", settings.threads))?;
    let outcome = workers.run(acceptor::serve(settings, workers.round_robin()));
    workers.end(server::CLOSE_TIME_MAX);
    outcome
}
