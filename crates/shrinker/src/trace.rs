//! The kernel's two tracepoints around a visit, as `tracing` events with the same names and fields;
//! nothing without the feature `tracing`.
//!
//! | field | kernel | here |
//! |---|---|---|
//! | `shr` | the shrinker's address | `<name>-<id>` |
//! | `shrink` | address of its scan function | its name |
//! | `gfp_flags` | | [`Reclaim`](crate::Reclaim) flags |
//! | `nid`, `memcg_id` | | node and group |
//! | `nr_objects_to_shrink`, `unused_scan` | debt before | the debt that the visit took, which may be a part or 0 |
//! | `new_scan` | debt after | the same; 0 for a visit that leaves the debt alone |
//! | `cache_items`, `delta`, `total_scan`, `priority` | | objects counted; this pass's own part; objects to scan, and at the end the rest of them |
//! | `retval` | freed | the same |
//!
//! A change must keep names and fields, so that scripts for the kernel's events apply.

use crate::budget::Plan;
use crate::registry::Registered;
use crate::shrink::ShrinkSlab;

/// Emits the event before a visit scans.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only the events use them"))]
#[inline]
pub(crate) fn start(
    request: &ShrinkSlab<'_>,
    registered: &Registered,
    owed: u64,
    freeable: u64,
    plan: &Plan,
    priority: u8,
) {
    #[cfg(feature = "tracing")]
    tracing::event!(
        name: "mm_shrink_slab_start",
        target: "lowwater::vmscan",
        tracing::Level::DEBUG,
        shr = %format_args!("{}-{}", registered.name, registered.key.id),
        shrink = &*registered.name,
        nr_objects_to_shrink = owed,
        gfp_flags = ?request.flags,
        cache_items = freeable,
        delta = plan.delta,
        total_scan = plan.total,
        priority,
        nid = request.node.index(),
        memcg_id = request.memcg.id().get(),
    );
}

/// Emits the event after a visit has scanned.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only the events use them"))]
#[inline]
pub(crate) fn end(request: &ShrinkSlab<'_>, registered: &Registered, freed: u64, owed: (u64, u64), left: u64) {
    #[cfg(feature = "tracing")]
    tracing::event!(
        name: "mm_shrink_slab_end",
        target: "lowwater::vmscan",
        tracing::Level::DEBUG,
        shr = %format_args!("{}-{}", registered.name, registered.key.id),
        shrink = &*registered.name,
        nid = request.node.index(),
        unused_scan = owed.0,
        new_scan = owed.1,
        total_scan = left,
        retval = freed,
        memcg_id = request.memcg.id().get(),
    );
}
