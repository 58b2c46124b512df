//! `-o`: memcached's extended options. Most of them tune its slab allocator and segmented LRU,
//! which this server does not have. Those are accepted without effect, so that a command line for
//! memcached works here as well. Options whose effect would be missed are refused by name.
//!
//! Every option of memcached 1.6.18 must be in one of the lists; an unknown option is an error, as
//! in memcached.

use std::time::Duration;

/// Options for slabs, their LRUs and maintenance threads, or for buffers that this server bounds in
/// other ways.
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

/// Options with an effect that this server does not have.
const REFUSED: &[&str] = &[
    "drop_privileges",
    "ext_path",
    "proxy_arg",
    "proxy_config",
    "proxy_memprofile",
    "proxy_uring",
    "relaxed_privileges",
    "sock_cookie_id",
    "ssl_ca_cert",
    "ssl_chain_cert",
    "ssl_ciphers",
    "ssl_kernel_tls",
    "ssl_key",
    "ssl_keyformat",
    "ssl_min_version",
    "ssl_session_cache",
    "ssl_verify_mode",
    "ssl_wbuf_size",
];

/// Checks all options, and returns the time of the last `idle_timeout`, unless that is 0.
///
/// # Errors
///
/// A sentence with the option's name.
pub fn idle_timeout(options: &[String]) -> Result<Option<Duration>, String> {
    let mut timeout = None;
    for option in options {
        match option.split_once('=') {
            Some(("idle_timeout", seconds)) => {
                let seconds: u32 = seconds
                    .parse()
                    .map_err(|_| format!("-o: idle_timeout is a number of seconds, 0 for no limit, not {seconds:?}"))?;
                timeout = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            }
            _ if option == "idle_timeout" => return Err("-o: idle_timeout needs a number of seconds".to_owned()),
            _ => check(option)?,
        }
    }
    Ok(timeout)
}

/// Checks one option without an effect, `name` or `name=value`.
///
/// # Errors
///
/// A sentence with the option's name.
fn check(text: &str) -> Result<(), String> {
    let name = text.split('=').next().unwrap_or_default();
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
        for text in ["modern", "hashpower=20", "slab_reassign"] {
            assert_eq!(check(text), Ok(()));
        }
        for text in ["ssl_key=/x", "ext_item_age=1", "nonsense", ""] {
            let why = check(text).unwrap_err();
            assert!(why.contains(text.split('=').next().unwrap()), "{why}");
        }
        let timeout = |options: &[&str]| idle_timeout(&options.iter().map(ToString::to_string).collect::<Vec<_>>());
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
