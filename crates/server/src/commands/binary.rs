//! The requests of the binary protocol: the text commands' steps, with replies of their own.
//!
//! Each request calls the function that the text command calls, too, which changes the store,
//! counts, and tells watchers; only the reply is written here.
//!
//! A change must ensure that a quiet request is answered exactly if it fails, or if it reads and
//! finds a value.

mod sasl;
mod stats;

use std::io;
use std::ops::ControlFlow;

pub use sasl::{sasl, sasl_mechanisms, SaslState};

use super::meta::arithmetic::{self, MetaArithmeticOutcome};
use super::meta::delete::{self, DeleteOutcome};
use super::store::{self, StoreOutcome};
use super::{concerns_all, get, VERBOSITY_MAX};
use crate::counters::Counter;
use crate::decoder::store_request::StoreRequest;
use crate::protocol::binary::header::ReplyTo;
use crate::protocol::binary::opcode::{Opcode, Operation};
use crate::protocol::binary::request::Read;
use crate::protocol::binary::status::Status;
use crate::protocol::command::{Command, StoreVerb};
use crate::protocol::expiry::Expiry;
use crate::protocol::meta_command::{MetaCommand, MetaVerb};
use crate::session::Session;
use crate::version::VERSION;

/// Answers a read. A quiet one that finds nothing has no answer.
pub fn read(session: &mut Session, to: ReplyTo, read: Read<'_>) {
    let Read { key, touch, with_key, with_value } = read;
    let shown = if with_key { key } else { b"" };
    let is_found = match touch {
        None => get::read(session, key, |output, value| output.binary_value(to, shown, value, with_value)),
        Some(exptime) => match get::read_and_touch(session, key, Expiry::of(exptime)) {
            Some(value) => {
                session.output.binary_value(to, shown, &value, with_value);
                true
            }
            None => false,
        },
    };
    match (is_found || to.is_quiet, with_key) {
        (true, _) => {}
        // As in memcached: the key instead of the text.
        (false, true) => session.output.binary_reply(to, Status::NotFound, key, b"", 0),
        (false, false) => session.output.binary_error(to, Status::NotFound, None),
    }
}

/// Runs a request without a value that is no read. Returns `Break` if the connection is to be
/// closed.
///
/// # Errors
///
/// The connection failed while the reply was written.
pub async fn run(session: &mut Session, to: ReplyTo, command: Command<'_>) -> io::Result<ControlFlow<()>> {
    if session.namespace.is_restricted() && concerns_all(&command) {
        session.output.binary_error(to, Status::AuthError, Some("not allowed on a tenant's own connection"));
        return Ok(ControlFlow::Continue(()));
    }
    match command {
        Command::Meta(meta) if meta.verb == MetaVerb::Delete => delete(session, to, &meta).await,
        Command::Meta(meta) if meta.verb == MetaVerb::Arithmetic => arithmetic(session, to, &meta).await,
        Command::Stats { topic, argument, .. } => stats::stats(session, to, topic, argument).await?,
        Command::FlushAll { exptime, .. } if session.server.settings.flush => {
            session.counts.count(Counter::CmdFlush);
            session.server.flush(exptime).await;
            session.output.binary_success(to, b"", 0);
        }
        Command::FlushAll { .. } => session.output.binary_error(to, Status::AuthError, None),
        Command::Verbosity { level, .. } => {
            session.server.set_verbosity(level.min(VERBOSITY_MAX) as u8);
            session.output.binary_success(to, b"", 0);
        }
        Command::Version => session.output.binary_success(to, VERSION.as_bytes(), 0),
        Command::MetaNoop => session.output.binary_success(to, b"", 0),
        Command::Quit => {
            session.output.binary_success(to, b"", 0);
            return Ok(ControlFlow::Break(()));
        }
        // The decoder of the binary protocol makes no other commands.
        _ => session.output.binary_error(to, Status::UnknownCommand, None),
    }
    Ok(ControlFlow::Continue(()))
}

async fn delete(session: &mut Session, to: ReplyTo, meta: &MetaCommand<'_>) {
    match delete::remove(session, &meta.key, &meta.options).await {
        Err(_) => session.output.binary_error(to, Status::OutOfMemory, None),
        Ok(DeleteOutcome::Missing) => session.output.binary_error(to, Status::NotFound, None),
        Ok(DeleteOutcome::Exists) => session.output.binary_error(to, Status::Exists, None),
        Ok(DeleteOutcome::Deleted { .. } | DeleteOutcome::Emptied | DeleteOutcome::Stale) => {
            session.output.binary_success(to, b"", 0);
        }
    }
}

async fn arithmetic(session: &mut Session, to: ReplyTo, meta: &MetaCommand<'_>) {
    let lifetime = meta.options.vivify.map_or(Expiry::Never, Expiry::of);
    let status = match arithmetic::change(session, &meta.key, &meta.options, lifetime).await {
        Ok(MetaArithmeticOutcome::Done(done)) => {
            done.publish_if_made(session, &meta.key, lifetime);
            let number = done.number.to_be_bytes();
            return session.output.binary_success(to, &number, done.value.unique());
        }
        Ok(MetaArithmeticOutcome::Missing) => Status::NotFound,
        Ok(MetaArithmeticOutcome::Exists) => Status::Exists,
        Ok(MetaArithmeticOutcome::NoNumber) => Status::NoNumber,
        Err(_) => Status::OutOfMemory,
    };
    session.output.binary_error(to, status, None);
}

/// Stores a value that was received completely.
pub async fn store(session: &mut Session, to: ReplyTo, mut request: Box<StoreRequest>) {
    let (verb, key) = (request.verb, std::mem::take(&mut request.key));
    let status = match store::put(session, request, &key, None).await {
        Ok(stored) => match (stored.outcome, verb) {
            (StoreOutcome::Stored, _) => return session.output.binary_success(to, b"", stored.unique),
            (StoreOutcome::Exists, _) | (StoreOutcome::NotStored, StoreVerb::Add) => Status::Exists,
            (StoreOutcome::NotFound, _) | (StoreOutcome::NotStored, StoreVerb::Replace) => Status::NotFound,
            (StoreOutcome::NotStored, _) => Status::NotStored,
        },
        Err(_) => {
            remove_replaced(session, to, verb, &key);
            Status::OutOfMemory
        }
    };
    session.output.binary_error(to, status, None);
}

/// Removes the old value after a `set` with a CAS number for which there is no memory. As in
/// memcached, the number does not make it another command here.
fn remove_replaced(session: &mut Session, to: ReplyTo, verb: StoreVerb, key: &[u8]) {
    let sent = Opcode::of(to.opcode).map(|opcode| opcode.operation);
    if verb == StoreVerb::Cas && sent == Some(Operation::Store(StoreVerb::Set)) {
        session.server.store.remove(&session.namespace.qualify(key));
    }
}

/// Refuses a value for which memory ran out while it was received; the decoder discards the rest.
pub fn no_room(session: &mut Session, to: ReplyTo, request: &StoreRequest) {
    store::note_no_room(session, request);
    remove_replaced(session, to, request.verb, &request.key);
    session.output.binary_error(to, Status::OutOfMemory, None);
}

/// Refuses a value that is larger than `-I` allows; the decoder discards it.
pub fn too_large(session: &mut Session, to: ReplyTo, verb: StoreVerb, key: &[u8]) {
    store::note_too_large(session, verb, key);
    session.output.binary_error(to, Status::TooLarge, None);
}
