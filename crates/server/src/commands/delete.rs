//! `delete`

use crate::counters::Counter;
use crate::session::Session;
use crate::store::prefix_stats::Outcome;

/// Answers `DELETED` or `NOT_FOUND`.
pub fn delete(session: &mut Session, key: &[u8], noreply: bool) {
    let full_key = session.namespace.qualify(key);
    let found = session.server.store.remove(&full_key);
    session.server.prefix_stats.count(&full_key, Outcome::Delete);
    session.counts.count(if found { Counter::DeleteHits } else { Counter::DeleteMisses });
    session.answer(noreply, if found { "DELETED" } else { "NOT_FOUND" });
}
