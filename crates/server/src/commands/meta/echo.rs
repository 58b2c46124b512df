//! Parts that replies to meta commands have in common: repeated flags, the time left.
//!
//! Shared by all meta commands, so that they repeat flags in one way.
//!
//! A change must keep the order of the request's flags.

use crate::net::output::Output;
use crate::protocol::base64;
use crate::protocol::expiry::Expiry;
use crate::protocol::item::is_shown_in_base64;
use crate::protocol::meta_command::MetaCommand;

/// Adds `flag` if every reply repeats it, whatever the outcome: the opaque or the key.
pub fn echo(out: &mut Output, flag: &[u8], key: &[u8], binary: bool) {
    match flag[0] {
        b'O' => {
            out.push(b" ");
            out.push(flag);
        }
        b'k' if is_shown_in_base64(key, binary) => {
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

/// Answers with `code` and the repeated flags.
pub fn brief(out: &mut Output, code: &str, meta: &MetaCommand<'_>) {
    out.push(code.as_bytes());
    for flag in meta.flags.clone() {
        echo(out, flag, &meta.key, meta.options.binary);
    }
    out.line("");
}

/// Adds flag `t`: the seconds left, -1 if the value does not expire.
pub fn time_left(out: &mut Output, expiry: Expiry) {
    match expiry.seconds_left() {
        Some(seconds) => out.text(format_args!(" t{seconds}")),
        None => out.push(b" t-1"),
    }
}
