//! `set`, `add`, `replace`, `append`, `prepend`, `cas`, and `ms`, which has a mode for each of
//! them.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::meta::echo::echo;
use crate::counters::Counter;
use crate::decoder::StoreRequest;
use crate::protocol::command::{StoreCommand, StoreVerb};
use crate::protocol::error::ProtocolError;
use crate::protocol::expiry::Expiry;
use crate::protocol::item::item_bytes;
use crate::protocol::meta_command::MetaStore;
use crate::protocol::words::Words;
use crate::server::Server;
use crate::session::Session;
use crate::store::prefix_stats::Outcome;
use crate::store::{Edit, Existing, OutOfMemory};
use crate::value::data::Data;
use crate::value::item_flags::ItemFlags;
use crate::value::Value;

/// memcached's four outcomes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreOutcome {
    Stored,
    NotStored,
    Exists,
    NotFound,
}

/// Stores a value that was received completely.
pub async fn store(session: &mut Session, request: Box<StoreRequest>) -> ControlFlow<()> {
    let StoreRequest { verb, flags, exptime, unique, noreply, .. } = *request;
    let (key, meta) = (request.key.clone(), request.meta.clone());
    let binary = meta.as_ref().is_some_and(|meta| meta.binary);
    let (data, charge) = request.into_data();
    let new = New {
        verb,
        unique,
        flags,
        item_flags: ItemFlags { binary, ..ItemFlags::default() },
        invalidate: meta.as_ref().is_some_and(|meta| meta.invalidate),
        data,
    };
    let server = Arc::clone(&session.server);
    server.log(2, format_args!("< {verb:?} {} {} bytes", key.escape_ascii(), new.data.len()));
    session.counts.count(Counter::CmdSet);
    let full_key = session.namespace.qualify(&key);
    let item_bytes_max = server.settings.item_bytes_max;
    let edit = |there: Option<Existing<'_>>| {
        let old = there.map(|there| there.value);
        // As in memcached: if the joined value would be too large, the old value stays as it is.
        let joined = matches!(verb, StoreVerb::Append | StoreVerb::Prepend).then_some(old).flatten();
        match joined {
            Some(old) if item_bytes(&key, old.client_flags(), old.len() + new.data.len()) > item_bytes_max => {
                (Edit::Keep, (StoreOutcome::NotStored, 0))
            }
            _ => decide(&full_key, &new, old, &server),
        }
    };
    server.prefix_stats.count(&full_key, Outcome::Set);
    match server.store.update_received(&full_key, Expiry::of(exptime), charge, edit).await {
        Ok((outcome, number)) => {
            if verb == StoreVerb::Cas {
                session.counts.count(match outcome {
                    StoreOutcome::Stored => Counter::CasHits,
                    StoreOutcome::NotFound => Counter::CasMisses,
                    _ => Counter::CasBadval,
                });
            }
            match meta {
                Some(meta) => answer_meta(session, &meta, &key, outcome, number),
                None => session.answer(noreply, outcome.text()),
            }
        }
        Err(why) => refuse(session, verb, &key, meta.is_some(), noreply, &why),
    }
    ControlFlow::Continue(())
}

/// Runs a `set` whose value is in the connection's input.
pub async fn set(session: &mut Session, command: StoreCommand<'_>, value: &[u8]) -> ControlFlow<()> {
    let StoreCommand { verb, key, flags, exptime, noreply, .. } = command;
    let server = Arc::clone(&session.server);
    server.log(2, format_args!("< {verb:?} {} {} bytes", key.escape_ascii(), value.len()));
    session.counts.count(Counter::CmdSet);
    let full_key = session.namespace.qualify(&key);
    server.prefix_stats.count(&full_key, Outcome::Set);
    let edit = |_: Option<Existing<'_>>| (Edit::Put(server.store.new_value_of(&full_key, flags, value)), ());
    match server.store.update(&full_key, Expiry::of(exptime), edit).await {
        Ok(()) => session.answer(noreply, StoreOutcome::Stored.text()),
        Err(why) => refuse(session, verb, &key, false, noreply, &why),
    }
    ControlFlow::Continue(())
}

/// Answers an `ms`: a code of two letters, and the flags that the request wants repeated. `number`
/// is the CAS number of the stored value, 0 if nothing was stored.
fn answer_meta(session: &mut Session, store: &MetaStore, key: &[u8], outcome: StoreOutcome, number: u64) {
    if outcome == StoreOutcome::Stored && store.quiet {
        return;
    }
    let out = &mut session.output;
    out.push(outcome.code().as_bytes());
    for flag in Words::of(&store.echo) {
        match flag[0] {
            b'c' => out.text(format_args!(" c{number}")),
            _ => echo(out, flag, key, store.binary),
        }
    }
    out.line("");
}

