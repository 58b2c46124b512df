//! `stats items`, in memcached's fields, for the one slab class. Counters of a slab allocator or a
//! segmented LRU are 0. A field that would need more data per value is left out: `evicted_nonzero`
//! (evicted values that had an exptime).
//!
//! An extension must not be added here: tools iterate over all lines, and a test allows only the
//! names in `src/tests/compatibility/names.rs` (`ITEMS`).

use std::io;
use std::sync::Arc;

use lowwater::cache::Visit;

use crate::counters::Counter;
use crate::protocol::item::SLAB_CLASS;
use crate::server::Server;
use crate::session::Session;

/// `age` is the longest idle time among this many values, so that a large store is not walked as a
/// whole. They are a random sample: values are visited by their hashes.
/// `src/tests/compatibility/names.rs` states the number.
const VISITED_MAX: usize = 1 << 16;

/// Answers with the lines of the class, or with none if there are no values.
pub async fn items(session: &mut Session) -> io::Result<()> {
    let server = Arc::clone(&session.server);
    let (totals, gone) = (server.store.totals(), server.store.removal_counts());
    if totals.items > 0 {
        let age = age(&server).await;
        for (name, value) in [
            ("number", totals.items),
            ("age", age.into()),
            ("mem_requested", totals.bytes),
            ("evicted", totals.evictions),
            ("evicted_time", gone.evicted_idle_seconds),
            ("outofmemory", server.counters.get(Counter::StoreNoMemory)),
            ("tailrepairs", 0),
            ("reclaimed", totals.expired),
            ("expired_unfetched", gone.expired_unfetched),
            ("evicted_unfetched", gone.evicted_unfetched),
            ("evicted_active", 0),
            ("crawler_reclaimed", 0),
            ("crawler_items_checked", 0),
            ("lrutail_reflocked", 0),
            ("direct_reclaims", 0),
        ] {
            session.output.stat(&format!("items:{SLAB_CLASS}:{name}"), value);
        }
    }
    session.output.end_stats();
    Ok(())
}

/// Returns the longest idle time of the visited values, in seconds. Other connections run
/// meanwhile.
async fn age(server: &Server) -> u32 {
    let now = server.store.now_seconds();
    let (mut at, mut visited, mut longest) = (Visit::new(), 0, 0);
    while !at.is_done() && visited < VISITED_MAX {
        server.store.visit(&mut at, |value| {
            visited += 1;
            longest = longest.max(now.saturating_sub(value.last_access.last_used_seconds()));
        });
        tokio::task::yield_now().await;
    }
    longest
}
