//! memcached's flags that have no effect here: accepted with a log line if that is harmless,
//! refused by name if a user would miss the effect.
//!
//! A start script of memcached must work or fail with a reason; no flag may be ignored in silence.
//! The comments of the fields are the text of `--help`. The server's README and
//! `src/tests/compatibility/names.rs` (`FLAGS`) have a row for each flag.

use clap::{ArgAction, Args};

/// Flags without an effect, and flags that are refused.
#[derive(Debug, Default, Args)]
pub struct MemcachedFlags {
    /// Accepted without effect: requests of a connection before others are served; here, other
    /// connections are served after at most 16 reads
    #[arg(short = 'R', long = "max-reqs-per-event", value_name = "num")]
    requests_per_event: Option<u64>,

    /// Accepted without effect: each value has a unique number for `cas`
    #[arg(short = 'C', long = "disable-cas", action = ArgAction::Count)]
    disable_cas: u8,

    /// Accepted without effect: length of the listeners' queues, here 128 for TCP
    #[arg(short = 'b', long = "listen-backlog", value_name = "num")]
    backlog: Option<u64>,

    /// Accepted without effect: large memory is in huge pages anyway
    #[arg(short = 'L', long = "enable-largepages", action = ArgAction::Count)]
    large_pages: u8,

    /// Accepted without effect: growth factor of slab classes, which do not exist here
    #[arg(short = 'f', long = "slab-growth-factor", value_name = "factor")]
    growth_factor: Option<f64>,

    /// Accepted without effect: least size of slab chunks, which do not exist here
    #[arg(short = 'n', long = "slab-min-size", value_name = "bytes")]
    chunk_min: Option<u64>,

    /// Accepted without effect: size of core files, set by the system (ulimit -c)
    #[arg(short = 'r', long = "enable-coredumps", action = ArgAction::Count)]
    core_files: u8,

    /// Refused: memory cannot be locked
    #[arg(short = 'k', long = "lock-memory", action = ArgAction::Count)]
    lock_memory: u8,

    /// Accepted without effect: number of NAPI ids; connections are assigned to threads in turn
    #[arg(short = 'N', long = "napi-ids", value_name = "num")]
    napi_ids: Option<u64>,

    /// Refused: --save-file keeps values over a restart
    #[arg(short = 'e', long = "memory-file", value_name = "file")]
    memory_file: Option<String>,

    /// Refused: the users of -Y log in by SASL, too
    #[arg(short = 'S', long = "enable-sasl", action = ArgAction::Count)]
    sasl: u8,
}

impl MemcachedFlags {
    /// Returns the given flags that have no effect.
    ///
    /// # Errors
    ///
    /// A sentence with the flag and the reason, if one of the refused flags is given.
    pub fn without_effect(&self) -> Result<Vec<&'static str>, String> {
        let refused = [
            (self.lock_memory > 0, "-k", "memory cannot be locked; let the system not swap instead"),
            (self.memory_file.is_some(), "-e", "--save-file keeps values over a restart"),
            (self.sasl > 0, "-S", "the users of -Y log in by SASL, too: use -Y"),
        ];
        if let Some((_, flag, why)) = refused.iter().find(|(is_given, ..)| *is_given) {
            return Err(format!("{flag}: {why}"));
        }
        let given = [
            (self.requests_per_event.is_some(), "-R"),
            (self.disable_cas > 0, "-C"),
            (self.backlog.is_some(), "-b"),
            (self.large_pages > 0, "-L"),
            (self.growth_factor.is_some(), "-f"),
            (self.chunk_min.is_some(), "-n"),
            (self.core_files > 0, "-r"),
            (self.napi_ids.is_some(), "-N"),
        ];
        Ok(given.into_iter().filter(|(is_given, _)| *is_given).map(|(_, flag)| flag).collect())
    }
}
