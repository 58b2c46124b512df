//! `set`, `add`, `replace`, `append`, `prepend`, `cas`, and `ms`, which has a mode for each of
//! them.
//!
//! `decide` derives the edit and the outcome from the verb, the CAS number and the existing value,
//! without effects. The store then applies the edit atomically (`store/update.rs`).
//!
//! A change must ensure that `decide` may be called more than once for a request: all counts,
//! events and replies are outside of it.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::events;
use super::meta::echo::echo;
use crate::counters::Counter;
use crate::decoder::store_request::StoreRequest;
use crate::protocol::command::{PlainSet, StoreVerb};
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
pub(super) enum StoreOutcome {
    Stored,
    NotStored,
    Exists,
    NotFound,
}

/// Stores a value that was received completely.
pub async fn store(session: &mut Session, mut request: Box<StoreRequest>) -> ControlFlow<()> {
    let noreply = request.noreply;
    let (key, meta) = (std::mem::take(&mut request.key), request.meta.take());
    match put(session, request, &key, meta.as_deref()).await {
        Ok(stored) => match meta {
            Some(meta) => answer_meta(session, &meta, &key, &stored),
            None => session.answer(noreply, stored.outcome.text()),
        },
        Err(why) => answer_no_memory(session, noreply, &why),
    }
    ControlFlow::Continue(())
}

/// Stores a value that was received completely, counts the outcome and tells it to watchers. `key`
/// and `meta` are those of the request.
///
/// # Errors
///
/// There is no memory, which is counted.
pub(super) async fn put(
    session: &mut Session,
    request: Box<StoreRequest>,
    key: &[u8],
    meta: Option<&MetaStore>,
) -> Result<Stored, OutOfMemory> {
    let StoreRequest { verb, flags, exptime, unique, .. } = *request;
    let binary = meta.is_some_and(|meta| meta.binary);
    let vivify = meta.and_then(|meta| meta.vivify);
    let (data, charge) = request.into_data();
    let new = New {
        verb,
        unique,
        flags,
        item_flags: ItemFlags { binary, ..ItemFlags::default() },
        invalidate: meta.is_some_and(|meta| meta.invalidate),
        given: meta.and_then(|meta| meta.new_unique),
        vivifies: vivify.is_some(),
        data,
    };
    let server = Arc::clone(&session.server);
    session.counts.count(Counter::CmdSet);
    let full_key = session.namespace.qualify(key);
    // As in memcached: an append that creates the value takes the exptime of `N`, not that of `T`.
    let expiry = Expiry::of(vivify.unwrap_or(exptime));
    let item_bytes_max = server.settings.item_bytes_max;
    let edit = |there: Option<Existing<'_>>| {
        let old = there.map(|there| there.value);
        // As in memcached: if the joined value would be too large, the old value stays as it is.
        let joined = matches!(verb, StoreVerb::Append | StoreVerb::Prepend).then_some(old).flatten();
        match joined {
            Some(old) if item_bytes(key, old.client_flags(), old.len() + new.data.len()) > item_bytes_max => {
                (Edit::Keep, Stored::nothing(StoreOutcome::NotStored))
            }
            _ => decide(&full_key, &new, there, &server),
        }
    };
    server.prefix_stats.count(&full_key, Outcome::Set);
    match server.store.update_received(&full_key, expiry, charge, edit).await {
        Ok(stored) => {
            let outcome = stored.outcome;
            let length = stored.length.unwrap_or(new.data.len());
            let words = [outcome.word(), verb.name()];
            let expiry = stored.kept_expiry.unwrap_or(expiry);
            events::stored(&server.store, &session.entry, &full_key, words, expiry, length);
            if verb == StoreVerb::Add && outcome == StoreOutcome::NotStored {
                // As in memcached: an `add` counts as a use of the value that it finds.
                server.store.mark_used(&full_key);
            }
            if verb == StoreVerb::Cas {
                session.counts.count(match outcome {
                    StoreOutcome::Stored => Counter::CasHits,
                    StoreOutcome::NotFound => Counter::CasMisses,
                    _ => Counter::CasBadval,
                });
            }
            Ok(Stored { length: Some(length), ..stored })
        }
        Err(why) => {
            note_no_memory(session, verb, key, meta.is_some());
            Err(why)
        }
    }
}

