//! `delete`

use super::answer;
use crate::connection::Session;
use crate::prefix::Deed;
use crate::stats::Counter;

/// Answers `DELETED` or `NOT_FOUND`.
pub fn delete(session: &mut Session, key: &[u8], noreply: bool) {
    let name = session.scope.name(key);
    let found = session.server.store.remove(&name);
    session.server.prefixes.count(&name, Deed::Delete);
    session.tally.count(if found { Counter::DeleteHits } else { Counter::DeleteMisses });
    answer(session, noreply, if found { "DELETED" } else { "NOT_FOUND" });
}
