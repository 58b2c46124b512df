//! `stats`: statistics of the whole server, in memcached's fields.
//!
//! A field of memcached that has no meaning here is left out instead of shown as 0.
//!
//! A new field must be one of memcached's, with its name and type, and the verdict of its row in
//! `src/tests/compatibility/names.rs` changes: a test allows no other names.

use std::time::{SystemTime, UNIX_EPOCH};

use super::cpu_time::{cpu_time, CpuTime};
use crate::counters::Counter;
use crate::net::output::Output;
use crate::server::Server;
use crate::version::VERSION;

/// Adds the lines of `stats`.
pub fn general(server: &Server, out: &mut Output) {
    let (totals, gone) = (server.store.totals(), server.store.removal_counts());
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    out.stat("pid", std::process::id());
    out.stat("uptime", server.started.elapsed().as_secs());
    out.stat("time", unix.as_secs());
    out.stat("version", VERSION);
    out.stat("pointer_size", usize::BITS);
    if let Some(CpuTime { user, system }) = cpu_time() {
        out.stat("rusage_user", format_args!("{}.{:06}", user.as_secs(), user.subsec_micros()));
        out.stat("rusage_system", format_args!("{}.{:06}", system.as_secs(), system.subsec_micros()));
    }
    out.stat("max_connections", server.settings.connections_max);
    out.stat("curr_connections", server.connections());
    for (name, count) in server.counters.memcacheds() {
        out.stat(name, count);
    }
    if let Some(tls) = &server.tls {
        out.stat("ssl_handshake_errors", server.counters.get(Counter::SslHandshakeErrors));
        out.stat("ssl_new_sessions", server.counters.get(Counter::SslNewSessions));
        out.stat("time_since_server_cert_refresh", tls.age().as_secs());
    }
    out.stat("get_expired", gone.get_expired);
    out.stat("get_flushed", gone.get_flushed);
    out.stat("limit_maxbytes", server.store.asked_budget().get());
    out.stat("accepting_conns", 1);
    // Clients above `max_connections` are accepted, and then refused: the listeners are never
    // disabled.
    out.stat("listen_disabled_num", 0);
    out.stat("time_in_listen_disabled_us", 0);
    out.stat("threads", server.settings.threads);
    out.stat("bytes", totals.bytes);
    out.stat("curr_items", totals.items);
    out.stat("total_items", totals.total_items);
    let watchers = server.store.watchers().counts();
    out.stat("log_watcher_skipped", watchers.skipped);
    out.stat("log_watcher_sent", watchers.sent);
    out.stat("log_watchers", watchers.watchers);
    out.stat("expired_unfetched", gone.expired_unfetched);
    out.stat("evicted_unfetched", gone.evicted_unfetched);
    out.stat("evictions", totals.evictions);
    out.stat("reclaimed", totals.expired);
    out.end_stats();
}
