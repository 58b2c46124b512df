//! `stats items`, in memcached's fields, for the one slab class. Counters of a slab allocator or a
//! segmented LRU are 0. Fields that would need more data per value are left out: `age` (the idle
//! time of the least recently used value) and `evicted_nonzero` (evicted values that had an
//! exptime).

use crate::counters::Counter;
use crate::protocol::item::SLAB_CLASS;
use crate::session::Session;

/// Answers with the lines of the class, or with none if there are no values.
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
