//! The command line, with memcached's flags.
//!
//! Names are memcached's, and so are defaults except those of `-l` and `-t`, so that its start
//! scripts work. The comments of the fields are the text of `--help`.
//!
//! A new flag must not reuse a letter that memcached has, and has its row in the server's README
//! and, if it is memcached's, in `src/tests/compatibility/names.rs`. The `value_name` of a path
//! must be `file` or `path`, by which shells complete it (`manual.rs`).

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser};
use lowwater::ByteSize;

use super::listen_address::{self, Endpoint, ListenAddress};
use super::manual::{self, Printed};
use super::memcached_flags::MemcachedFlags;
use super::protocol::Protocol;
use super::users::Users;
use super::{extended, limits, Files, Settings};

/// memcached's bounds for `-I`, in bytes.
const ITEM_BYTES_MIN: u64 = 1 << 10;
const ITEM_BYTES_LIMIT: u64 = 1 << 30;

/// The maximum for `-m`, in megabytes: a pebibyte.
const MEGABYTES_MAX: u64 = 1 << 30;

/// The maximum for `-t`. memcached has none, but warns above 64: more threads only compete with
/// each other.
const THREADS_MAX: usize = 256;

/// A memcached-compatible server: many tenants share one memory budget; each keeps its `low`, the
/// rest is shared by use.
#[derive(Debug, Parser)]
#[command(name = "lowwater-server", version, args_override_self = true)]
struct Args {
    /// TCP port to listen on; 0: any free one, which is printed
    #[arg(short = 'p', long = "port", default_value_t = 11211, value_name = "num")]
    port: u16,

    /// Address to listen on, with an optional port; may be a comma-separated list, or be given
    /// several times. With `tag_NAME_:` in front, clients of that address are restricted to the
    /// tenant NAME; with `notls:`, they use no TLS. `*`: all addresses of IPv4 and IPv6; `::` takes
    /// no clients of IPv4
    #[arg(short = 'l', long = "listen", default_value = "127.0.0.1", value_delimiter = ',', value_name = "addr")]
    listen: Vec<String>,

    /// Unix socket to listen on; -l and -p are ignored then
    #[arg(short = 's', long = "unix-socket", value_name = "path")]
    socket: Option<PathBuf>,

    /// Permission bits of the unix socket, in octal
    #[arg(short = 'a', long = "unix-mask", default_value = "700", value_name = "mask")]
    socket_mode: String,

    /// Protocol of clients: auto (the first byte of a connection tells), ascii or binary
    #[arg(short = 'B', long = "protocol", value_enum, default_value_t = Protocol::Auto, value_name = "name")]
    protocol: Protocol,

    /// UDP port: UDP is not supported, so only 0 is accepted
    #[arg(short = 'U', long = "udp-port", default_value_t = 0, value_name = "num")]
    udp_port: u16,

    /// Memory for all tenants together, in megabytes
    #[arg(short = 'm', long = "memory-limit", default_value_t = 64, value_name = "num", value_parser = megabytes)]
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

    /// Largest item (key and value), in bytes or with a suffix k or m; 1k to 1024m, at most half of
    /// -m [default: 1m]
    #[arg(short = 'I', long = "max-item-size", value_name = "num")]
    item_max: Option<String>,

    /// Answer stores with an error when the memory is full, instead of evicting values
    #[arg(short = 'M', long = "disable-evictions", action = ArgAction::Count)]
    disable_evictions: u8,

    /// File with a `user:password` line for each user; a connection belongs to the tenant of its
    /// user's name
    #[arg(short = 'Y', long = "auth-file", value_name = "file")]
    auth_file: Option<PathBuf>,

    /// Run in the background; the caller returns when the server accepts clients
    #[arg(short = 'd', long = "daemon", action = ArgAction::Count)]
    daemon: u8,

    /// User to run as, if the server is started by root
    #[arg(short = 'u', long = "user", value_name = "name")]
    user: Option<String>,

    /// File for the process's id; removed at the end
    #[arg(short = 'P', long = "pidfile", value_name = "file")]
    pid_file: Option<PathBuf>,

    /// Refuse the command `flush_all`
    #[arg(short = 'F', long = "disable-flush-all", action = ArgAction::Count)]
    disable_flush: u8,

    /// Refuse the commands that list keys: `stats cachedump`, `stats detail`, `lru_crawler
    /// metadump` and `mgdump`
    #[arg(short = 'X', long = "disable-dumping", action = ArgAction::Count)]
    disable_dump: u8,

