//! The command line, with flags spelled as memcached spells them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Parser};
use lowwater::ByteSize;

use super::listen_address::{self, Endpoint, ListenAddress};
use super::users::Users;
use super::{extended, limits, Settings};

/// memcached's smallest and largest `-I`.
const ITEM_BYTES_MIN: u64 = 1 << 10;
const ITEM_BYTES_LIMIT: u64 = 1 << 30;

/// More threads than that only stand in each other's way; memcached warns from here on.
const THREADS_MAX: usize = 256;

/// A memcached for many tenants in one memory: each keeps its `low`, all share the rest by use.
#[derive(Debug, Parser)]
#[command(name = "lowwater-server", version)]
struct Args {
    /// TCP port to listen on; 0: any free one, which is printed
    #[arg(short = 'p', long = "port", default_value_t = 11211, value_name = "num")]
    port: u16,

    /// Address to listen on, with a port of its own if you like; may be a list with commas, or be given several times.
    /// `tag_NAME_:` in front: clients that come in there are the tenant NAME's
    #[arg(short = 'l', long = "listen", default_value = "127.0.0.1", value_delimiter = ',', value_name = "addr")]
    listen: Vec<String>,

    /// Unix socket to listen on; then not on the network, whatever -l and -p say
    #[arg(short = 's', long = "unix-socket", value_name = "path")]
    socket: Option<PathBuf>,

    /// Who may use the unix socket: permission bits, in octal
    #[arg(short = 'a', long = "unix-mask", default_value = "700", value_name = "mask")]
    socket_mode: String,

    /// UDP port: there is no UDP here, so only 0 is taken
    #[arg(short = 'U', long = "udp-port", default_value_t = 0, value_name = "num")]
    udp_port: u16,

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

    /// When the memory is full, answer stores with an error instead of dropping values
    #[arg(short = 'M', long = "disable-evictions")]
    disable_evictions: bool,

    /// File with a `user:password` line for each who may come in; a connection is the tenant of its user's name
    #[arg(short = 'Y', long = "auth-file", value_name = "file")]
    auth_file: Option<PathBuf>,

    /// memcached's extended options, with commas; those for its slabs have no effect
    #[arg(short = 'o', long = "extended", value_delimiter = ',', value_name = "options")]
    extended: Vec<String>,

    /// The character that ends a tenant's name in a key
    #[arg(short = 'D', default_value = ":", value_name = "char")]
    delimiter: String,

    /// Give way when the machine is short of memory: hears PSI, this process's control group and the service manager, where there are such
    #[arg(long = "pressure")]
    pressure: bool,

    /// Address and port (or a port of 127.0.0.1) where browsers find a page that shows what goes on, and HTTP clients /metrics
    /// and /debug/shrinker; nowhere without it
    #[arg(long = "http", value_name = "addr")]
    http: Option<String>,

    /// File with the tenants' limits, one tenant a line: `shop low=8M high=16M max=32M`
    #[arg(long = "config", value_name = "file")]
    config: Option<PathBuf>,
}

/// Reads the command line. `-h` and `-V` are answered here, and end the process, as do flags that cannot be parsed.
///
/// # Errors
///
/// A sentence: which flag, and what it should have been.
pub fn read() -> Result<Settings, String> {
    parse(std::env::args_os()).unwrap_or_else(|why| why.exit())
}

/// Reads these words, the program's name first: what the parser says to flags it cannot read, and to `-h`; then what they amount to.
pub fn parse<W: Into<OsString> + Clone>(
    words: impl IntoIterator<Item = W>,
) -> Result<Result<Settings, String>, clap::Error> {
    Ok(Args::try_parse_from(words)?.settings())
}

