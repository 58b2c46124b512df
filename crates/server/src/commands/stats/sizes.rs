//! `stats sizes`: the number of values by size, in steps of 32 bytes, by memcached's rules for the
//! size of an item. A walk visits all values; memcached counts them only with `-o track_sizes`.
//!
//! A change must keep the size rules of memcached's item header, which the tests write out, and
//! that clients cannot cause one walk after the other: one runs at a time, and its counts are
//! reused.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use lowwater::cache::Visit;

use crate::protocol::item::item_bytes;
use crate::server::SizeCounts;
use crate::session::Session;

/// The difference between two sizes that are counted apart, in bytes.
const STEP_BYTES: usize = 32;

/// Answers with a line for each size that occurs.
pub async fn sizes(session: &mut Session) -> io::Result<()> {
    let Some(counts) = count(session).await else {
        session.output.fail_stats("the server is shutting down");
        return Ok(());
    };
    for (bytes, count) in counts.iter() {
        session.output.stat(&bytes.to_string(), count);
        if session.output.is_full() {
            session.flush().await?;
        }
    }
    session.output.end_stats();
    Ok(())
}

/// Counts the values, or returns recent counts; `None` if the server is shutting down. O(values),
/// in parts between which other connections run. Waits for other crawls.
async fn count(session: &Session) -> Option<Arc<SizeCounts>> {
    let server = &session.server;
    let _alone = tokio::select! {
        alone = server.crawl_lock.lock() => alone,
        () = session.closed() => return None,
    };
    if let Some(recent) = server.last_sizes.at(Instant::now()) {
        return Some(recent);
    }
    let mut counts = SizeCounts::new();
    let mut at = Visit::new();
    while !at.is_done() {
        if session.is_closing() {
            return None;
        }
        server.store.visit(&mut at, |value| {
            let bytes = item_bytes(value.key(), value.client_flags(), value.len());
            *counts.entry(bytes.next_multiple_of(STEP_BYTES)).or_default() += 1;
        });
        tokio::task::yield_now().await;
    }
    let counts = Arc::new(counts);
    server.last_sizes.set(Instant::now(), &counts);
    Some(counts)
}
