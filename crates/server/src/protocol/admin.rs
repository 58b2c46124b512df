//! What steers the server as a whole: memcached's `cache_memlimit`, `watch` and `lru_crawler`, and our own `tenant`.

use super::command::{Command, Crawl};
use super::error::{Refusal, Refused};
use super::field::noreply;
use super::item::SLAB_CLASS;
use super::number::unsigned32;
use super::words::Keys;

/// memcached's largest class.
const CLASS_MAX: u32 = 63;

/// `cache_memlimit <megabytes> [noreply]`
pub fn memory_limit<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, Refused> {
    if arguments.len() != 1 && arguments.len() != 2 {
        return Err(Refusal::Unknown.into());
    }
    let noreply = noreply(arguments);
    let megabytes = unsigned32(arguments[0]).ok_or(Refused { noreply, ..Refusal::Unknown.into() })?;
    Ok(Command::MemoryLimit { megabytes, noreply })
}

/// `tenant list`, `tenant set <name> <limit>=<bytes>*`
pub fn tenant<'a>(line: &'a [u8], arguments: &[&'a [u8]]) -> Result<Command<'a>, Refused> {
    match arguments {
        [b"list"] => Ok(Command::TenantList),
        [b"set", name, _, ..] => {
            let mut limits = Keys::of(line);
            limits.nth(2);
            Ok(Command::TenantSet { name, limits })
        }
        _ => Err(Refusal::TenantUsage.into()),
    }
}

/// `watch evictions`. The other things that memcached lets one watch are refused by name.
pub fn watch<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, Refused> {
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
        _ if arguments.iter().all(known) => Err(Refusal::WatchEvictionsOnly.into()),
        _ => Err(Refusal::Unknown.into()),
    }
}

/// `lru_crawler metadump|mgdump|crawl all|hash|<class>[,<class>]*`. There is one class, and what is said of others is said of nothing.
pub fn lru_crawler<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, Refused> {
    let [verb, classes] = arguments else { return Err(Refusal::Unknown.into()) };
    let crawl = match *verb {
        b"metadump" => Crawl::Describe,
        b"mgdump" => Crawl::Name,
        b"crawl" => Crawl::Expire,
        _ => return Err(Refusal::Unknown.into()),
    };
    let is_class = |word: &[u8]| unsigned32(word).is_some_and(|class| (1..=CLASS_MAX).contains(&class));
    match *classes {
        b"all" | b"hash" => Ok(Command::Crawl { crawl, everything: true }),
        list if list.split(|byte| *byte == b',').all(is_class) => {
            let everything = list.split(|byte| *byte == b',').any(|class| unsigned32(class) == Some(SLAB_CLASS));
            Ok(Command::Crawl { crawl, everything })
        }
        _ => Err(Refusal::BadClass.into()),
    }
}
