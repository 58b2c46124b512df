//! Users that may log in (`-Y`): a file of `user:password` lines, in memcached's format.
//!
//! The connection of a user belongs to the tenant of the same name. The namespace of the tenant
//! `default` has no prefix, so the user `default` can access all keys: an administrator.
//!
//! A change must ensure that no error contains a password, and that a user's name is valid as the
//! name of a tenant.

use std::collections::HashMap;
use std::path::Path;

use super::limits::{check_name_in_file, without_byte_order_mark};

/// The password of each user, by the user's name.
#[derive(Clone, Debug)]
pub struct Users(HashMap<String, String>);

impl Users {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// A sentence with the file, the line and the reason; never a password.
    pub fn read(path: &Path, delimiter: u8) -> Result<Self, String> {
        let file = path.display();
        let text = std::fs::read_to_string(path).map_err(|why| format!("-Y: {file}: cannot be read: {why}"))?;
        Self::parse(&text, delimiter).map_err(|(line, why)| format!("-Y: {file}:{line}: {why}"))
    }

    fn parse(text: &str, delimiter: u8) -> Result<Self, (usize, String)> {
        let mut users = HashMap::new();
        for (index, line) in without_byte_order_mark(text).lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let wrong = |why: String| (index + 1, why);
            let (user, password) =
                line.split_once(':').ok_or_else(|| wrong("a user is written like name:password".into()))?;
            check_name_in_file(user, delimiter).map_err(wrong)?;
            if password.is_empty() || password.contains(' ') {
                return Err(wrong("a password must have at least one character, and no space".into()));
            }
            if users.insert(user.to_owned(), password.to_owned()).is_some() {
                return Err(wrong(format!("the user {user} has a line already")));
            }
        }
        if users.is_empty() {
            return Err((1, "the file has no user, so no client could log in".into()));
        }
        Ok(Self(users))
    }

    /// Returns the names of all users, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns whether there is a user of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the user's name if the password is right. The comparison takes the same time for all
    /// passwords of the right length, so that its time does not tell how many bytes are right.
    pub fn check(&self, user: &[u8], password: &[u8]) -> Option<&str> {
        let found = self.0.get_key_value(std::str::from_utf8(user).ok()?);
        found.filter(|(_, right)| is_same(right.as_bytes(), password)).map(|(name, _)| name.as_str())
    }
}

fn is_same(right: &[u8], given: &[u8]) -> bool {
    right.len() == given.len() && right.iter().zip(given).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::args;
    use crate::settings::limits::Limits;
    use crate::settings::traffic_limits::TrafficLimits;

    #[test]
    fn a_limited_tenant_without_a_user_has_no_connections() {
        let settings = args::parse(["lowwater-server"]).unwrap().unwrap();
        let traffic = TrafficLimits { requests: Some(1), ..TrafficLimits::default() };
        let limited = Limits { traffic, ..Limits::default() };
        let limits = [("shop", limited), ("other", limited), ("free", Limits::default()), ("default", limited)];
        let limits = limits.map(|(name, limits)| (name.to_owned(), limits));
        let users = Users::parse("shop:secret\n", b'/').unwrap();
        let why = settings.limits_without_effect(&limits, Some(&users)).unwrap();
        assert!(why.contains("no effect for other: "), "{why}");
        assert_eq!(settings.limits_without_effect(&limits[2..], None), None);
    }

    #[test]
    fn a_login_needs_the_password_of_its_user() {
        let users = Users::parse("shop:secret\r\nsearch:a:b\n\n", b'/').unwrap();
        assert_eq!(users.check(b"shop", b"secret"), Some("shop"));
        assert_eq!(users.check(b"search", b"a:b"), Some("search"));
        for (user, password) in [("shop", "secreT"), ("shop", "secre"), ("shop", ""), ("search", "secret"), ("", "")] {
            assert_eq!(users.check(user.as_bytes(), password.as_bytes()), None, "{user} {password}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_name() {
        let users = Users::parse("\u{feff}shop:secret\n", b'/').unwrap();
        assert_eq!(users.check(b"shop", b"secret"), Some("shop"));
    }

    #[test]
    fn errors_name_the_line_and_no_password() {
        for (text, line) in [
            ("", 1),
            ("a:secret\nb", 2),
            ("a:secret\nsecret", 2),
            ("a:", 1),
            (":secret", 1),
            ("a:secret secret", 1),
            ("a:secret\na:secret", 2),
            ("a/b:secret", 1),
            ("a:secret\na b:secret", 2),
            ("a:secret\n a:secret", 2),
            ("a\t:secret", 1),
            ("a\u{2060}:secret", 1),
            ("\u{feff}\u{feff}a:secret", 1),
        ] {
            let (at, why) = Users::parse(text, b'/').unwrap_err();
            assert_eq!(at, line, "{text:?}: {why}");
            assert!(!why.contains("secret"), "{text:?}: {why}");
        }
    }
}