impl Args {
    fn settings(self) -> Result<Settings, String> {
        let budget = ByteSize::mib(self.memory_megabytes);
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
        let listen = match self.socket {
            Some(path) => {
                vec![ListenAddress { tenant: None, endpoint: Endpoint::Unix { path, mode: mode(&self.socket_mode)? } }]
            }
            None => self
                .listen
                .iter()
                .map(|text| ListenAddress::parse(text, self.port, delimiter))
                .collect::<Result<_, _>>()?,
        };
        let http = self.http.as_deref().map(http_address).transpose()?;
        if self.udp_port != 0 {
            return Err("-U: there is no UDP here; leave it out, or say -U 0".into());
        }
        let users = self.auth_file.map(|path| Users::read(&path, delimiter)).transpose()?;
        self.extended.iter().try_for_each(|option| extended::check(option))?;
        let limits = match &self.config {
            Some(path) => limits::read(path, delimiter).map_err(|why| why.to_string())?,
            None => Vec::new(),
        };
        Ok(Settings {
            listen,
            http,
            users,
            evict: !self.disable_evictions,
            pressure: self.pressure,
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
fn item_bytes(text: Option<&str>, budget: ByteSize) -> Result<usize, String> {
    let half = budget.get() / 2;
    let Some(text) = text else {
        return Ok(half.min(1 << 20) as usize);
    };
    let bytes = text
        .parse::<ByteSize>()
        .ok()
        .map(ByteSize::get)
        .filter(|bytes| (ITEM_BYTES_MIN..=ITEM_BYTES_LIMIT).contains(bytes))
        .ok_or_else(|| format!("-I: the largest item must be between 1k and 1024m, not {text:?}"))?;
    if bytes > half {
        return Err(format!("-I: the largest item may be at most half of the memory (-m), {half} bytes"));
    }
    Ok(bytes as usize)
}

/// Permission bits, in octal.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("-a: three octal digits say who may use the socket, as 700, not {text:?}"))
}

/// Where HTTP is served: an address with a port, or a port of this machine alone. 0: any free one, which is printed.
fn http_address(text: &str) -> Result<String, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok(format!("127.0.0.1:{port}")),
        Err(_) => listen_address::address("--http", text, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(flags: &[&str]) -> Result<Settings, String> {
        let flags = ["lowwater-server"].iter().chain(flags);
        parse(flags).map_err(|why| why.to_string())?
    }

    fn endpoints(settings: &Settings) -> Vec<Endpoint> {
        settings.listen.iter().map(|listen| listen.endpoint.clone()).collect()
    }

    #[test]
    fn the_defaults_are_memcacheds() {
        let settings = settings(&[]).unwrap();
        assert_eq!(endpoints(&settings), [Endpoint::Tcp("127.0.0.1:11211".into())]);
        assert!(settings.evict && settings.users.is_none());
        assert_eq!(settings.budget, ByteSize::mib(64));
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
        assert_eq!(
            endpoints(&settings),
            ["[::1]:0", "localhost:99", "[::1]:7"].map(|endpoint| Endpoint::Tcp(endpoint.into()))
        );
        assert_eq!(settings.budget, ByteSize::mib(2));
        assert_eq!(settings.item_bytes_max, 512 << 10);
        assert_eq!((settings.delimiter, settings.verbosity, settings.threads), (b'/', 2, 3));
        let unix = self::settings(&["-s", "/run/x", "-a", "0770", "-M", "-U0", "-o", "modern,no_lru_crawler"]).unwrap();
        assert_eq!(endpoints(&unix), [Endpoint::Unix { path: "/run/x".into(), mode: 0o770 }]);
        assert!(!unix.evict);
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
            (&["-U", "11211"], "-U"),
            (&["-s", "/run/x", "-a", "9"], "-a"),
            (&["-Y", "/nonexistent/users"], "/nonexistent/users"),
            (&["-o", "modern,idle_timeout=5"], "idle_timeout"),
            (&["-l", "tag_a:b_:localhost"], "-l"),
            (&["surplus"], "surplus"),
        ] {
            let error = settings(flags).unwrap_err();
            assert!(error.contains(words), "{flags:?} gave {error:?}");
        }
    }
}
