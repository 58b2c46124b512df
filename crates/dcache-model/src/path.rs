//! Paths: bytes, cut at slashes.

use crate::error::ErrorKind;
use crate::qstr::{Name, NAME_MAX};

/// Bytes that a path may have.
pub const PATH_MAX: usize = 4096;

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    Down(Name<'a>),
    Up,
}

/// Checks a path as a whole. Empty parts and `.` are allowed in it, and mean nothing.
#[inline]
pub(crate) fn check(path: &[u8]) -> Result<(), ErrorKind> {
    if path.is_empty() {
        return Err(ErrorKind::InvalidName);
    }
    if path.len() > PATH_MAX {
        return Err(ErrorKind::NameTooLong);
    }
    Ok(())
}

/// The next step, and the rest of the path; `None` at its end.
#[inline]
pub(crate) fn step(mut path: &[u8]) -> Result<Option<(Step<'_>, &[u8])>, ErrorKind> {
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
            b".." => return Ok(Some((Step::Up, rest))),
            _ if part.len() > NAME_MAX => return Err(ErrorKind::NameTooLong),
            _ => return Ok(Some((Step::Down(Name::checked(part)), rest))),
        }
    }
}

/// Are only slashes left?
#[inline]
pub(crate) fn is_end(rest: &[u8]) -> bool {
    rest.iter().all(|&b| b == b'/')
}

/// Cuts the last name off: the path of its directory, and the name.
pub(crate) fn split_last(path: &[u8]) -> Result<(&[u8], Name<'_>), ErrorKind> {
    check(path)?;
    let end = path.len() - path.iter().rev().take_while(|&&b| b == b'/').count();
    let path = &path[..end];
    let start = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    let name = Name::new(&path[start..])?;
    Ok((&path[..start], name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &[u8]) -> Result<Vec<Step<'_>>, ErrorKind> {
        check(path)?;
        let (mut all, mut rest) = (Vec::new(), path);
        while let Some((part, behind)) = step(rest)? {
            all.push(part);
            rest = behind;
        }
        Ok(all)
    }

    #[test]
    fn a_path_is_cut_at_slashes() {
        let name = |s: &'static str| Step::Down(Name::new(s.as_bytes()).unwrap());
        assert_eq!(parts(b"//a/./b/../c/").unwrap(), [name("a"), name("b"), Step::Up, name("c")]);
        assert_eq!(parts(b"/").unwrap(), []);
    }

    #[test]
    fn what_is_no_path() {
        assert!(matches!(parts(b""), Err(ErrorKind::InvalidName)));
        assert!(matches!(parts(b"/a\0b"), Err(ErrorKind::InvalidName)));
        assert!(matches!(parts(&[b'/'; PATH_MAX + 1]), Err(ErrorKind::NameTooLong)));
        assert!(matches!(parts(&[b'a'; NAME_MAX + 1]), Err(ErrorKind::NameTooLong)));
        assert!(parts(&[b'/'; PATH_MAX]).is_ok());
    }

    #[test]
    fn the_last_name_is_one() {
        assert_eq!(split_last(b"/a/b//").unwrap(), (&b"/a/"[..], Name::new(b"b").unwrap()));
        assert_eq!(split_last(b"b").unwrap(), (&b""[..], Name::new(b"b").unwrap()));
        for bad in [&b"/"[..], b"/a/..", b"a/."] {
            assert!(matches!(split_last(bad), Err(ErrorKind::InvalidName)));
        }
    }
}
