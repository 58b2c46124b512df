//! Commands that control the whole server: memcached's `cache_memlimit`, `shutdown`, `watch` and
//! `lru_crawler`, and this server's `tenant`.
//!
//! Only the syntax; the effects are in `commands.rs` (`shutdown`), `commands/admin.rs`,
//! `commands/watch.rs` and `commands/crawl.rs`.
//!
//! A parser must return memcached's error text where memcached has the command.

use super::command::{Command, CrawlAction};
use super::error::{ProtocolError, RefusedLine};
use super::event::{Event, EventSet};
use super::field::noreply;
use super::item::{CLASS_MAX, SLAB_CLASS};
use super::number::unsigned32;
use super::words::Words;

/// `cache_memlimit <megabytes> [noreply]`
pub fn memory_limit<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    if arguments.len() != 1 && arguments.len() != 2 {
        return Err(ProtocolError::Unknown.into());
    }
    let noreply = noreply(arguments);
    let megabytes = unsigned32(arguments[0]).ok_or(RefusedLine { noreply, ..ProtocolError::Unknown.into() })?;
    Ok(Command::MemoryLimit { megabytes, noreply })
}

/// `shutdown [graceful]`
pub fn shutdown<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    match arguments {
        [] => Ok(Command::Shutdown { graceful: false }),
        [b"graceful"] => Ok(Command::Shutdown { graceful: true }),
        _ => Err(ProtocolError::ShutdownMode.into()),
    }
}

/// `tenant list`, `tenant set <name> <limit>=<amount> [<limit>=<amount>]*`
pub fn tenant<'a>(line: &'a [u8], arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    match arguments {
        [b"list"] => Ok(Command::TenantList),
        [b"set", name, _, ..] => {
            let mut limits = Words::of(line);
            // Skips `tenant set <name>`.
            limits.nth(2);
            Ok(Command::TenantSet { name, limits })
        }
        _ => Err(ProtocolError::TenantUsage.into()),
    }
}

/// `watch <event>*`; without an event: `fetchers`. Events of memcached that cannot happen here are
/// accepted: raw commands (memcached prints no lines for them either), and those of its slabs and
/// its proxy.
pub fn watch<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Command<'a>, RefusedLine> {
    let (mut events, mut is_default) = (EventSet::default(), true);
    for word in words {
        is_default = false;
        events = match word {
            b"fetchers" => events.with(Event::Fetch),
            b"mutations" => events.with(Event::Mutation),
            b"evictions" => events.with(Event::Eviction),
            b"deletions" => events.with(Event::Deletion),
            b"connevents" => events.with(Event::Connection),
            b"rawcmds" | b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" => events,
            _ => return Err(ProtocolError::Unknown.into()),
        };
    }
    if is_default {
        events = events.with(Event::Fetch);
    }
    Ok(Command::Watch { events })
}

/// `lru_crawler metadump|mgdump|crawl all|hash|<class>[,<class>]*`. There is one slab class; a
/// crawl of any other class visits nothing.
pub fn lru_crawler<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    let [verb, classes] = arguments else { return Err(ProtocolError::Unknown.into()) };
    let crawl = match *verb {
        b"metadump" => CrawlAction::Metadump,
        b"mgdump" => CrawlAction::Mgdump,
        b"crawl" => CrawlAction::Expire,
        _ => return Err(ProtocolError::Unknown.into()),
    };
    let is_class = |word: &[u8]| unsigned32(word).is_some_and(|class| (1..=CLASS_MAX).contains(&class));
    match *classes {
        b"all" | b"hash" => Ok(Command::Crawl { crawl, everything: true }),
        list if list.split(|byte| *byte == b',').all(is_class) => {
            let everything = list.split(|byte| *byte == b',').any(|class| unsigned32(class) == Some(SLAB_CLASS));
            Ok(Command::Crawl { crawl, everything })
        }
        _ => Err(ProtocolError::BadClass.into()),
    }
}
