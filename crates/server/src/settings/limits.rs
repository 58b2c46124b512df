//! The tenants' limits, from a text file.
//!
//! ```text
//! # tenant   protected        trimmed above   at most
//! shop       low=8M           high=16M        max=32M
//! search     min=1M low=4M
//! default    max=16M          # keys without a tenant
//! batch      requests=500 bandwidth=2M connections=20 deny=flush_all,stats
//! ```
//!
//! A line has a tenant's name and its limits; a word that begins with `#` begins a comment. Amounts
//! of memory are in bytes, with an optional suffix K, M, G or T; `max` means no limit. The limits
//! of memory have the semantics of cgroup v2's `memory.min`, `low`, `high` and `max`; those of the
//! tenant's connections are in `traffic_limits.rs`.
//!
//! A change must ensure that an error names file, line and field, and that a file with an error
//! changes nothing.

use std::collections::HashSet;
use std::path::Path;

use lowwater::{ByteSize, Memcg};

use super::traffic_limits::TrafficLimits;
use crate::protocol::item::KEY_BYTES_MAX;

/// The tenant of keys without a prefix and of keys such as `default:x`, and of connections that
/// belong to no other.
pub const DEFAULT_TENANT: &str = "default";

/// The names of the fields of a line. `ProtocolError::TenantUsage` (`protocol/error.rs`) and
/// docs/OPERATING.md list them, too.
const NAMES: &str = "min, low, high, max, requests, bandwidth, connections and deny";

/// The limits of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Usage up to this is never reclaimed. This and the next three are bytes of memory.
    pub min: ByteSize,
    /// Usage up to this is not reclaimed while other tenants exceed their `low`.
    pub low: ByteSize,
    /// Usage above this is trimmed.
    pub high: ByteSize,
    /// No insert brings the usage above this.
    pub max: ByteSize,
    /// The limits of the tenant's connections.
    pub traffic: TrafficLimits,
}

impl Default for Limits {
    fn default() -> Self {
        let (zero, unlimited) = (ByteSize::ZERO, ByteSize::MAX);
        Self { min: zero, low: zero, high: unlimited, max: unlimited, traffic: TrafficLimits::default() }
    }
}

impl Limits {
    /// Returns these limits, changed by `fields` such as `low=8M`.
    ///
    /// # Errors
    ///
    /// The invalid field (`None` if only the combination of all fields is invalid) and the reason.
    pub fn with<'a>(mut self, fields: impl Iterator<Item = &'a str>) -> Result<Self, (Option<&'a str>, String)> {
        let mut seen: Vec<&str> = Vec::new();
        for field in fields {
            let wrong = |why: String| (Some(field), why);
            let (kind, amount) = field.split_once('=').ok_or_else(|| wrong("a limit is written like low=8M".into()))?;
            if seen.contains(&kind) {
                return Err(wrong(format!("{kind} was given before on this line")));
            }
            seen.push(kind);
            let limit = match kind {
                "min" => &mut self.min,
                "low" => &mut self.low,
                "high" => &mut self.high,
                "max" => &mut self.max,
                _ if self.traffic.set(kind, amount).map_err(wrong)? => continue,
                _ => return Err(wrong(format!("the limits are {NAMES}"))),
            };
            *limit = amount.parse::<ByteSize>().map_err(|why| wrong(why.to_string()))?;
        }
        for (kind, bytes) in [("min", self.min), ("low", self.low)] {
            if bytes > self.max {
                return Err((None, format!("{kind} is above max, so it could never be used")));
            }
        }
        Ok(self)
    }
}

/// An error in a limits file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsFileError {
    #[error("{file}: cannot be read: {why}")]
    Unreadable { file: String, why: String },
    #[error("{file}:{line}: {field}: {why}")]
    /// `line` counts from 1.
    Line { file: String, line: usize, field: String, why: String },
}

/// Reads the limits of each tenant from the file at `path`. Names must not contain `delimiter`,
/// which ends the tenant's name in a key.
///
/// # Errors
///
/// The file cannot be read, or a line of it cannot be understood.
pub fn read(path: &Path, delimiter: u8) -> Result<Vec<(String, Limits)>, LimitsFileError> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text, &file, delimiter),
        Err(why) => Err(LimitsFileError::Unreadable { file, why: why.to_string() }),
    }
}