    /// Refuse the command `watch`
    #[arg(short = 'W', long = "disable-watch", action = ArgAction::Count)]
    disable_watch: u8,

    /// Allow the command `shutdown`, which ends the server
    #[arg(short = 'A', long = "enable-shutdown", action = ArgAction::Count)]
    enable_shutdown: u8,

    /// Print the licence, and exit
    #[arg(short = 'i', long = "license", action = ArgAction::Count)]
    license: u8,

    /// Print the manual page, or completions for a shell, and exit
    #[arg(long = "print", value_name = "what")]
    print: Option<Printed>,

    #[command(flatten)]
    memcached: MemcachedFlags,

    /// Use TLS on all TCP addresses but those with `notls:` in front; needs the options
    /// `ssl_chain_cert` and `ssl_key` of -o, and a program that was built with the feature `tls`
    #[arg(short = 'Z', long = "enable-ssl", action = ArgAction::Count)]
    tls: u8,

    /// memcached's extended options, separated by commas: `idle_timeout=SECONDS`; for -Z
    /// `ssl_chain_cert=FILE`, `ssl_key=FILE`, `ssl_verify_mode=0..3`, `ssl_ca_cert=FILE` and
    /// `ssl_min_version=tlsv1.3`; and options for slabs, which have no effect
    #[arg(short = 'o', long = "extended", value_delimiter = ',', value_name = "options")]
    extended: Vec<String>,

    /// The character that ends a tenant's name in a key. Keys create one tenant for each 32 KiB of
    /// memory, 65536 at most; those of further names belong to the tenant `default`
    #[arg(short = 'D', default_value = ":", value_name = "char")]
    delimiter: String,

    /// Use less memory when the machine is short of it: monitors PSI, the process's control group
    /// and the service manager, if available
    #[arg(long = "pressure")]
    pressure: bool,

    /// Address and port (or a port of 127.0.0.1) of the HTTP endpoint: a status page for browsers,
    /// /metrics and /debug/shrinker; off by default. An address of IPv6 takes no clients of IPv4
    #[arg(long = "http", value_name = "addr")]
    http: Option<String>,

    /// Show numbers of up to this many tenants in /metrics, each with its name, and the sum of all
    /// others as `other`; 0 to 1000 [default: 0]
    #[arg(long = "metrics-tenants", default_value_t = 0, hide_default_value = true, value_name = "num", value_parser = clap::value_parser!(u16).range(0..=1000))]
    metrics_tenants: u16,

    /// File that keeps the values while the server does not run: written when SIGTERM, SIGUSR1 or
    /// `shutdown graceful` ends it, read and removed at the next start
    #[arg(long = "save-file", value_name = "file")]
    save_file: Option<PathBuf>,

    /// File with the tenants' limits, one tenant a line: `shop low=8M high=16M max=32M`, and of
    /// its connections: `shop requests=500 bandwidth=2M connections=20 deny=flush_all`
    #[arg(long = "config", value_name = "file")]
    config: Option<PathBuf>,
}

/// Reads the command line. `-h`, `-V`, `-i`, `--print` and flags that cannot be parsed end the
/// process with a text.
///
/// # Errors
///
/// A sentence that names the flag or the file, and the reason.
pub fn read() -> Result<Settings, String> {
    parse(std::env::args_os()).unwrap_or_else(|why| exit(&why))
}

/// Ends the process with the text of `why`. Texts of `-i` and `--print` are no errors, and are
/// printed without the `error: ` that clap puts before them.
fn exit(why: &clap::Error) -> ! {
    let text = why.to_string();
    match text.strip_prefix("error: ") {
        Some(text) if why.kind() == ErrorKind::DisplayVersion => {
            // An error means that stdout is closed, so the text cannot be delivered.
            let _ = std::io::stdout().write_all(text.as_bytes());
            std::process::exit(0)
        }
        _ => why.exit(),
    }
}

const LICENSE: &str = "MIT or Apache-2.0, at your choice: https://opensource.org/license/mit and \
    https://www.apache.org/licenses/LICENSE-2.0\n";

/// Parses `words`, the program's name first. The outer error is clap's: flags that cannot be
/// parsed, `-h`, `-V`, `-i` and `--print`; the inner one is a sentence about settings that are
/// invalid.
pub fn parse<W: Into<OsString> + Clone>(
    words: impl IntoIterator<Item = W>,
) -> Result<Result<Settings, String>, clap::Error> {
    let args = Args::try_parse_from(words)?;
    if args.license > 0 {
        return Err(clap::Error::raw(ErrorKind::DisplayVersion, LICENSE));
    }
    if let Some(printed) = args.print {
        return Err(clap::Error::raw(ErrorKind::DisplayVersion, manual::text(printed, &mut Args::command())));
    }
    Ok(args.settings())
}

