//! `stats`: statistics of the whole server, in memcached's fields.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::net::output::Output;
use crate::server::Server;
use crate::version::VERSION;

/// Adds the lines of `stats`.
pub fn general(server: &Server, out: &mut Output) {
    let totals = server.store.totals();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    out.stat("pid", std::process::id());
    out.stat("uptime", server.started.elapsed().as_secs());
    out.stat("time", unix.as_secs());
    out.stat("version", VERSION);
    out.stat("pointer_size", usize::BITS);
    out.stat("max_connections", server.settings.connections_max);
    out.stat("curr_connections", server.connections());
    for (name, count) in server.counters.all() {
        out.stat(name, count);
    }
    out.stat("get_expired", totals.expired);
    out.stat("limit_maxbytes", server.store.budget().get());
    out.stat("accepting_conns", 1);
    out.stat("threads", server.settings.threads);
    out.stat("bytes", totals.bytes);
    out.stat("curr_items", totals.items);
    out.stat("total_items", totals.total_items);
    out.stat("evictions", totals.evictions);
    out.line("END");
}
