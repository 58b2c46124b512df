//! `set`, `add`, `replace`, `append`, `prepend`, `cas`.

use std::sync::Arc;

use super::answer;
use crate::connection::{Next, Session};
use crate::expiry::Expiry;
use crate::parse::{item_bytes, Block, Refusal, Verb};
use crate::stats::Counter;
use crate::store::Edit;
use crate::value::{Data, Value};

/// memcached's four answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Stored,
    NotStored,
    Exists,
    NotFound,
}

/// Stores a value that has come in whole.
pub async fn store(session: &mut Session, block: Block) -> Next {
    let Block { verb, flags, exptime, unique, noreply, .. } = block;
    let key = block.key.clone();
    let new = New { flags, expiry: Expiry::of(exptime), data: Arc::new(block.into_data()) };
    session.server.note(2, format_args!("< {verb:?} {} {} bytes", key.escape_ascii(), new.data.len()));
    session.tally.count(Counter::CmdSet);
    let item_bytes_max = session.server.settings.item_bytes_max;
    let edit = |old: Option<&Value>| {
        // As memcached: what would grow too large by joining stays as it is.
        let joined = matches!(verb, Verb::Append | Verb::Prepend).then_some(old).flatten();
        match joined {
            Some(old) if item_bytes(&key, old.flags, old.data.len() + new.data.len()) > item_bytes_max => {
                (Edit::Keep, Outcome::NotStored)
            }
            _ => decide(verb, unique, &new, old),
        }
    };
    let outcome = session.server.store.update(&key, new.expiry, edit).await;
    match outcome {
        Ok(outcome) => {
            if verb == Verb::Cas {
                session.tally.count(match outcome {
                    Outcome::Stored => Counter::CasHits,
                    Outcome::NotFound => Counter::CasMisses,
                    _ => Counter::CasBadval,
                });
            }
            answer(session, noreply, outcome.text());
        }
        Err(why) => {
            // As memcached: a set that failed leaves no old value behind, which its client believes to be gone.
            if verb == Verb::Set {
                session.server.store.remove(&key);
            }
            session.tally.count(Counter::StoreNoMemory);
            if !noreply {
                session.output.format(format_args!("SERVER_ERROR {why}"));
            }
        }
    }
    Next::Serve
}

/// Refuses a value that is larger than any may be; its bytes are swallowed by the decoder.
pub fn too_large(session: &mut Session, verb: Verb, key: &[u8], noreply: bool) -> Next {
    session.tally.count(Counter::StoreTooLarge);
    // As memcached: the value that was to be replaced is out of date.
    if verb == Verb::Set {
        session.server.store.remove(key);
    }
    answer(session, noreply, Refusal::TooLarge.text());
    Next::Serve
}

struct New {
    flags: u32,
    expiry: Expiry,
    data: Arc<Data>,
}

/// What `verb` does to `old`, as a pure function.
fn decide(verb: Verb, unique: u64, new: &New, old: Option<&Value>) -> (Edit, Outcome) {
    let put = || match new.expiry {
        // Stored, and over at once.
        Expiry::Past => Edit::Remove,
        _ => Edit::Put { flags: new.flags, data: Arc::clone(&new.data) },
    };
    let join = |parts: [&Data; 2]| Edit::Change { data: Arc::new(Data::concat(parts)) };
    match (verb, old) {
        (Verb::Set, _) | (Verb::Add, None) | (Verb::Replace, Some(_)) => (put(), Outcome::Stored),
        (Verb::Append, Some(old)) => (join([&old.data, &new.data]), Outcome::Stored),
        (Verb::Prepend, Some(old)) => (join([&new.data, &old.data]), Outcome::Stored),
        (Verb::Cas, Some(old)) if old.unique == unique => (put(), Outcome::Stored),
        (Verb::Cas, Some(_)) => (Edit::Keep, Outcome::Exists),
        (Verb::Cas, None) => (Edit::Keep, Outcome::NotFound),
        (Verb::Add, Some(_)) | (Verb::Replace | Verb::Append | Verb::Prepend, None) => (Edit::Keep, Outcome::NotStored),
    }
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Self::Stored => "STORED",
            Self::NotStored => "NOT_STORED",
            Self::Exists => "EXISTS",
            Self::NotFound => "NOT_FOUND",
        }
    }
}
