//! The flags, spelled as memcached spells them, and what they amount to.

use std::path::PathBuf;

use clap::{ArgAction, Parser};
use lowwater::Bytes;

use crate::config::{self, Limits};

/// memcached's smallest and largest `-I`.
const ITEM_BYTES_MIN: u64 = 1 << 10;
const ITEM_BYTES_LIMIT: u64 = 1 << 30;

/// More threads than that only stand in each other's way; memcached warns from here on.
const THREADS_MAX: usize = 256;

/// A memcached for many tenants in one memory: each keeps its `low`, all share the rest by use.
#[derive(Debug, Parser)]
#[command(name = "cache_server", version)]
struct Args {
    /// TCP port to listen on; 0: any free one, which is printed
    #[arg(short = 'p', long = "port", default_value_t = 11211, value_name = "num")]
    port: u16,

    /// Address to listen on, with a port of its own if you like; may be a list with commas, or be given several times
    #[arg(short = 'l', long = "listen", default_value = "127.0.0.1", value_delimiter = ',', value_name = "addr")]
    listen: Vec<String>,

    /// Memory for all tenants together, in megabytes
    #[arg(short = 'm', long = "memory-limit", default_value_t = 64, value_name = "num", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    memory_megabytes: u64,

    /// Threads that serve clients [default: one for each core]
    #[arg(short = 't', long = "threads", value_name = "num")]
    threads: Option<usize>,

    /// Most connections at a time
    #[arg(short = 'c', long = "conn-limit", default_value_t = 1024, value_name = "num", value_parser = clap::value_parser!(u64).range(1..))]
    connections_max: u64,

    /// Print connections and their errors to stderr; -vv: commands too
    #[arg(short = 'v', long = "verbose", action = ArgAction::Count)]
    verbose: u8,

    /// Largest item (key and value), in bytes or with k or m behind it; 1k to 1024m, at most half of -m
    /// [default: 1m]
    #[arg(short = 'I', long = "max-item-size", value_name = "num")]
    item_max: Option<String>,

    /// The character that ends a tenant's name in a key
    #[arg(short = 'D', default_value = ":", value_name = "char")]
    delimiter: String,

    /// Address and port (or a port of 127.0.0.1) where HTTP clients get /metrics and /debug/shrinker; nowhere without it
    #[arg(long = "http", value_name = "addr")]
    http: Option<String>,

    /// File with the tenants' limits, one tenant a line: `shop low=8M high=16M max=32M`
    #[arg(long = "config", value_name = "file")]
    config: Option<PathBuf>,
}

/// What the server was told to be.
#[derive(Debug)]
pub struct Settings {
    /// Each `host:port`.
    pub listen: Vec<String>,
    /// `host:port` for HTTP, if it is wanted.
    pub http: Option<String>,
    pub budget: Bytes,
    pub threads: usize,
    pub connections_max: u64,
    pub verbosity: u8,
    pub item_bytes_max: usize,
    pub delimiter: u8,
    pub limits: Vec<(String, Limits)>,
}

/// Reads the command line. `-h` and `-V` are answered here, and end the process, as do flags that cannot be parsed.
///
/// # Errors
///
/// A sentence: which flag, and what it should have been.
pub fn read() -> Result<Settings, String> {
    Args::parse().settings()
}

impl Args {
    fn settings(self) -> Result<Settings, String> {
        let budget = Bytes::mib(self.memory_megabytes);
        let threads = match self.threads {
            None => std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX),
            Some(threads @ 1..=THREADS_MAX) => threads,
            Some(_) => return Err(format!("-t: the number of threads must be between 1 and {THREADS_MAX}")),
        };
        let delimiter = match self.delimiter.as_bytes() {
            &[byte] if byte.is_ascii_graphic() => byte,
            _ => return Err(format!("-D: one visible ASCII character ends a tenant's name, not {:?}", self.delimiter)),
        };
        let item_bytes_max = item_bytes(self.item_max.as_deref(), budget)?;
        let listen = self.listen.iter().map(|text| address("-l", text, self.port)).collect::<Result<_, _>>()?;
        let http = self.http.as_deref().map(http_address).transpose()?;
        let limits = match &self.config {
            Some(path) => config::read(path, delimiter).map_err(|why| why.to_string())?,
            None => Vec::new(),
        };
        Ok(Settings {
            listen,
            http,
            budget,
            threads,
            connections_max: self.connections_max,
            verbosity: self.verbose,
            item_bytes_max,
            delimiter,
            limits,
        })
    }
}