impl Args {
    /// Checks the flags against each other, reads the files that they name, and returns the
    /// settings.
    fn settings(self) -> Result<Settings, String> {
        let budget = ByteSize::mib(self.memory_megabytes);
        let threads = match self.threads {
            None => std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX),
            Some(threads @ 1..=THREADS_MAX) => threads,
            Some(_) => return Err(format!("-t: the number of threads must be between 1 and {THREADS_MAX}")),
        };
        let delimiter = match self.delimiter.as_bytes() {
            &[byte] if byte.is_ascii_graphic() => byte,
            _ => return Err(format!("-D: the delimiter must be a visible ASCII character, not {:?}", self.delimiter)),
        };
        let item_bytes_max = item_bytes(self.item_max.as_deref(), budget)?;
        let listen = match self.socket {
            Some(path) => {
                vec![ListenAddress {
                    tenant: None,
                    is_plain: true,
                    endpoint: Endpoint::Unix { path, mode: mode(&self.socket_mode)? },
                }]
            }
            None => self
                .listen
                .iter()
                .map(|text| ListenAddress::parse(text, self.port, delimiter))
                .collect::<Result<_, _>>()?,
        };
        let http = self.http.as_deref().map(http_address).transpose()?;
        if self.udp_port != 0 {
            return Err("-U: UDP is not supported; leave the flag out, or set -U 0".into());
        }
        let users = self.auth_file.as_deref().map(|path| Users::read(path, delimiter)).transpose()?;
        if users.is_some() && listen.iter().any(|address| address.tenant.is_some()) {
            return Err(
                "-l: a tag restricts clients to one tenant, and users (-Y) log in as others: use one of them".into()
            );
        }
        let extended = extended::parse(&self.extended)?;
        let tls = extended.tls.settings(self.tls > 0)?;
        let without_effect = self.memcached.without_effect()?;
        let limits = match &self.config {
            Some(path) => limits::read(path, delimiter).map_err(|why| why.to_string())?,
            None => Vec::new(),
        };
        Ok(Settings {
            listen,
            http,
            metrics_tenants: self.metrics_tenants.into(),
            protocol: self.protocol,
            users,
            evict: self.disable_evictions == 0,
            pressure: self.pressure,
            budget,
            threads,
            connections_max: self.connections_max,
            verbosity: self.verbose,
            item_bytes_max,
            delimiter,
            limits,
            files: Files { limits: self.config, users: self.auth_file },
            flush: self.disable_flush == 0,
            shutdown: self.enable_shutdown > 0,
            dump: self.disable_dump == 0,
            watch: self.disable_watch == 0,
            idle_timeout: extended.idle_timeout,
            tls,
            background: self.daemon > 0,
            user: self.user,
            pid_file: self.pid_file,
            save_file: self.save_file,
            without_effect,
        })
    }
}

/// Parses `-m`.
fn megabytes(text: &str) -> Result<u64, String> {
    let megabytes = text.parse().ok().filter(|megabytes| (1..=MEGABYTES_MAX).contains(megabytes));
    megabytes.ok_or_else(|| format!("it is a number of megabytes from 1 to {MEGABYTES_MAX}, without a unit"))
}

/// Returns the size of the largest item in bytes; without `-I`, 1 MiB or half of the budget,
/// whichever is less.
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

/// Parses permission bits in octal.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("-a: the socket's permissions are three octal digits such as 700, not {text:?}"))
}

