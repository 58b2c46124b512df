//! `delete`
//!
//! The simplest command, and the pattern of the others: the key is qualified by the session's
//! namespace, the store is called, watchers are told, the outcome is counted and answered.
//!
//! A new command follows the same steps in the same order.

use super::events;
use crate::counters::Counter;
use crate::session::Session;
use crate::store::prefix_stats::Outcome;

/// Answers `DELETED` or `NOT_FOUND`.
pub fn delete(session: &mut Session, key: &[u8], noreply: bool) {
    let full_key = session.namespace.qualify(key);
    let removed = session.server.store.take(&full_key);
    let found = removed.is_some();
    if let Some(value) = &removed {
        events::deleted(&session.server.store, &full_key, "delete", value.len());
    }
    session.server.prefix_stats.count(&full_key, Outcome::Delete);
    session.counts.count(if found { Counter::DeleteHits } else { Counter::DeleteMisses });
    session.answer(noreply, if found { "DELETED" } else { "NOT_FOUND" });
}
