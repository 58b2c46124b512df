//! `stats slabs`, in memcached's fields, for the one slab class: that of the entries. An entry has
//! the metadata of a value; the block of its key and its bytes is allocated apart, in its own size.
//!
//! A page is 1 MiB, as in memcached. `total_pages` counts the memory of entries and index that is
//! in use or free; `total_malloced` is that memory and the blocks of all values.
//!
//! A change must ensure that `total_malloced` covers all memory that values use.

use crate::counters::Counter;
use crate::net::output::Output;
use crate::protocol::item::SLAB_CLASS;
use crate::server::Server;
use crate::store::ENTRY_BYTES;

const PAGE_BYTES: u64 = 1 << 20;

/// Adds the lines of the class.
pub fn slabs(server: &Server, out: &mut Output) {
    let memory = server.store.memory();
    let per_page = PAGE_BYTES / ENTRY_BYTES;
    let pages = memory.entries_and_index.div_ceil(PAGE_BYTES);
    let chunks = (pages * per_page).max(memory.items);
    let count = |counter| server.counters.get(counter);
    for (name, value) in [
        ("chunk_size", ENTRY_BYTES),
        ("chunks_per_page", per_page),
        ("total_pages", pages),
        ("total_chunks", chunks),
        ("used_chunks", memory.items),
        ("free_chunks", chunks - memory.items),
        ("free_chunks_end", 0),
        ("get_hits", count(Counter::GetHits)),
        ("cmd_set", count(Counter::CmdSet)),
        ("delete_hits", count(Counter::DeleteHits)),
        ("incr_hits", count(Counter::IncrHits)),
        ("decr_hits", count(Counter::DecrHits)),
        ("cas_hits", count(Counter::CasHits)),
        ("cas_badval", count(Counter::CasBadval)),
        ("touch_hits", count(Counter::TouchHits)),
    ] {
        out.stat(&format!("{SLAB_CLASS}:{name}"), value);
    }
    out.stat("active_slabs", 1);
    out.stat("total_malloced", memory.entries_and_index + memory.blocks);
    out.end_stats();
}
