//! `docs/MEMCACHED.md`: how this server treats each option, command and statistic of memcached. The
//! page is generated from `names.rs`, and each line is tried here. With the variable `BLESS` in its
//! environment, the test writes the page. The flags of `names.rs` are tried, too; the server's
//! README has their table.
//!
//! A change must ensure that each line of the page is tried, and not only written.

mod names;

use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::settings::args;

/// How this server treats a name of memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Same,
    Differs(&'static str),
    /// Part of TLS, so that it needs the feature `tls`.
    WithTls(&'static str),
    /// Accepted, and nothing happens.
    NoEffect(&'static str),
    /// Answered with an error.
    Refused(&'static str),
    /// Not shown.
    Absent(&'static str),
}

impl Verdict {
    fn text(self) -> String {
        let with = |word: &str, why: &str| if why.is_empty() { word.to_owned() } else { format!("{word}: {why}") };
        match self {
            Self::Same => "the same".to_owned(),
            Self::Differs(how) => how.to_owned(),
            Self::WithTls("") => "the feature `tls`".to_owned(),
            Self::WithTls(how) => format!("the feature `tls`; {how}"),
            Self::NoEffect(why) => with("no effect", why),
            Self::Refused(why) => with("refused", why),
            Self::Absent(why) => with("absent", why),
        }
    }
}

const HEAD: &str = "# memcached's options, commands and statistics, and this server

How `lowwater-server` treats memcached's names (branch of 9 July 2026, commit 2d51e364799b). A name in no table is the
same here; malformed lines get the replies of 1.6.18. `ext_*` is each name that begins with `ext_`.
[Flags](../crates/server/README.md#flags) and [errors of tenants with limits](OPERATING.md#more-than-one-tenant) are on other pages.
`BLESS=1 cargo test -p lowwater-server compatibility` writes this page.
";

/// Beginnings of names, each shown once where all names of a table that begin so have one verdict.
const PREFIXES: [&str; 9] = [
    "ext_",
    "hits_to_",
    "moves_",
    "number_",
    "proxy_",
    "read_buf_",
    "response_obj_",
    "slab_automove",
    "slab_reassign_",
];

/// Returns `name`, or the pattern that stands for it and others of `names`.
fn shown_as(name: &str, verdict: Verdict, names: &[(&str, Verdict)]) -> String {
    let is_pattern = |prefix: &str| {
        let mut same = names.iter().filter(|(other, _)| other.starts_with(prefix));
        name.starts_with(prefix) && same.clone().count() > 1 && same.all(|(_, of)| *of == verdict)
    };
    PREFIXES.iter().find(|prefix| is_pattern(prefix)).map_or_else(|| name.to_owned(), |prefix| format!("{prefix}*"))
}

/// Appends a table with one row for each verdict but `Same`, in the order in which the verdicts
/// first occur.
fn table(page: &mut String, title: &str, names: impl Iterator<Item = (&'static str, Verdict)>) {
    let names: Vec<_> = names.collect();
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for (name, verdict) in names.iter().filter(|(_, verdict)| *verdict != Verdict::Same) {
        let (text, name) = (verdict.text(), shown_as(name, *verdict, &names));
        match rows.iter_mut().find(|row| row.0 == text) {
            Some(row) if row.1.contains(&name) => {}
            Some(row) => row.1.push(name),
            None => rows.push((text, vec![name])),
        }
    }
    // Writing to a `String` does not fail.
    let _ = write!(page, "\n## {title}\n\n|memcached|here|\n|-|-|\n");
    for (text, names) in rows {
        // Names of several words need a code span each.
        let separator = if names.iter().any(|name| name.contains(' ')) { "` `" } else { " " };
        let _ = writeln!(page, "|`{}`|{text}|", names.join(separator));
    }
}

fn pairs(names: &'static [(&'static str, Verdict)]) -> impl Iterator<Item = (&'static str, Verdict)> {
    names.iter().copied()
}

#[test]
fn the_page_has_all_names() {
    let mut page = HEAD.to_owned();
    table(&mut page, "Options of `-o`", pairs(names::OPTIONS));
    table(&mut page, "Commands", names::COMMANDS.iter().map(|(name, _, _, verdict)| (*name, *verdict)));
    table(&mut page, "`stats`", pairs(names::STATS));
    let without_effect = |name| {
        names::OPTIONS.iter().any(|(option, verdict)| *option == name && matches!(verdict, Verdict::NoEffect(_)))
    };
    let settings = pairs(names::SETTINGS)
        .filter(|(name, verdict)| !matches!(verdict, Verdict::Absent(_)) || !without_effect(*name));
    table(&mut page, "`stats settings`, in which options without effect are absent", settings);
    table(&mut page, "`stats items`, of a class", pairs(names::ITEMS));
    table(&mut page, "`stats slabs`", pairs(names::SLABS));
    table(&mut page, "`stats conns`, of a connection", pairs(names::CONNS));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/MEMCACHED.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/MEMCACHED.md is not up to date: BLESS=1 cargo test -p lowwater-server compatibility"
    );
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    for (flag, ..) in names::FLAGS {
        assert!(readme.contains(&format!("`{flag}`")), "the README's table of flags has no {flag}");
    }
}

#[test]
fn flags_are_treated_as_the_readme_tells() {
    let help = args::parse(["lowwater-server", "-h"]).unwrap_err().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for (flag, value, verdict) in names::FLAGS {
        let words = ["lowwater-server", flag].into_iter().chain(*value);
        match (args::parse(words), verdict) {
            // `-h`, `-V` and `-i` print a text.
            (Err(shown), Verdict::Same) => assert_eq!(shown.exit_code(), 0, "{flag}"),
            (Ok(Ok(settings)), Verdict::NoEffect(_)) => assert_eq!(settings.without_effect, [*flag]),
            (Ok(Ok(settings)), Verdict::Same | Verdict::Differs(_)) => assert!(settings.without_effect.is_empty()),
            (Ok(Err(why)), Verdict::Refused(_) | Verdict::WithTls(_)) => {
                assert!(why.starts_with(&format!("{flag}: ")), "{why}");
                // The message and the help give the reason of the table.
                if let Verdict::Refused(reason) = verdict {
                    let reason = reason.replace('`', "");
                    assert!(why.contains(&reason), "{why}");
                    assert!(help.contains(&format!("Refused: {reason}")), "{flag}: {help}");
                }
            }
            (outcome, verdict) => panic!("{flag} is {outcome:?}, not {verdict:?}"),
        }
    }
    for (option, verdict) in names::OPTIONS {
        for option in [format!("{option}=5"), (*option).to_owned()] {
            let outcome = args::parse(["lowwater-server", "-o", &option]).unwrap();
            match verdict {
                Verdict::NoEffect(_) => assert!(outcome.is_ok(), "{option}: {outcome:?}"),
                Verdict::Refused(_) => assert!(outcome.is_err_and(|why| why.contains("is not supported")), "{option}"),
                // An error in every build, as `-Z` is not given.
                Verdict::WithTls(_) => assert!(outcome.is_err_and(|why| why.starts_with("-o: ssl_")), "{option}"),
                // Only `idle_timeout` is left, which needs a value.
                _ => assert_eq!(
                    outcome.is_ok_and(|given| given.idle_timeout.is_some()),
                    option.contains('='),
                    "{option}"
                ),
            }
        }
    }
}

#[test]
fn commands_answer_as_the_page_tells() {
    let server = TestServer::start(|settings| settings.shutdown = true);
    let mut client = server.connect();
    for (name, request, reply, verdict) in names::COMMANDS {
        // A watching connection answers no more commands.
        let mut own = server.connect();
        let connection = if name.starts_with("watch") || *name == "quit" { &mut own } else { &mut client };
        connection.0.write_all(request.as_bytes()).unwrap();
        connection.expect(reply);
        if matches!(verdict, Verdict::Refused(_)) {
            assert_eq!(*reply, "ERROR\r\n", "{name}");
        }
        if name.starts_with("watch") || *name == "quit" {
            continue;
        }
        // The rest of the reply ends before that of a marker.
        client.0.write_all(b"delete the-marker\r\n").unwrap();
        while client.line() != "NOT_FOUND\r\n" {}
    }
}

/// Returns the names that `command` shows, each once, without the class or the number before them.
fn shown(client: &mut Client, command: &str) -> Vec<String> {
    client.0.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut names = Vec::new();
    loop {
        let line = client.line();
        let Some(line) = line.strip_prefix("STAT ") else { break };
        let name = line.split(' ').next().unwrap().rsplit(':').next().unwrap().to_owned();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[test]
fn statistics_are_those_of_the_page() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    for (command, names) in [
        ("stats", names::STATS),
        ("stats settings", names::SETTINGS),
        ("stats items", names::ITEMS),
        ("stats slabs", names::SLABS),
        ("stats conns", names::CONNS),
    ] {
        let shown = shown(&mut client, command);
        for (name, verdict) in names {
            let is_expected = !matches!(verdict, Verdict::Absent(_) | Verdict::WithTls(_));
            assert_eq!(shown.iter().any(|there| there == name), is_expected, "{command}: {name}");
        }
        let unknown: Vec<_> = shown.iter().filter(|there| !names.iter().any(|(name, _)| name == there)).collect();
        assert!(unknown.is_empty(), "{command} shows names that memcached does not have: {unknown:?}");
    }
    // Statistics whose values are constant.
    for (command, name, value) in [
        ("stats", "accepting_conns", "1"),
        ("stats settings", "udpport", "0"),
        ("stats settings", "cas_enabled", "yes"),
        ("stats settings", "shutdown_command", "no"),
        ("stats slabs", "active_slabs", "1"),
        ("stats items", "items:1:tailrepairs", "0"),
    ] {
        assert_eq!(client.stat(command, name), value, "{name}");
    }
}
