//! Commands that control the whole server: memcached's `cache_memlimit`, `watch` and `lru_crawler`,
//! and this server's `tenant`.

use super::command::{Command, CrawlAction};
use super::error::{ProtocolError, RefusedLine};
use super::field::noreply;
use super::item::SLAB_CLASS;
use super::number::unsigned32;
use super::words::Words;

/// memcached's largest slab class.
const CLASS_MAX: u32 = 63;

/// `cache_memlimit <megabytes> [noreply]`
pub fn memory_limit<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    if arguments.len() != 1 && arguments.len() != 2 {
        return Err(ProtocolError::Unknown.into());
    }
    let noreply = noreply(arguments);
    let megabytes = unsigned32(arguments[0]).ok_or(RefusedLine { noreply, ..ProtocolError::Unknown.into() })?;
    Ok(Command::MemoryLimit { megabytes, noreply })
}

/// `tenant list`, `tenant set <name> <limit>=<bytes>*`
pub fn tenant<'a>(line: &'a [u8], arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    match arguments {
        [b"list"] => Ok(Command::TenantList),
        [b"set", name, _, ..] => {
            let mut limits = Words::of(line);
            limits.nth(2);
            Ok(Command::TenantSet { name, limits })
        }
        _ => Err(ProtocolError::TenantUsage.into()),
    }
}

/// `watch evictions`. The other event types of memcached are refused with an error of their own.
pub fn watch<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    let known = |word: &&[u8]| {
        let others: [&[u8]; 8] = [
            b"rawcmds",
            b"fetchers",
            b"mutations",
            b"sysevents",
            b"connevents",
            b"proxyreqs",
            b"proxyevents",
            b"proxyuser",
        ];
        *word == b"evictions" || others.contains(word)
    };
    match arguments {
        [b"evictions"] => Ok(Command::WatchEvictions),
        _ if arguments.iter().all(known) => Err(ProtocolError::WatchEvictionsOnly.into()),
        _ => Err(ProtocolError::Unknown.into()),
    }
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
