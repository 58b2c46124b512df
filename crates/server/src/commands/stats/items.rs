//! `stats items`: memcached's names, for one class. What a slab allocator or its segmented LRU
//! would have to count is 0; what would have to be known of each value and is not, is left out:
//! `age`, that of the one longest unused, and `evicted_nonzero`, those with a time of their own.

use crate::counters::Counter;
use crate::protocol::item::SLAB_CLASS;
use crate::session::Session;

/// Answers with the class's lines; with none if there is nothing in it.
pub fn items(session: &mut Session) {
    let Session { output: out, server, .. } = session;
    let totals = server.store.totals();
    let gone = server.store.removal_counts();
    if totals.items > 0 {
        for (name, value) in [
            ("number", totals.items),
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
            out.stat(&format!("items:{SLAB_CLASS}:{name}"), value);
        }
    }
    out.line("END");
}
