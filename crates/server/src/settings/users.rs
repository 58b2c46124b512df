//! Users that may log in (`-Y`): a file of `user:password` lines, in memcached's format.
//!
//! The connection of a user belongs to the tenant of the same name. The namespace of the tenant
//! `default` has no prefix, so the user `default` can access all keys: an administrator.
//!
//! A change must ensure that no error contains a password, and that a user's name is valid as the
//! name of a tenant.

use std::path::Path;

use super::limits::check_tenant_name;

/// User names and passwords.
#[derive(Clone, Debug)]
pub struct Users(Vec<(String, String)>);

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
        let mut users: Vec<(String, String)> = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let wrong = |why: String| (index + 1, why);
            let (user, password) =
                line.split_once(':').ok_or_else(|| wrong("a user is written like name:password".into()))?;
            check_tenant_name(user, delimiter).map_err(wrong)?;
            if password.is_empty() || password.contains(' ') {
                return Err(wrong("a password must have at least one character, and no space".into()));
            }
            if users.iter().any(|(other, _)| other == user) {
                return Err(wrong(format!("the user {user} has a line already")));
            }
            users.push((user.to_owned(), password.to_owned()));
        }
        if users.is_empty() {
            return Err((1, "the file has no user, so no client could log in".into()));
        }
        Ok(Self(users))
    }

    /// Returns the names of all users.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the user's name if the password is right. The comparison takes the same time for all
    /// passwords of the right length, so that its time does not tell how many bytes are right.
    pub fn check(&self, user: &[u8], password: &[u8]) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| name.as_bytes() == user);
        found.filter(|(_, right)| is_same(right.as_bytes(), password)).map(|(name, _)| name.as_str())
    }
}

fn is_same(right: &[u8], given: &[u8]) -> bool {
    right.len() == given.len() && right.iter().zip(given).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            let (at, why) = Users::parse(text, b'/').unwrap_err();
            assert_eq!(at, line, "{text:?}: {why}");
            assert!(!why.contains("secret"), "{text:?}: {why}");
        }
    }
}
