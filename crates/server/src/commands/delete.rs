//! `delete`

use crate::counters::Counter;
use crate::session::Session;
use crate::store::prefix_stats::Deed;

/// Answers `DELETED` or `NOT_FOUND`.
pub fn delete(session: &mut Session, key: &[u8], noreply: bool) {
    let name = session.scope.name(key);
    let found = session.server.store.remove(&name);
    session.server.prefixes.count(&name, Deed::Delete);
    session.tally.count(if found { Counter::DeleteHits } else { Counter::DeleteMisses });
    session.answer(noreply, if found { "DELETED" } else { "NOT_FOUND" });
}
