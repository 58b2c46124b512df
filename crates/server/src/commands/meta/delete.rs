//! `md`: deletes a value, marks it stale, or removes its bytes. Readers see a stale value with an
//! `X` until a client stores it again.
//!
//! Of the clients that then read the stale value, exactly one wins the right to store it again
//! (`get.rs`). So one atomic update marks the value as stale and as not won.
//!
//! A change must keep that update atomic, and must delete a value that is to be marked stale if
//! there is no room for the update: an invalid value must not look fresh.

use super::echo::brief;
use crate::commands::arithmetic::NO_MEMORY;
use crate::commands::events;
use crate::commands::store::StoreOutcome;
use crate::counters::Counter;
use crate::protocol::command::StoreVerb;
use crate::protocol::expiry::Expiry;
use crate::protocol::meta_command::{MetaCommand, MetaOptions};
use crate::session::Session;
use crate::store::prefix_stats::Outcome;
use crate::store::{Edit, Existing, OutOfMemory, Store};
use crate::value::data::Data;
use crate::value::item_flags::ItemFlags;
use crate::value::item_number::ItemNumber;
use crate::value::Value;

/// The outcome of a delete.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum DeleteOutcome {
    Missing,
    /// The value has another CAS number than the request gives.
    Exists,
    Deleted {
        length: usize,
    },
    Stale,
    /// Its bytes are removed, and it is not marked stale.
    Emptied,
}

/// Answers `HD`, `NF`, `EX`, or an error.
pub async fn delete(session: &mut Session, meta: MetaCommand<'_>) {
    let code = match remove(session, &meta.key, &meta.options).await {
        Err(_) => return session.output.line(NO_MEMORY),
        Ok(DeleteOutcome::Missing) => "NF",
        Ok(DeleteOutcome::Exists) => {
            session.counts.count(Counter::DeleteMisses);
            "EX"
        }
        Ok(DeleteOutcome::Deleted { .. } | DeleteOutcome::Emptied | DeleteOutcome::Stale) => "HD",
    };
    if code != "HD" || !meta.options.quiet {
        brief(&mut session.output, code, &meta);
    }
}

/// Deletes or marks the value of `key`, and counts all outcomes but `Exists`.
///
/// # Errors
///
/// There is no memory for a value without bytes; the value under `key` is unchanged.
pub(in crate::commands) async fn remove(
    session: &mut Session,
    key: &[u8],
    options: &MetaOptions,
) -> Result<DeleteOutcome, OutOfMemory> {
    let store = &session.server.store;
    let full_key = session.namespace.qualify(key);
    session.server.prefix_stats.count(&full_key, Outcome::Delete);
    let decide = |there: Option<Existing<'_>>| match (decide_removal(there, options.unique), there) {
        ((Edit::Remove, _), Some(Existing { value, .. })) if options.invalidate || options.remove_bytes => {
            let item_flags = ItemFlags { stale: options.invalidate, won: false, ..value.item_flags() };
            // As in memcached: a value that only loses its bytes keeps its CAS number.
            let number = match (options.invalidate, options.new_unique) {
                (false, None) => value.number(),
                (_, given) => ItemNumber { serial: store.next_serial(), given },
            };
            let changed = match options.remove_bytes {
                true => {
                    let data = Data::copy(b"", &session.server.piece_pool);
                    let empty = Value::new(&full_key, options.flags, item_flags, number, &data);
                    empty.last_access.record_store(store.now_seconds());
                    empty
                }
                false => value.clone().with_item_flags(item_flags).with_number(number),
            };
            // `Put` sets the expiry, `Change` keeps the value's. As in memcached: a value without
            // bytes does not expire, unless `T` is given.
            let is_new = options.exptime.is_some() || options.remove_bytes;
            let edit = if is_new { Edit::Put(changed) } else { Edit::Change(changed) };
            (edit, if options.invalidate { DeleteOutcome::Stale } else { DeleteOutcome::Emptied })
        }
        (removal, _) => removal,
    };
    let lifetime = options.exptime.map_or(Expiry::Never, Expiry::of);
    let outcome = match store.update(&full_key, lifetime, decide).await {
        // No room for the changed copy: delete the value rather than leave it looking fresh.
        Err(_) if options.invalidate => delete_value(store, &full_key, options.unique).await,
        outcome => outcome,
    }?;
    // As in memcached: a value without bytes is stored as by a `set`, and then counts as deleted.
    if options.remove_bytes && matches!(outcome, DeleteOutcome::Emptied | DeleteOutcome::Stale) {
        let words = [StoreOutcome::Stored.word(), StoreVerb::Set.name()];
        events::stored(store, &session.entry, &full_key, words, lifetime, 0);
    }
    match outcome {
        DeleteOutcome::Deleted { length } => events::deleted(store, &full_key, "md", length),
        DeleteOutcome::Emptied => events::deleted(store, &full_key, "md", 0),
        DeleteOutcome::Missing | DeleteOutcome::Exists | DeleteOutcome::Stale => {}
    }
    match outcome {
        DeleteOutcome::Missing => session.counts.count(Counter::DeleteMisses),
        DeleteOutcome::Deleted { .. } | DeleteOutcome::Emptied => session.counts.count(Counter::DeleteHits),
        DeleteOutcome::Exists | DeleteOutcome::Stale => {}
    }
    Ok(outcome)
}

/// Deletes the value under `full_key` if `unique` is its CAS number, or `None`. After an update
/// without room, another client may have stored a newer value. A delete needs no room.
async fn delete_value(store: &Store, full_key: &[u8], unique: Option<u64>) -> Result<DeleteOutcome, OutOfMemory> {
    store.update(full_key, Expiry::Never, |there| decide_removal(there, unique)).await
}

/// Decides a delete of the value that is there.
fn decide_removal(there: Option<Existing<'_>>, unique: Option<u64>) -> (Edit, DeleteOutcome) {
    match there.map(|there| there.value) {
        None => (Edit::Keep, DeleteOutcome::Missing),
        Some(value) if unique.is_some_and(|unique| unique != value.unique()) => (Edit::Keep, DeleteOutcome::Exists),
        Some(value) => (Edit::Remove, DeleteOutcome::Deleted { length: value.len() }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::value::piece_pool::PiecePool;

    #[test]
    fn a_delete_without_room_compares_the_cas_number() {
        let settings = crate::settings::args::parse(["lowwater-server", "-m8"]).unwrap().unwrap();
        let store = Store::new(&settings, &Arc::new(PiecePool::new(0))).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let delete = |unique| runtime.block_on(delete_value(&store, b"k", unique)).unwrap();
        assert!(delete(Some(1)) == DeleteOutcome::Missing);
        assert!(store.try_set(b"k", Expiry::Never, 0, b"new"));
        let unique = store.peek(b"k").unwrap().unique();
        assert!(delete(Some(unique + 1)) == DeleteOutcome::Exists);
        assert!(store.peek(b"k").is_some());
        assert!(delete(Some(unique)) == DeleteOutcome::Deleted { length: 3 });
        assert!(store.try_set(b"k", Expiry::Never, 0, b"new"));
        assert!(delete(None) == DeleteOutcome::Deleted { length: 3 });
        assert!(store.peek(b"k").is_none());
    }
}
