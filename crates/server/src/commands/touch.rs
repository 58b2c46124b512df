//! `touch`: sets a new exptime; the value and its unique number do not change.
//!
//! Values are not copied: the expiry is a part of the cache's entry.

use crate::counters::Counter;
use crate::protocol::expiry::Expiry;
use crate::session::Session;

/// Answers `TOUCHED` or `NOT_FOUND`.
pub fn touch(session: &mut Session, key: &[u8], exptime: i64, noreply: bool) {
    let full_key = session.namespace.qualify(key);
    let found = session.server.store.touch(&full_key, Expiry::of(exptime));
    session.counts.count(Counter::CmdTouch);
    session.counts.count(if found { Counter::TouchHits } else { Counter::TouchMisses });
    session.answer(noreply, if found { "TOUCHED" } else { "NOT_FOUND" });
}
