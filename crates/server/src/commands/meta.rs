//! The meta commands, except `ms`, which is in `commands/store.rs` with the other store commands.
//!
//! `protocol/meta.rs` parses them; flags that a reply repeats are answered in the order of the
//! request.
//!
//! A flag that is added needs its parser, its reply and a test of its error text.

pub(super) mod arithmetic;
mod debug;
pub(super) mod delete;
pub mod echo;
mod get;

use crate::protocol::meta_command::{MetaCommand, MetaVerb};
use crate::session::Session;

pub use debug::debug;

/// Runs a meta command.
pub async fn meta(session: &mut Session, meta: MetaCommand<'_>) {
    match meta.verb {
        MetaVerb::Get => get::get(session, meta).await,
        MetaVerb::Delete => delete::delete(session, meta).await,
        MetaVerb::Arithmetic => arithmetic::arithmetic(session, meta).await,
    }
}
