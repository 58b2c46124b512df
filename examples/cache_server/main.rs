//! A memcached for many tenants in one memory, on [`lowwater`].
//!
//! ```text
//!   client -- tcp --> server      accepts, bounds the number, closes cleanly
//!                     connection  one task each: bytes in, replies out in batches
//!                     parse       bytes to commands; pure
//!                     commands    what each one means
//!                     store       the cache: each value charged to its key's tenant
//!                     reply       lines and values on their way out
//! ```
//!
//! `cargo run --release --example cache_server`, then point any memcached client at 127.0.0.1:11211. Give tenants their
//! protection with `--config`; see [`config`].

#![forbid(unsafe_code)]

mod args;
mod auth;
mod commands;
mod config;
mod connection;
mod expiry;
mod listen;
mod options;
mod parse;
mod prefix;
mod reply;
mod scope;
mod server;
mod stash;
mod stats;
mod store;
mod stream;
mod tenant;
#[cfg(test)]
mod tests;
mod value;
mod watch;

use std::process::ExitCode;

/// What `version` answers. Clients read from it which memcached's rules they may expect (memccapable does), so it begins with the
/// one whose replies ours equal.
const VERSION: &str = concat!("1.6.18-lowwater-", env!("CARGO_PKG_VERSION"));

fn main() -> ExitCode {
    match args::read().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cache_server: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(settings: args::Settings) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.threads)
        .enable_all()
        .build()
        .map_err(|why| format!("cannot start {} threads: {why}", settings.threads))?;
    let outcome = runtime.block_on(server::serve(settings));
    runtime.shutdown_timeout(server::CLOSE_TIME_MAX);
    outcome
}
