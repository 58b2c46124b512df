//! `md`: away with a value, or marked stale, so that readers see it with an `X` until one of them has stored it again.

use super::echo::brief;
use crate::counters::Counter;
use crate::protocol::expiry::Expiry;
use crate::protocol::meta_command::MetaCommand;
use crate::session::Session;
use crate::store::prefix_stats::Deed;
use crate::store::{Edit, There};
use crate::value::item_flags::ItemFlags;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Missing,
    Exists,
    Deleted,
    Stale,
}

/// Answers `HD`, `NF` or `EX`.
pub async fn delete(session: &mut Session, meta: MetaCommand<'_>) {
    let (store, options) = (&session.server.store, &meta.options);
    let name = session.scope.name(&meta.key);
    session.server.prefixes.count(&name, Deed::Delete);
    let decide = |there: Option<There<'_>>| match there.map(|there| there.value) {
        None => (Edit::Keep, Outcome::Missing),
        Some(value) if options.unique.is_some_and(|unique| unique != value.unique()) => (Edit::Keep, Outcome::Exists),
        Some(_) if !options.invalidate => (Edit::Remove, Outcome::Deleted),
        Some(value) => {
            let item_flags = ItemFlags { stale: true, won: false, ..value.item_flags() };
            let stale = value.clone().with_item_flags(item_flags).with_unique(store.number());
            let edit = if options.exptime.is_some() { Edit::Put(stale) } else { Edit::Change(stale) };
            (edit, Outcome::Stale)
        }
    };
    let lifetime = options.exptime.map_or(Expiry::Never, Expiry::of);
    let outcome = match store.update(&name, lifetime, decide).await {
        Ok(outcome) => outcome,
        // No room to mark it: better no value than one that looks fresh.
        Err(_) if store.remove(&name) => Outcome::Deleted,
        Err(_) => Outcome::Missing,
    };
    let (code, counter) = match outcome {
        Outcome::Missing => ("NF", Some(Counter::DeleteMisses)),
        Outcome::Exists => ("EX", Some(Counter::DeleteMisses)),
        Outcome::Deleted => ("HD", Some(Counter::DeleteHits)),
        Outcome::Stale => ("HD", None),
    };
    counter.into_iter().for_each(|counter| session.tally.count(counter));
    if code != "HD" || !options.quiet {
        brief(&mut session.output, code, &meta);
    }
}