/// The largest item; without `-I` a megabyte, or half of a memory too small for that.
fn item_bytes(text: Option<&str>, budget: Bytes) -> Result<usize, String> {
    let half = budget.get() / 2;
    let Some(text) = text else {
        return Ok(half.min(1 << 20) as usize);
    };
    let bytes = text
        .parse::<Bytes>()
        .ok()
        .map(Bytes::get)
        .filter(|bytes| (ITEM_BYTES_MIN..=ITEM_BYTES_LIMIT).contains(bytes))
        .ok_or_else(|| format!("-I: the largest item must be between 1k and 1024m, not {text:?}"))?;
    if bytes > half {
        return Err(format!("-I: the largest item may be at most half of the memory (-m), {half} bytes"));
    }
    Ok(bytes as usize)
}

/// `host`, `host:port`, `[v6]`, `[v6]:port` or plain `v6`, to `host:port`.
fn address(flag: &str, text: &str, port: u16) -> Result<String, String> {
    let is_v6 = |host: &str| host.parse::<std::net::Ipv6Addr>().is_ok();
    let (host, own_port) = if is_v6(text) {
        (format!("[{text}]"), None)
    } else if let Some((host, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        (format!("[{host}]"), rest.strip_prefix(':'))
    } else {
        match text.split_once(':') {
            Some((host, own_port)) => (host.to_owned(), Some(own_port)),
            None => (text.to_owned(), None),
        }
    };
    let port = match own_port {
        None => port,
        Some(own_port) => own_port.parse().map_err(|_| format!("{flag}: {own_port:?} in {text:?} is not a port"))?,
    };
    if host.is_empty() {
        return Err(format!("{flag}: {text:?} has no address"));
    }
    Ok(format!("{host}:{port}"))
}

/// Where HTTP is served: an address with a port, or a port of this machine alone. 0: any free one, which is printed.
fn http_address(text: &str) -> Result<String, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok(format!("127.0.0.1:{port}")),
        Err(_) => address("--http", text, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(flags: &[&str]) -> Result<Settings, String> {
        let flags = ["cache_server"].iter().chain(flags);
        Args::try_parse_from(flags).map_err(|why| why.to_string())?.settings()
    }

    #[test]
    fn the_defaults_are_memcacheds() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.listen, ["127.0.0.1:11211"]);
        assert_eq!(settings.budget, Bytes::mib(64));
        assert_eq!(settings.connections_max, 1024);
        assert_eq!(settings.item_bytes_max, 1 << 20);
        assert_eq!(settings.delimiter, b':');
        assert_eq!(settings.http, None, "no second port unless it is asked for");
    }

    #[test]
    fn http_is_served_to_this_machine_unless_another_address_is_given() {
        for (text, address) in [
            ("9150", "127.0.0.1:9150"),
            ("0.0.0.0:9150", "0.0.0.0:9150"),
            ("[::1]:1", "[::1]:1"),
            ("localhost", "localhost:0"),
        ] {
            assert_eq!(settings(&["--http", text]).unwrap().http.as_deref(), Some(address));
        }
    }

    #[test]
    fn flags_are_read() {
        let flags =
            ["-p", "0", "-l", "::1,localhost:99", "-l", "[::1]:7", "-m", "2", "-I", "512k", "-D/", "-vv", "-t3"];
        let settings = settings(&flags).unwrap();
        assert_eq!(settings.listen, ["[::1]:0", "localhost:99", "[::1]:7"]);
        assert_eq!(settings.budget, Bytes::mib(2));
        assert_eq!(settings.item_bytes_max, 512 << 10);
        assert_eq!((settings.delimiter, settings.verbosity, settings.threads), (b'/', 2, 3));
        assert_eq!(self::settings(&["-m1"]).unwrap().item_bytes_max, 512 << 10, "no -I: what the memory allows");
    }

    #[test]
    fn bad_flags_are_named() {
        for (flags, words) in [
            (&["-x"][..], "-x"),
            (&["-p", "70000"], "70000"),
            (&["-m", "0"], "0"),
            (&["-m", "many"], "many"),
            (&["-c", "0"], "0"),
            (&["-t", "0"], "-t"),
            (&["-I", "512"], "-I"),
            (&["-I", "40m"], "-I"),
            (&["-D", "::"], "-D"),
            (&["-D", " "], "-D"),
            (&["-l", "host:port"], "-l"),
            (&["--http", "host:port"], "--http"),
            (&["--config", "/nonexistent/tenants"], "/nonexistent/tenants"),
            (&["surplus"], "surplus"),
        ] {
            let error = settings(flags).unwrap_err();
            assert!(error.contains(words), "{flags:?} gave {error:?}");
        }
    }
}
