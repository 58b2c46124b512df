//! A memcached-compatible cache server: many tenants share one memory budget, on [`lowwater`].
//!
//! ```text
//!   main            reads the settings, starts the worker threads
//!   start           -d, -u, -P: runs in the background, as a user; writes the process's id
//!   acceptor        opens listeners, hands connections to workers, shuts down
//!   workers         one event loop per thread
//!   banner          the startup message on stdout
//!   connection      one task per client: reads bytes, runs commands, writes replies
//!   connections     the table of open sockets, for `stats conns`
//!   http            --http: a page, metrics, shrinkers
//!   commands        the implementation of each command
//!   session         the part of a connection that its commands use
//!   server          the state shared by all connections
//!   decoder         decodes a byte stream into commands and values
//!   find_byte       the search for the end of a word or a line
//!   log             log lines on stderr
//!   net             sockets, input and output buffers
//!   store           the cache: each value is charged to its key's tenant
//!   traffic         a tenant's limits of requests, bytes and connections
//!   admission       refuses the commands that a tenant's limits do not admit
//!   counters        the counters of `stats`
//!   receive_budget  the memory of values that are being received
//!   value           a stored value, in pieces of one size
//!   snapshot        --save-file: keeps the values while the server does not run
//!   service_manager the service manager: readiness, socket activation
//!   settings        the command line and the files that it names
//!   reload          SIGHUP: reads the files of the settings again
//!   protocol        memcached's protocols: parses lines and requests into commands; pure
//!   timers          the timers of all event loops
//!   version         the reply to `version`
//!   recent          the result of the last walk over all values or tenants
//!   watchers        the queues of clients that `watch` events
//! ```
//!
//! `cargo run --release -p lowwater-server`, then point any memcached client at 127.0.0.1:11211.
//! Set the tenants' protection with `--config` (see `settings/limits.rs`), or while the server
//! runs:
//!
//! ```text
//!   tenant set shop low=8M max=32M     changes a tenant's limits at once
//!   tenant set shop requests=500       limits its connections' requests per second
//!   tenant list                        lists all tenants with their limits and usage
//!   cache_memlimit 128                 changes the budget, in megabytes
//!   watch evictions                    prints a line for each evicted value, or another kind of event
//!   lru_crawler metadump all           prints a line for each stored value
//! ```
//!
//! # Differences from memcached
//!
//! The meta commands, `watch`, `lru_crawler` and statistics are those of memcached's development
//! branch of July 2026; `ci/memcached.sh` compares the replies with memcached 1.6.18.
//!
//! Differences of the parser are listed in `protocol.rs`. All others:
//!
//! * `mg`, `ma`: a time in the past is shown as 0 seconds left; in memcached, it wraps to 136
//!   years. An `ma` that sets an exptime while its number gets longer keeps the exptime; memcached
//!   loses it.
//! * A value created by `mg`, `ma`, `append` or a growing `incr` under a key in base64 shows its
//!   key in base64; memcached shows the raw bytes, line ends included.
//! * Marking a value stale, or recording that a client won it, replaces the value, so its bytes are
//!   needed twice for a moment. Without room for the second copy, no client wins, and a value to be
//!   marked stale is deleted. With `-M`, an `incr` may find no room for the same reason.
//! * There is one slab class, 1. `lru_crawler` visits all values in no particular order, whether
//!   `all`, `hash` or class 1 is given.
//! * `stats slabs` describes the memory of entries and index (see `commands/stats/slabs.rs`). A
//!   counter of `stats items` that belongs to slabs or a segmented LRU is 0.
//! * `watch fetchers` shows reads alone, `found` or `not_found`; the `ttl` of an eviction is
//!   unknown (-1); `cfd` is the number of the connection.
//! * On a connection that belongs to a tenant, commands that concern all tenants are refused:
//!   `flush_all`, `verbosity`, `shutdown`, `watch`, `lru_crawler`, limits, `stats reset`,
//!   statistics that take a walk, and those of other tenants (`concerns_all` in `commands.rs`).
//! * Additional commands: `tenant`, `stats tenants`, `stats shrinkers`, `stats reclaim`, and
//!   `lru_crawler mgdump`; memcached 1.6.18 answers `ERROR` to them.
//! * This server answers `ERROR` to `slabs`, `lru`, `extstore`, `refresh_certs` and the other
//!   settings of `lru_crawler`. `version` answers `1.6.18-lowwater-` and the version of this
//!   package.
//! * `stats sizes` visits all values at most once a second, and needs no `-o track_sizes`; `stats
//!   cachedump` lists all values in no particular order; `stats settings` has only the lines that
//!   apply here.
//! * A time more than 30 years ahead counts as 30 years.
//! * `flush_all` and `lru_crawler crawl` answer when they have completed; a `flush_all` takes
//!   effect for all clients at once. memcached answers before, and refuses a second crawl with
//!   `BUSY`. Dumps may be pipelined behind other commands; in memcached, a `metadump` may not.
//! * Memory for a value is allocated as its bytes arrive, not when its length is announced, so a
//!   store may fail for lack of memory in the middle of its block; the rest of the block is
//!   discarded.
//! * Values that are still being received may take at most half of the budget beyond all `min`
//!   limits. The values of one tenant's connections may take half of the rest of that, and one
//!   value of each tenant may take more.
//! * A value can be evicted while the output buffer of a client that does not read still holds it.
//! * While the pieces of all values, evicted ones included, take more than one and a half times the
//!   budget, no value of more than 16 KiB is stored. Then a store that waits, or once a second any
//!   request, closes connections whose replies have taken more than a quarter of a second, if the
//!   unread replies of their tenant refer to more than a quarter of the budget; or if those of all
//!   tenants do, and those of theirs to at least the average of the tenants that have any.
//! * With `-M`, a tenant's `max` bounds the bytes it stores, but evicts nothing; its `min`, `low`
//!   and `high` have no effect. With several stores at the same time, a tenant may exceed its `max`
//!   by one value for each thread but one.
//! * If two keys have the same 64-bit hash, which is keyed at random in each process, the key
//!   stored later replaces the other, also with `-M`, and a `delete` of one removes the other (see
//!   `store/key_hash.rs`).

