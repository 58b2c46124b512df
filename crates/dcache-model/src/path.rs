//! Paths: byte strings, split into components at slashes.
//!
//! Pure functions on bytes. Symbolic links are not followed, so a path is resolved by its
//! components alone; `..` is one of them.
//!
//! A change must ensure that no bytes make a function panic, and that [`next_component`] passes
//! only valid names to `Name::checked`.

use crate::error::ErrorKind;
use crate::qstr::{Name, NAME_MAX};

/// The most bytes that a path may have.
pub const PATH_MAX: usize = 4096;

/// A component of a path that is not `.`.
#[doc(alias = "link_path_walk")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component<'a> {
    Normal(Name<'a>),
    ParentDir,
}

/// Checks the length of a path; [`next_component`] checks the components.
#[inline]
pub(crate) fn check_path(path: &[u8]) -> Result<(), ErrorKind> {
    if path.is_empty() {
        return Err(ErrorKind::InvalidName);
    }
    if path.len() > PATH_MAX {
        return Err(ErrorKind::NameTooLong);
    }
    Ok(())
}

/// Splits off the next component, skipping empty ones and `.`. Returns the component and the rest
/// of the path; `None` at the end of the path.
#[inline]
pub(crate) fn next_component(mut path: &[u8]) -> Result<Option<(Component<'_>, &[u8])>, ErrorKind> {
    loop {
        while let [b'/', rest @ ..] = path {
            path = rest;
        }
        if path.is_empty() {
            return Ok(None);
        }
        let mut end = 0;
        while end < path.len() && path[end] != b'/' {
            if path[end] == 0 {
                return Err(ErrorKind::InvalidName);
            }
            end += 1;
        }
        let (part, rest) = path.split_at(end);
        match part {
            b"." => path = rest,
            b".." => return Ok(Some((Component::ParentDir, rest))),
            _ if part.len() > NAME_MAX => return Err(ErrorKind::NameTooLong),
            _ => return Ok(Some((Component::Normal(Name::checked(part)), rest))),
        }
    }
}

/// Splits off the last name. Returns the path of its directory, which is empty for a name without a
/// slash, and the name.
#[doc(alias = "filename_parentat")]
pub(crate) fn split_last(path: &[u8]) -> Result<(&[u8], Name<'_>), ErrorKind> {
    check_path(path)?;
    let end = path.len() - path.iter().rev().take_while(|&&b| b == b'/').count();
    let path = &path[..end];
    let start = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    let name = Name::new(&path[start..])?;
    Ok((&path[..start], name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &[u8]) -> Result<Vec<Component<'_>>, ErrorKind> {
        check_path(path)?;
        let (mut all, mut rest) = (Vec::new(), path);
        while let Some((part, behind)) = next_component(rest)? {
            all.push(part);
            rest = behind;
        }
        Ok(all)
    }

    #[test]
    fn a_path_is_cut_at_slashes() {
        let name = |s: &'static str| Component::Normal(Name::new(s.as_bytes()).unwrap());
        assert_eq!(parts(b"//a/./b/../c/").unwrap(), [name("a"), name("b"), Component::ParentDir, name("c")]);
        assert_eq!(parts(b"/").unwrap(), []);
    }

    #[test]
    fn malformed_paths_are_refused() {
        assert!(matches!(parts(b""), Err(ErrorKind::InvalidName)));
        assert!(matches!(parts(b"/a\0b"), Err(ErrorKind::InvalidName)));
        assert!(matches!(parts(&[b'/'; PATH_MAX + 1]), Err(ErrorKind::NameTooLong)));
        assert!(matches!(parts(&[b'a'; NAME_MAX + 1]), Err(ErrorKind::NameTooLong)));
        assert!(parts(&[b'/'; PATH_MAX]).is_ok());
    }

    #[test]
    fn split_last_returns_directory_and_name() {
        assert_eq!(split_last(b"/a/b//").unwrap(), (&b"/a/"[..], Name::new(b"b").unwrap()));
        assert_eq!(split_last(b"b").unwrap(), (&b""[..], Name::new(b"b").unwrap()));
        for bad in [&b"/"[..], b"/a/..", b"a/."] {
            assert!(matches!(split_last(bad), Err(ErrorKind::InvalidName)));
        }
    }
}