/// Parses the text of `file`, whose name is used in errors only.
///
/// # Errors
///
/// The first line that is invalid.
pub fn parse(text: &str, file: &str, delimiter: u8) -> Result<Vec<(String, Limits)>, LimitsFileError> {
    let text = without_byte_order_mark(text);
    let (mut tenants, mut names): (Vec<(String, Limits)>, HashSet<&str>) = Default::default();
    for (index, text) in text.lines().enumerate() {
        let wrong = |field: &str, why: String| LimitsFileError::Line {
            file: file.to_owned(),
            line: index + 1,
            field: format!("`{}`", field.escape_debug()),
            why,
        };
        // A `#` inside a word belongs to a tenant's name.
        let is_comment = |at: &usize| text[..*at].chars().next_back().is_none_or(char::is_whitespace);
        let comment = text.match_indices('#').map(|(at, _)| at).find(is_comment);
        let text = &text[..comment.unwrap_or(text.len())];
        let mut fields = text.split_whitespace();
        let Some(name) = fields.next() else { continue };
        check_name_in_file(name, delimiter).map_err(|why| wrong(name, why))?;
        if !names.insert(name) {
            return Err(wrong(name, "this tenant has a line already; write its limits on one line".into()));
        }
        let limits = Limits::default().with(fields).map_err(|(field, why)| wrong(field.unwrap_or(text.trim()), why))?;
        tenants.push((name.to_owned(), limits));
    }
    Ok(tenants)
}

/// Returns `text` without the byte order mark that some editors write at the front of a file: it
/// would be a part of the first name.
pub fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Checks that `name`, which a file gives to a tenant or a user, is valid and can be seen: an
/// invisible character would make it the name of another one than the reader of the file sees.
///
/// # Errors
///
/// A sentence with the reason.
pub fn check_name_in_file(name: &str, delimiter: u8) -> Result<(), String> {
    check_tenant_name(name, delimiter)?;
    match find_invisible(name) {
        Some(' ') => Err("a name has no space".into()),
        Some(c) => Err(format!("a name has no invisible character, as '{}'", c.escape_debug())),
        None => Ok(()),
    }
}

/// Returns the first character of `name` that is not seen.
fn find_invisible(name: &str) -> Option<char> {
    name.chars().find(|c| c.is_whitespace() || c.is_control() || is_format(*c))
}