/// Refuses a value for which memory ran out while it was received; the decoder discards the rest of
/// the block.
pub fn no_room(session: &mut Session, request: &StoreRequest) -> ControlFlow<()> {
    session.counts.count(Counter::CmdSet);
    refuse(session, request.verb, &request.key, request.meta.is_some(), request.noreply, &OutOfMemory);
    ControlFlow::Continue(())
}

fn refuse(session: &mut Session, verb: StoreVerb, key: &[u8], is_meta: bool, noreply: bool, why: &OutOfMemory) {
    // As in memcached: a failed `set` removes the old value, as its client regards that value as
    // replaced.
    if verb == StoreVerb::Set || is_meta {
        session.server.store.remove(&session.namespace.qualify(key));
    }
    session.counts.count(Counter::StoreNoMemory);
    if !noreply {
        session.output.format(format_args!("SERVER_ERROR {why}"));
    }
}

/// Refuses a value that is larger than `-I` allows; the decoder discards its block.
pub fn too_large(session: &mut Session, verb: StoreVerb, key: &[u8], noreply: bool) -> ControlFlow<()> {
    session.counts.count(Counter::StoreTooLarge);
    // As in memcached: the old value, which was to be replaced, is out of date.
    if verb == StoreVerb::Set {
        session.server.store.remove(&session.namespace.qualify(key));
    }
    session.answer(noreply, ProtocolError::TooLarge.text());
    ControlFlow::Continue(())
}

struct New {
    verb: StoreVerb,
    unique: u64,
    flags: u32,
    item_flags: ItemFlags,
    /// Flag `I`: if the request's number is older than the value's, store the value all the same,
    /// marked stale.
    invalidate: bool,
    data: Data,
}

/// Decides a store command: the edit of `old`, the outcome to report, and the CAS number that the
/// key has afterwards.
fn decide(full_key: &[u8], new: &New, old: Option<&Value>, server: &Server) -> (Edit, (StoreOutcome, u64)) {
    let put = || {
        let value = server.store.new_value(full_key, new.flags, new.item_flags, &new.data);
        let number = value.unique();
        (Edit::Put(value), (StoreOutcome::Stored, number))
    };
    let change = |flags, item_flags, data: &Data| {
        let value = server.store.new_value(full_key, flags, item_flags, data);
        let number = value.unique();
        (Edit::Change(value), (StoreOutcome::Stored, number))
    };
    let join = |old: &Value, data: &Data| {
        let item_flags = ItemFlags { binary: old.item_flags().binary, ..ItemFlags::default() };
        change(old.client_flags(), item_flags, data)
    };
    let keep = |outcome| (Edit::Keep, (outcome, 0));
    match (new.verb, old) {
        (StoreVerb::Set, _) | (StoreVerb::Add, None) | (StoreVerb::Replace, Some(_)) => put(),
        (StoreVerb::Append | StoreVerb::Prepend, Some(old)) if new.unique != 0 && new.unique != old.unique() => {
            keep(StoreOutcome::Exists)
        }
        (StoreVerb::Append, Some(old)) => {
            join(old, &Data::join(old.pieces().chain(new.data.pieces()), &server.piece_pool))
        }
        (StoreVerb::Prepend, Some(old)) => {
            join(old, &Data::join(new.data.pieces().chain(old.pieces()), &server.piece_pool))
        }
        (StoreVerb::Cas, Some(old)) if new.unique == old.unique() => put(),
        (StoreVerb::Cas, Some(old)) if new.invalidate && new.unique != 0 && new.unique < old.unique() => {
            let item_flags = ItemFlags { stale: true, won: old.item_flags().won, ..new.item_flags };
            change(new.flags, item_flags, &new.data)
        }
        (StoreVerb::Cas, Some(_)) => keep(StoreOutcome::Exists),
        (StoreVerb::Cas, None) => keep(StoreOutcome::NotFound),
        (StoreVerb::Add, Some(_)) | (StoreVerb::Replace | StoreVerb::Append | StoreVerb::Prepend, None) => {
            keep(StoreOutcome::NotStored)
        }
    }
}

impl StoreOutcome {
    fn text(self) -> &'static str {
        match self {
            Self::Stored => "STORED",
            Self::NotStored => "NOT_STORED",
            Self::Exists => "EXISTS",
            Self::NotFound => "NOT_FOUND",
        }
    }

    /// Returns the code of an `ms` reply.
    fn code(self) -> &'static str {
        match self {
            Self::Stored => "HD",
            Self::NotStored => "NS",
            Self::Exists => "EX",
            Self::NotFound => "NF",
        }
    }
}
