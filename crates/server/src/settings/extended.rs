//! `-o`: memcached's extended options. Most of them tune memcached's slab allocator and segmented
//! LRU, which this server does not have. Such options are accepted without effect, so that a
//! command line for memcached works here as well. Options whose effect would be missed are refused
//! by name.
//!
//! A change must keep every option of memcached 1.6.18 in one of the two lists or among those with
//! an effect ([`Extended`]); an unknown option is an error, as in memcached. The rows of
//! `src/tests/compatibility/names.rs` (`OPTIONS`) must say the same; a test compares them.

use std::time::Duration;

use super::tls::TlsOptions;

/// Options that tune parts of memcached that this server does not have or bounds in other ways
/// (slabs, LRUs, crawler, buffers), or that request the only behaviour of this server.
const WITHOUT_EFFECT: &[&str] = &[
    "hash_algorithm",
    "hashpower",
    "hot_lru_pct",
    "hot_max_factor",
    "inline_ascii_resp",
    "lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "lru_maintainer",
    "maxconns_fast",
    "modern",
    "no_chunked_items",
    "no_drop_privileges",
    "no_hashexpand",
    "no_inline_ascii_resp",
    "no_lru_crawler",
    "no_lru_maintainer",
    "no_maxconns_fast",
    "no_modern",
    "no_slab_automove",
    "no_slab_reassign",
    "read_buf_mem_limit",
    "resp_obj_mem_limit",
    "slab_automove",
    "slab_automove_freeratio",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_chunk_max",
    "slab_reassign",
    "slab_sizes",
    "tail_repair_time",
    "temporary_ttl",
    "track_sizes",
    "warm_lru_pct",
    "warm_max_factor",
    "watcher_logbuf_size",
    "worker_logbuf_size",
];

/// Options with an effect that this server does not have; also all that begin with `ext_`.
const REFUSED: &[&str] = &[
    "drop_privileges",
    "ext_path",
    "proxy_arg",
    "proxy_config",
    "proxy_memprofile",
    "proxy_uring",
    "relaxed_privileges",
    "sock_cookie_id",
    "ssl_ciphers",
    "ssl_kernel_tls",
];

/// The options with an effect.
#[derive(Debug, Default)]
pub struct Extended {
    /// The time of the last `idle_timeout`, unless that is 0.
    pub idle_timeout: Option<Duration>,
    pub tls: TlsOptions,
}

/// Checks all options, and returns those with an effect.
///
/// # Errors
///
/// A sentence with the option's name.
pub fn parse(options: &[String]) -> Result<Extended, String> {
    let mut extended = Extended::default();
    for option in options {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option.as_str(), None),
        };
        if name == "idle_timeout" {
            let text = value.ok_or("-o: idle_timeout needs a number of seconds")?;
            let seconds: u32 = text
                .parse()
                .map_err(|_| format!("-o: idle_timeout is a number of seconds, 0 for no limit, not {text:?}"))?;
            extended.idle_timeout = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        } else if !extended.tls.set(name, value)? {
            check(name)?;
        }
    }
    Ok(extended)
}

/// Accepts the name of an option that is without effect here.
///
/// # Errors
///
/// A sentence with the option's name, if the option is refused or unknown.
fn check(name: &str) -> Result<(), String> {
    if WITHOUT_EFFECT.contains(&name) {
        return Ok(());
    }
    if REFUSED.contains(&name) || name.starts_with("ext_") {
        return Err(format!("-o: memcached's option {name} is not supported here"));
    }
    let taken = WITHOUT_EFFECT.join(", ");
    Err(format!("-o: there is no option {name:?}; options of memcached that are accepted without effect: {taken}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_or_refused_by_name() {
        let parse = |options: &[&str]| parse(&options.iter().map(ToString::to_string).collect::<Vec<_>>());
        for text in ["modern", "hashpower=20", "slab_reassign", "ssl_key=/x"] {
            assert!(parse(&[text]).is_ok());
        }
        for text in ["ssl_ciphers=x", "ssl_key", "ext_item_age=1", "nonsense", ""] {
            let why = parse(&[text]).unwrap_err();
            assert!(why.contains(text.split('=').next().unwrap()), "{why}");
        }
        let timeout = |options: &[&str]| parse(options).map(|extended| extended.idle_timeout);
        assert_eq!(timeout(&["modern"]), Ok(None));
        assert_eq!(timeout(&["modern", "idle_timeout=5", "idle_timeout=10"]), Ok(Some(Duration::from_secs(10))));
        assert_eq!(timeout(&["idle_timeout=10", "idle_timeout=0"]), Ok(None));
        for option in ["idle_timeout", "idle_timeout=", "idle_timeout=-1", "idle_timeout=1m", "nonsense"] {
            let why = timeout(&[option]).unwrap_err();
            assert!(why.contains(option.split('=').next().unwrap()), "{why}");
        }
        let why = check("nonsense").unwrap_err();
        assert!(why.contains("\"nonsense\"") && WITHOUT_EFFECT.iter().all(|taken| why.contains(taken)), "{why}");
    }
}