/// Returns whether `c` is not seen, alone or where it has no meaning (Unicode's
/// `Default_Ignorable_Code_Point`).
fn is_format(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Checks that `name` is a valid tenant name.
///
/// # Errors
///
/// A sentence with the reason.
pub fn check_tenant_name(name: &str, delimiter: u8) -> Result<(), String> {
    if name.is_empty() {
        return Err("a tenant's name must not be empty".into());
    }
    if name.contains('=') {
        return Err("a line begins with the tenant's name".into());
    }
    if name.as_bytes().contains(&delimiter) {
        return Err(format!("a tenant's name ends before the first '{}' of a key", char::from(delimiter)));
    }
    if name.len() > KEY_BYTES_MAX - 1 {
        return Err(format!("longer than {} bytes: a key has {KEY_BYTES_MAX} at most", KEY_BYTES_MAX - 1));
    }
    let group_bytes = group_name(name.as_bytes()).len();
    if group_bytes > Memcg::NAME_MAX {
        return Err(format!(
            "its group's name has {group_bytes} bytes, with %XX for each that is not visible ASCII, and {} at most",
            Memcg::NAME_MAX
        ));
    }
    Ok(())
}

/// Returns the name of the group of the tenant with this prefix. Different prefixes have different
/// names, as `%` is written as `%25`.
pub fn group_name(prefix: &[u8]) -> String {
    let mut name = String::with_capacity(prefix.len());
    for &byte in prefix {
        if byte.is_ascii_graphic() && !b"%/:".contains(&byte) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    name
}

/// Returns the name that listings show for the tenant of this group: the tenant's own name, as
/// `tenant set` and the files take it, if it is visible and has no `%` and no `:`, which ends a
/// name in `stats tenants`; otherwise the group's name. So no two tenants are listed by the same
/// name.
pub fn listed_name(group_name: &str) -> String {
    let own = own_name(group_name).filter(|own| !own.contains(['%', ':']) && find_invisible(own).is_none());
    own.unwrap_or_else(|| group_name.to_owned())
}

/// Returns the prefix of which this is the [`group_name`]; `None` if it is not UTF-8.
fn own_name(group_name: &str) -> Option<String> {
    let mut parts = group_name.split('%');
    let mut own = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        own.push(u8::from_str_radix(digits, 16).ok()?);
        own.extend(rest.as_bytes());
    }
    String::from_utf8(own).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_comments_and_empty_lines_are_read() {
        let text = "# all\n\nshop low=8M high=16M max=32M # busy\n  search\tmin=1024 \n";
        let tenants = parse(text, "f", b':').unwrap();
        let shop =
            Limits { low: ByteSize::mib(8), high: ByteSize::mib(16), max: ByteSize::mib(32), ..Limits::default() };
        let search = Limits { min: ByteSize::kib(1), ..Limits::default() };
        assert_eq!(tenants, [("shop".to_owned(), shop), ("search".to_owned(), search)]);
    }

    #[test]
    fn a_name_must_fit_into_its_groups_name() {
        assert!(check_tenant_name(&"\u{4e00}".repeat(28), b':').is_ok());
        let why = check_tenant_name(&"\u{4e00}".repeat(29), b':').unwrap_err();
        assert!(why.contains("has 261 bytes"), "{why}");
    }

    #[test]
    fn visible_names_are_listed_as_they_are_and_all_names_differ() {
        for (prefix, listed) in [
            (&b"team"[..], "team"),
            (b"team/shop", "team/shop"),
            (b"a\"b\\c", "a\"b\\c"),
            (b"a:b", "a%3Ab"),
            ("caf\u{e9}\u{4e00}".as_bytes(), "caf\u{e9}\u{4e00}"),
            // The names of other tenants, if they were listed as they are.
            (b"team%2Fshop", "team%252Fshop"),
            (b"a%20b", "a%2520b"),
            (b"a b", "a%20b"),
            (b"100%", "100%25"),
            (b"a\r\nb", "a%0D%0Ab"),
            (b"\xff/a", "%FF%2Fa"),
            ("a\u{200b}b".as_bytes(), "a%E2%80%8Bb"),
            ("a\u{fe0f}".as_bytes(), "a%EF%B8%8F"),
            ("a\u{a0}/b".as_bytes(), "a%C2%A0%2Fb"),
        ] {
            assert_eq!(listed_name(&group_name(prefix)), listed);
        }
    }

    #[test]
    fn a_number_sign_inside_a_name_begins_no_comment() {
        let tenants = parse("team#1 max=4M#5\n", "f", b':').unwrap_err().to_string();
        assert!(tenants.contains("4M#5"), "{tenants}");
        let tenants = parse("team#1 max=4M #5\n#team#2 max=1M\n", "f", b':').unwrap();
        assert_eq!(tenants, [("team#1".to_owned(), Limits { max: ByteSize::mib(4), ..Limits::default() })]);
    }

    #[test]
    fn limits_of_traffic_are_printed_as_they_are_read() {
        let fields = "requests=500 bandwidth=2097152 connections=20 deny=flush_all,stats";
        let read = |text: &str| parse(&format!("batch low=1M {text}"), "f", b':').unwrap().remove(0).1;
        let limits = read("requests=500 bandwidth=2M connections=20 deny=flush_all,stats");
        assert_eq!((limits.low, limits.traffic.to_string()), (ByteSize::mib(1), fields.to_owned()));
        assert_eq!(read(fields), limits);
        let back = limits.with("requests=max bandwidth=max connections=max deny=none".split(' ')).unwrap();
        assert_eq!(back, read(""));
        assert_eq!(back.traffic.to_string(), "requests=max bandwidth=max connections=max deny=none");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_name() {
        let limits = Limits { max: ByteSize::mib(1), ..Limits::default() };
        assert_eq!(parse("\u{feff}shop max=1M\n", "f", b':').unwrap(), [("shop".to_owned(), limits)]);
    }

    #[test]
    fn errors_name_file_line_and_field() {
        for (text, message) in [
            ("\nshop low=8Q", "f:2: `low=8Q`: not an amount of memory"),
            ("shop low", "f:1: `low`: a limit is written like low=8M"),
            (
                "shop lo=8M",
                "f:1: `lo=8M`: the limits are min, low, high, max, requests, bandwidth, connections and deny",
            ),
            ("shop requests=0", "f:1: `requests=0`: a number of at least 1, or max"),
            ("shop connections=1K", "f:1: `connections=1K`: a number of at least 1, or max"),
            ("shop bandwidth=0", "f:1: `bandwidth=0`: at least 1"),
            ("shop bandwidth=fast", "f:1: `bandwidth=fast`: not an amount of memory"),
            ("shop deny=flush", "f:1: `deny=flush`: \"flush\" cannot be denied; the commands are get, set,"),
            ("shop low=1 low=2", "f:1: `low=2`: low was given before"),
            ("shop low=1\nshop low=1", "f:2: `shop`: this tenant has a line already"),
            ("low=8M", "f:1: `low=8M`: a line begins with the tenant's name"),
            ("a:b low=8M", "f:1: `a:b`: a tenant's name ends before the first ':' of a key"),
            ("\u{feff}\u{feff}shop low=1", r"f:1: `\u{feff}shop`: a name has no invisible character, as '\u{feff}'"),
            ("a\u{200b}b low=1", r"f:1: `a\u{200b}b`: a name has no invisible character, as '\u{200b}'"),
            ("a\0b low=1", r"f:1: `a\0b`: a name has no invisible character, as '\0'"),
            ("shop low=8M max=4M", "f:1: `shop low=8M max=4M`: low is above max"),
        ] {
            let error = parse(text, "f", b':').unwrap_err().to_string();
            assert!(error.starts_with(message), "{text:?} gave {error:?}");
        }
    }
}