/// Parses the address for HTTP: an address, or a port of 127.0.0.1. Port 0, or none, means any free
/// port, which is printed at startup.
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
    fn the_defaults_are_memcacheds_but_for_the_address() {
        let settings = settings(&[]).unwrap();
        assert_eq!(endpoints(&settings), [Endpoint::Tcp("127.0.0.1:11211".into())]);
        assert!(settings.evict && settings.users.is_none());
        assert_eq!(settings.budget, ByteSize::mib(64));
        assert_eq!(settings.connections_max, 1024);
        assert_eq!(settings.item_bytes_max, 1 << 20);
        assert_eq!(settings.delimiter, b':');
        assert_eq!(settings.http, None, "no HTTP port by default");
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
        assert_eq!(self::settings(&["-m1"]).unwrap().item_bytes_max, 512 << 10, "without -I: half of the memory");
    }

    /// The flags of Debian's `/etc/memcached.conf`, as its service passes them, and of other usual
    /// start scripts.
    #[test]
    fn memcacheds_usual_flags_are_accepted() {
        let debian = ["-m", "64", "-p", "11211", "-u", "memcache", "-l", "127.0.0.1", "-l", "::1", "-P", "/run/x.pid"];
        let given = settings(&debian).unwrap();
        assert_eq!((given.user.as_deref(), given.background, given.flush), (Some("memcache"), false, true));
        assert_eq!(given.pid_file.as_deref(), Some(std::path::Path::new("/run/x.pid")));
        assert_eq!(given.listen.len(), 2);
        let others = [
            "-d",
            "-F",
            "-R20",
            "-C",
            "-B",
            "auto",
            "-b",
            "512",
            "-L",
            "-f",
            "1.08",
            "-n48",
            "-r",
            "-o",
            "idle_timeout=30",
        ];
        let given = settings(&others).unwrap();
        assert!(given.background && !given.flush);
        assert_eq!(given.without_effect, ["-R", "-C", "-b", "-L", "-f", "-n", "-r"]);
        assert_eq!(given.idle_timeout, Some(std::time::Duration::from_secs(30)));
    }

    #[test]
    fn the_readme_lists_every_flag() {
        let readme = include_str!("../../README.md");
        let table: String = readme.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
        let mut command = <Args as clap::CommandFactory>::command();
        command.build();
        for flag in command.get_arguments() {
            let name = match (flag.get_short(), flag.get_long()) {
                (Some(short), _) => format!("`-{short}`"),
                (None, Some(long)) => format!("`--{long}`"),
                (None, None) => continue,
            };
            assert_eq!(table.matches(&name).count(), 1, "{name} in {table}");
        }
    }

    /// Each text has every flag with a long name, so all but `-D`.
    #[test]
    fn the_manual_and_the_completions_have_every_flag() {
        let mut command = Args::command();
        command.build();
        for printed in ["man", "bash", "zsh", "fish"] {
            let shown = parse(["lowwater-server", "--print", printed]).unwrap_err();
            assert_eq!(shown.exit_code(), 0);
            let text = shown.to_string();
            for flag in command.get_arguments() {
                let Some(long) = flag.get_long() else { continue };
                let long = match printed {
                    "man" => format!("\\fB\\-\\-{}\\fR", long.replace('-', "\\-")),
                    "fish" => format!(" -l {long} "),
                    _ => format!("--{long}"),
                };
                assert!(text.contains(&long), "{long} in {printed}: {text}");
            }
        }
    }

    #[test]
    fn the_last_of_repeated_flags_counts() {
        let given = settings(&["-m", "64", "-m", "2", "-p", "1", "-p", "2", "-M", "-M", "-v", "-v"]).unwrap();
        assert_eq!((given.budget, given.evict, given.verbosity), (ByteSize::mib(2), false, 2));
        assert_eq!(endpoints(&given), [Endpoint::Tcp("127.0.0.1:2".into())]);
    }

    #[test]
    fn bad_flags_are_named() {
        for (flags, words) in [
            (&["-x"][..], "-x"),
            (&["-p", "70000"], "70000"),
            (&["-m", "0"], "--memory-limit"),
            (&["-m", "many"], "many"),
            (&["-m", "64M"], "without a unit"),
            (&["-c", "0"], "--conn-limit"),
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
            (&["-o", "modern,idle_timeout=x"], "idle_timeout"),
            (&["-k"], "-k"),
            (&["-e", "/dev/shm/x"], "-e"),
            (&["-S"], "-S"),
            (&["-Z"], "-Z"),
            (&["-B", "udp"], "--protocol"),
            (&["-l", "tag_a:b_:localhost"], "-l"),
            (&["surplus"], "surplus"),
        ] {
            let error = settings(flags).unwrap_err();
            assert!(error.contains(words), "{flags:?} gave {error:?}");
        }
    }

    #[test]
    fn users_and_an_address_of_one_tenant_exclude_each_other() {
        let path = std::env::temp_dir().join(format!("lowwater-users-{}", std::process::id()));
        std::fs::write(&path, "shop:secret\n").unwrap();
        let users = path.to_str().unwrap();
        let of_one = settings(&["-Y", users, "-l", "tag_shop_:localhost"]);
        let of_all = settings(&["-Y", users, "-l", "localhost"]);
        std::fs::remove_file(&path).unwrap();
        assert!(of_one.unwrap_err().contains("users (-Y)"));
        assert!(of_all.is_ok());
    }
}
