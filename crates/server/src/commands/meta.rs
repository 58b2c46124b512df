//! The meta commands; `ms` is with the other commands that store.

mod arithmetic;
mod debug;
mod delete;
mod get;

use crate::connection::Session;
use crate::expiry::Expiry;
use crate::parse::{base64, Meta, MetaVerb};
use crate::reply::Output;

pub use debug::debug;

/// Runs one.
pub async fn meta(session: &mut Session, meta: Meta<'_>) {
    match meta.verb {
        MetaVerb::Get => get::get(session, meta).await,
        MetaVerb::Delete => delete::delete(session, meta).await,
        MetaVerb::Arithmetic => arithmetic::arithmetic(session, meta).await,
    }
}

/// Repeats what a flag wants repeated, whatever came of the command: the opaque, the key.
pub(super) fn echo(out: &mut Output, flag: &[u8], key: &[u8], binary: bool) {
    match flag[0] {
        b'O' => {
            out.push(b" ");
            out.push(flag);
        }
        b'k' if binary => {
            let mut text = b" k".to_vec();
            base64::encode(key, &mut text);
            text.extend(b" b");
            out.push(&text);
        }
        b'k' => {
            out.push(b" k");
            out.push(key);
        }
        _ => {}
    }
}

/// `code`, and what the request wants repeated.
fn brief(out: &mut Output, code: &str, meta: &Meta<'_>) {
    out.push(code.as_bytes());
    for flag in meta.flags.clone() {
        echo(out, flag, &meta.key, meta.options.binary);
    }
    out.line("");
}

/// `t`: seconds left, -1 for ever.
fn time_left(out: &mut Output, expiry: Expiry) {
    match expiry.seconds_left() {
        Some(seconds) => out.text(format_args!(" t{seconds}")),
        None => out.push(b" t-1"),
    }
}
