//! `md`: deletes a value, or marks it stale. Readers see a stale value with an `X` until a client
//! stores it again.

use super::echo::brief;
use crate::counters::Counter;
use crate::protocol::expiry::Expiry;
use crate::protocol::meta_command::MetaCommand;
use crate::session::Session;
use crate::store::prefix_stats::Outcome;
use crate::store::{Edit, Existing};
use crate::value::item_flags::ItemFlags;

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeleteOutcome {
    Missing,
    Exists,
    Deleted,
    Stale,
}

/// Answers `HD`, `NF` or `EX`.
pub async fn delete(session: &mut Session, meta: MetaCommand<'_>) {
    let (store, options) = (&session.server.store, &meta.options);
    let full_key = session.namespace.qualify(&meta.key);
    session.server.prefix_stats.count(&full_key, Outcome::Delete);
    let decide = |there: Option<Existing<'_>>| match there.map(|there| there.value) {
        None => (Edit::Keep, DeleteOutcome::Missing),
        Some(value) if options.unique.is_some_and(|unique| unique != value.unique()) => {
            (Edit::Keep, DeleteOutcome::Exists)
        }
        Some(_) if !options.invalidate => (Edit::Remove, DeleteOutcome::Deleted),
        Some(value) => {
            let item_flags = ItemFlags { stale: true, won: false, ..value.item_flags() };
            let stale = value.clone().with_item_flags(item_flags).with_unique(store.next_unique());
            let edit = if options.exptime.is_some() { Edit::Put(stale) } else { Edit::Change(stale) };
            (edit, DeleteOutcome::Stale)
        }
    };
    let lifetime = options.exptime.map_or(Expiry::Never, Expiry::of);
    let outcome = match store.update(&full_key, lifetime, decide).await {
        Ok(outcome) => outcome,
        // No room for the copy that is marked stale: delete the value rather than leave it looking
        // fresh.
        Err(_) if store.remove(&full_key) => DeleteOutcome::Deleted,
        Err(_) => DeleteOutcome::Missing,
    };
    let (code, counter) = match outcome {
        DeleteOutcome::Missing => ("NF", Some(Counter::DeleteMisses)),
        DeleteOutcome::Exists => ("EX", Some(Counter::DeleteMisses)),
        DeleteOutcome::Deleted => ("HD", Some(Counter::DeleteHits)),
        DeleteOutcome::Stale => ("HD", None),
    };
    counter.into_iter().for_each(|counter| session.counts.count(counter));
    if code != "HD" || !options.quiet {
        brief(&mut session.output, code, &meta);
    }
}
