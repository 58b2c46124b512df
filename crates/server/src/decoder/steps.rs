//! The steps that a decoder takes on a stream, for the tests and the fuzz target.
//!
//! Steps as text can be compared between different splits of the same input, which is invariant 1
//! of `decoder.rs`.
//!
//! A new kind of step must be printed with all of its fields.

use std::sync::Arc;

use crate::decoder::binary::{BinaryDecoder, BinaryRequest, BinaryStep};
use crate::decoder::store_request::StoreRequest;
use crate::decoder::{Decoder, PlainStep, Step};
use crate::protocol::command::PlainSet;
use crate::value::piece_pool::PiecePool;

/// Returns all steps of `chunks` as text; input left over at the end is ignored. Panics if a step
/// consumes nothing, or more than there is.
pub fn steps<'a>(item_bytes_max: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut decoder = Decoder::new(item_bytes_max, &Arc::new(PiecePool::new(1 << 20)), None);
    texts(chunks, |input| {
        let (taken, step) = decoder.step(input);
        let text = match step {
            Step::More => None,
            // As the equal `Step::Store`: invariant 1 allows either.
            Step::Plain(PlainStep::Set { command: PlainSet { key, flags, exptime, noreply, .. }, value }) => {
                let head = format!("Set {key:?} {flags} {exptime} 0 {noreply} None");
                Some(format!("{head} {}", value.escape_ascii()))
            }
            Step::Store(request) => Some(store_text(*request)),
            step => Some(format!("{step:?}")),
        };
        (taken, text)
    })
}

/// As [`steps`], for the binary protocol, of a client that has logged in or not.
pub fn binary_steps<'a>(
    item_bytes_max: usize,
    is_logged_in: bool,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<String> {
    let mut decoder = BinaryDecoder::new(item_bytes_max, &Arc::new(PiecePool::new(1 << 20)), None);
    texts(chunks, |input| {
        let (taken, step) = decoder.step(input, is_logged_in);
        let text = match step {
            BinaryStep::More => None,
            BinaryStep::Request(to, BinaryRequest::Store(request)) => Some(format!("{to:?} {}", store_text(*request))),
            BinaryStep::Request(to, request) => Some(format!("{to:?} {request:?}")),
            step => Some(format!("{step:?}")),
        };
        (taken, text)
    })
}

/// Calls `step` for all of `chunks`. It returns the bytes taken, and a text unless it needs more
/// input.
fn texts<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
    mut step: impl FnMut(&[u8]) -> (usize, Option<String>),
) -> Vec<String> {
    let (mut buffer, mut texts) = (Vec::new(), Vec::new());
    for chunk in chunks {
        buffer.extend_from_slice(chunk);
        let mut used = 0;
        loop {
            let (taken, text) = step(&buffer[used..]);
            used += taken;
            assert!(used <= buffer.len(), "a step takes no more than there is");
            let Some(text) = text else { break };
            assert!(taken > 0, "invariant 2: {text} took nothing");
            texts.push(text);
        }
        buffer.drain(..used);
    }
    texts
}

fn store_text(request: StoreRequest) -> String {
    let head = format!(
        "{:?} {:?} {} {} {} {} {:?}",
        request.verb, request.key, request.flags, request.exptime, request.unique, request.noreply, request.meta
    );
    let bytes: Vec<u8> = request.into_data().0.pieces().flatten().copied().collect();
    format!("{head} {}", bytes.escape_ascii())
}
