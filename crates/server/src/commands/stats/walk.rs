//! Topics whose lines take a walk over all pairs of a tenant and a shrinker.
//!
//! A change must ensure that clients cannot cause one walk after the other: one runs at a time, on
//! no thread that serves clients, and its lines are reused.

use crate::recent::Recent;
use crate::server::{Server, StatLines};
use crate::session::Session;

/// Answers with the lines of `last`, if they are recent, and otherwise with those of `lines`.
pub async fn walk(session: &mut Session, last: fn(&Server) -> &Recent<StatLines>, lines: fn(&Server) -> StatLines) {
    let lines = tokio::select! {
        lines = session.server.stat_lines(last, lines) => lines,
        () = session.closed() => None,
    };
    let Some(lines) = lines else {
        session.output.fail_stats("the server is shutting down");
        return;
    };
    for (name, value) in lines.iter() {
        session.output.stat(name, value);
    }
    session.output.end_stats();
}