/// Runs a `set`, unless it needs more than an insert; returns whether it is done. If it is not, the
/// caller runs [`set_with_wait`].
#[inline(always)] // As a call, `command` would be passed in memory.
pub fn set(session: &mut Session, command: &PlainSet<'_>, value: &[u8]) -> bool {
    let Session { output, server, namespace, counts, entry, .. } = session;
    let (full_key, expiry) = (namespace.qualify(command.key), Expiry::of(command.exptime));
    if !server.store.try_set(&full_key, expiry, command.flags, value) {
        return false;
    }
    counts.count(Counter::CmdSet);
    server.prefix_stats.count(&full_key, Outcome::Set);
    let words = [StoreOutcome::Stored.word(), StoreVerb::Set.name()];
    events::stored(&server.store, entry, &full_key, words, expiry, value.len());
    if !command.noreply {
        output.ended_line(b"STORED\r\n");
    }
    true
}

/// Runs a `set` that may have to wait for room.
#[cold]
pub async fn set_with_wait(session: &mut Session, command: PlainSet<'_>, value: &[u8]) {
    let PlainSet { key, flags, exptime, noreply, .. } = command;
    let (server, verb, expiry) = (Arc::clone(&session.server), StoreVerb::Set, Expiry::of(exptime));
    session.counts.count(Counter::CmdSet);
    let full_key = session.namespace.qualify(key);
    server.prefix_stats.count(&full_key, Outcome::Set);
    let edit = |_: Option<Existing<'_>>| (Edit::Put(server.store.new_value_of(&full_key, flags, value)), ());
    match server.store.update(&full_key, expiry, edit).await {
        Ok(()) => {
            let words = [StoreOutcome::Stored.word(), verb.name()];
            events::stored(&server.store, &session.entry, &full_key, words, expiry, value.len());
            session.answer(noreply, StoreOutcome::Stored.text());
        }
        Err(why) => {
            note_no_memory(session, verb, key, false);
            answer_no_memory(session, noreply, &why);
        }
    }
}

/// Answers an `ms`: a code of two letters, and the flags that the request wants repeated.
fn answer_meta(session: &mut Session, store: &MetaStore, key: &[u8], stored: &Stored) {
    let Stored { outcome, unique, length, .. } = *stored;
    if outcome == StoreOutcome::Stored && store.quiet {
        return;
    }
    let out = &mut session.output;
    out.push(outcome.code().as_bytes());
    for flag in Words::of(&store.echo) {
        match flag[0] {
            b'c' => out.text(format_args!(" c{unique}")),
            b's' => out.text(format_args!(" s{}", length.unwrap_or_default())),
            _ => echo(out, flag, key, store.binary),
        }
    }
    out.line("");
}

/// Refuses a value for which memory ran out while it was received; the decoder discards the rest of
/// the block.
pub fn no_room(session: &mut Session, request: &StoreRequest) -> ControlFlow<()> {
    note_no_room(session, request);
    answer_no_memory(session, request.noreply, &OutOfMemory);
    ControlFlow::Continue(())
}

/// Counts a value for which memory ran out while it was received.
pub(super) fn note_no_room(session: &mut Session, request: &StoreRequest) {
    session.counts.count(Counter::CmdSet);
    note_no_memory(session, request.verb, &request.key, request.meta.is_some());
}

/// Counts a store command for which there is no memory, and tells it to watchers.
fn note_no_memory(session: &mut Session, verb: StoreVerb, key: &[u8], is_meta: bool) {
    let full_key = session.namespace.qualify(key);
    // As in memcached: a failed `set`, and an `ms` of any mode, removes the old value, as its
    // client regards that value as replaced.
    if verb == StoreVerb::Set || is_meta {
        session.server.store.remove(&full_key);
    }
    let words = ["no_memory", verb.name()];
    events::stored(&session.server.store, &session.entry, &full_key, words, Expiry::Never, 0);
    session.counts.count(Counter::StoreNoMemory);
}

fn answer_no_memory(session: &mut Session, noreply: bool, why: &OutOfMemory) {
    if !noreply {
        session.output.format(format_args!("SERVER_ERROR {why}"));
    }
}