#![forbid(unsafe_code)]

mod acceptor;
mod admission;
mod banner;
mod commands;
mod connection;
mod connections;
mod counters;
mod decoder;
mod find_byte;
mod http;
mod log;
mod net;
mod protocol;
mod receive_budget;
mod recent;
mod reload;
mod server;
#[cfg(unix)]
mod service_manager;
mod session;
mod settings;
mod snapshot;
#[cfg(unix)]
mod start;
mod store;
#[cfg(test)]
mod tests;
mod timers;
mod traffic;
mod value;
mod version;
mod watchers;
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
    #[cfg(unix)]
    if start::prepare(&settings)? == start::Next::Exit {
        return Ok(());
    }
    #[cfg(not(unix))]
    if settings.background || settings.user.is_some() || settings.pid_file.is_some() {
        return Err("-d, -u and -P are supported on unix systems only".to_owned());
    }
    if !settings.without_effect.is_empty() {
        eprintln!(
            "lowwater-server: flags of memcached that have no effect here: {}",
            settings.without_effect.join(" ")
        );
    }
    if let Some(what) = settings.limits_without_effect(&settings.limits, settings.users.as_ref()) {
        eprintln!("lowwater-server: {what}");
    }
    // The acceptor adds the listeners, which are not those of -l if the manager has opened any.
    net::descriptors::allow(settings.connections_max, settings.threads, 0, 0)?;
    let workers = workers::Workers::start(settings.threads)
        .map_err(|why| format!("cannot start {} threads: {why}", settings.threads))?;
    let ending = workers.run(acceptor::serve(settings, workers.round_robin()));
    // Before the values are saved: a command that is answered must be in the file.
    workers.end(server::CLOSE_TIME_MAX);
    ending?.finish()
}