/// Refuses a value that is larger than `-I` allows; the decoder discards its block.
pub fn too_large(session: &mut Session, verb: StoreVerb, key: &[u8], noreply: bool) -> ControlFlow<()> {
    note_too_large(session, verb, key);
    session.answer(noreply, ProtocolError::TooLarge.text());
    ControlFlow::Continue(())
}

/// Counts a value that is larger than `-I` allows, and tells it to watchers.
pub(super) fn note_too_large(session: &mut Session, verb: StoreVerb, key: &[u8]) {
    session.counts.count(Counter::StoreTooLarge);
    let full_key = session.namespace.qualify(key);
    // As in memcached: the old value, which was to be replaced, is out of date.
    if verb == StoreVerb::Set {
        session.server.store.remove(&full_key);
    }
    let words = ["too_large", verb.name()];
    events::stored(&session.server.store, &session.entry, &full_key, words, Expiry::Never, 0);
}

/// A store command, as [`decide`] needs it.
struct New {
    verb: StoreVerb,
    /// The CAS number that the value must have; 0 if the request has none.
    unique: u64,
    /// The client flags.
    flags: u32,
    item_flags: ItemFlags,
    /// Flag `I`: if the request's number is older than the value's, store the value all the same,
    /// marked stale.
    invalidate: bool,
    /// Flag `E`: the CAS number of the stored value.
    given: Option<u64>,
    /// Flag `N`: an append or prepend stores a value on a miss.
    vivifies: bool,
    data: Data,
}

/// The result of a store command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub outcome: StoreOutcome,
    /// The CAS number of the stored value; 0 if nothing was stored.
    pub unique: u64,
    /// The length of the stored value; if nothing was stored, after `put` that of the request's.
    length: Option<usize>,
    /// The expiry of the stored value, if that is the old value's.
    kept_expiry: Option<Expiry>,
}

impl Stored {
    /// Nothing was stored.
    fn nothing(outcome: StoreOutcome) -> Self {
        Self { outcome, unique: 0, length: None, kept_expiry: None }
    }

    fn value(value: &Value) -> Self {
        let (unique, length) = (value.unique(), Some(value.len()));
        Self { outcome: StoreOutcome::Stored, unique, length, kept_expiry: None }
    }
}

/// Decides a store command: the edit of the existing value, and the result to report.
fn decide(full_key: &[u8], new: &New, there: Option<Existing<'_>>, server: &Server) -> (Edit, Stored) {
    let old = there.map(|there| there.value);
    let put = || {
        let value = server.store.new_value(full_key, new.flags, new.item_flags, new.given, &new.data);
        let stored = Stored::value(&value);
        (Edit::Put(value), stored)
    };
    let change = |flags, item_flags, data: &Data| {
        let value = server.store.new_value(full_key, flags, item_flags, new.given, data);
        let stored = Stored { kept_expiry: there.map(|there| there.left.into()), ..Stored::value(&value) };
        (Edit::Change(value), stored)
    };
    let join = |old: &Value, data: &Data| {
        let item_flags = ItemFlags { binary: old.item_flags().binary, ..ItemFlags::default() };
        change(old.client_flags(), item_flags, data)
    };
    let keep = |outcome| (Edit::Keep, Stored::nothing(outcome));
    match (new.verb, old) {
        (StoreVerb::Set, _) | (StoreVerb::Add, None) | (StoreVerb::Replace, Some(_)) => put(),
        (StoreVerb::Append | StoreVerb::Prepend, None) if new.vivifies => put(),
        (StoreVerb::Append | StoreVerb::Prepend, Some(old)) if new.unique != 0 && new.unique != old.unique() => {
            keep(StoreOutcome::Exists)
        }
        (StoreVerb::Append, Some(old)) => {
            join(old, &Data::join(old.pieces().chain(new.data.pieces()), &server.piece_pool))
        }
        (StoreVerb::Prepend, Some(old)) => {
            join(old, &Data::join(new.data.pieces().chain(old.pieces()), &server.piece_pool))
        }
        // As in memcached: 0 matches no number, not even a 0 that a client has given.
        (StoreVerb::Cas, Some(old)) if new.unique != 0 && new.unique == old.unique() => put(),
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

    /// Returns the word that `watch mutations` shows.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::NotStored => "not_stored",
            Self::Exists => "exists",
            Self::NotFound => "not_found",
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
