//! Decoder of the stream before a login. A login is memcached's: `set <any> <any> <any> <length>`
//! and a block of `user password`.
//!
//! All other lines are answered with an error and discarded.
//!
//! A change must ensure that no line before the login is executed.

use super::number::unsigned;
use super::words::Words;

/// Maximum length of an input without a line end, and of a login's block.
const LOGIN_BYTES_MAX: usize = 2048;

/// Decodes the stream until the client has logged in.
#[derive(Debug, Default)]
pub struct LoginDecoder {
    /// The length of the block that is to follow, without its line end; `None` at the beginning of
    /// a line.
    block: Option<usize>,
}

/// A step of the login decoder.
#[derive(Debug, PartialEq, Eq)]
pub enum LoginStep<'a> {
    /// No further step without more input.
    More,
    /// A user name and a password that are not checked yet.
    Login { user: &'a [u8], password: &'a [u8] },
    /// Any other line or block, and the reply to it.
    Error(&'static str),
    /// More than [`LOGIN_BYTES_MAX`] bytes without a line end: the connection closes.
    LineTooLong,
}

impl LoginDecoder {
    /// Takes one step, and returns the number of consumed bytes of `input` and the step. A block is
    /// consumed only when it is complete.
    pub fn step<'a>(&mut self, input: &'a [u8]) -> (usize, LoginStep<'a>) {
        match self.block {
            None => self.line(input),
            Some(length) if input.len() < length + 2 => (0, LoginStep::More),
            Some(length) => {
                self.block = None;
                (length + 2, login(&input[..length + 2]))
            }
        }
    }

    fn line<'a>(&mut self, input: &'a [u8]) -> (usize, LoginStep<'a>) {
        let Some(end) = input.iter().position(|&b| b == b'\n') else {
            let step = if input.len() > LOGIN_BYTES_MAX { LoginStep::LineTooLong } else { LoginStep::More };
            return (0, step);
        };
        let mut words = Words::of(&input[..end]);
        let is_set = words.next() == Some(b"set");
        self.block = words
            .nth(3)
            .and_then(|word| usize::try_from(unsigned(word)?).ok())
            .filter(|&length| is_set && length <= LOGIN_BYTES_MAX);
        match self.block {
            Some(_) => {
                let (taken, step) = self.step(&input[end + 1..]);
                (end + 1 + taken, step)
            }
            None => (end + 1, LoginStep::Error("CLIENT_ERROR unauthenticated")),
        }
    }
}

/// Parses a login's block, which includes the two bytes of its line end.
fn login(block: &[u8]) -> LoginStep<'_> {
    let Some(block) = block.strip_suffix(b"\r\n") else {
        return LoginStep::Error("CLIENT_ERROR bad command line termination");
    };
    let mut words = Words::of(block);
    match (words.next(), words.next()) {
        (Some(user), Some(password)) => LoginStep::Login { user, password },
        _ => LoginStep::Error("CLIENT_ERROR bad authentication token format"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let (mut login, mut buffer, mut steps) = (LoginDecoder::default(), Vec::new(), Vec::new());
        for chunk in chunks {
            buffer.extend_from_slice(chunk);
            loop {
                let (taken, step) = login.step(&buffer);
                match step {
                    LoginStep::More => {
                        buffer.drain(..taken);
                        break;
                    }
                    LoginStep::LineTooLong => {
                        steps.push("LineTooLong".into());
                        return steps;
                    }
                    step => steps.push(format!("{step:?}")),
                }
                buffer.drain(..taken);
            }
        }
        steps
    }

    #[test]
    fn all_commands_but_a_login_are_refused() {
        for (input, expected) in [
            ("set any 0 0 9\r\nme secret\r\n", "Login"),
            ("set any 0 0 10 noreply\nme  secret\r\n", "Login"),
            ("get k\r\n", "unauthenticated"),
            ("\r\n", "unauthenticated"),
            ("set any 0 0\r\n", "unauthenticated"),
            ("set any 0 0 999999\r\n", "unauthenticated"),
            ("set any 0 0 2\r\nme\r\n", "token format"),
            ("set any 0 0 1\r\nme secret\r\n", "termination"),
        ] {
            let steps = steps([input.as_bytes()]);
            assert!(steps[0].contains(expected), "{input:?}: {steps:?}");
        }
        assert_eq!(steps([&[b'x'; LOGIN_BYTES_MAX + 1][..]]), ["LineTooLong"]);
    }

    proptest! {
        #[test]
        fn split_anywhere_same_steps(
            lines in prop::collection::vec(prop::sample::select(vec![
                "set a 0 0 9\r\nme secret\r\n", "set a 0 0 3\r\nabcdef\r\n", "version\r\n", "\n", "set a 0 0 2000\r\n", "garbage",
            ]), 0..10),
        ) {
            let stream = lines.concat();
            prop_assert_eq!(steps(stream.as_bytes().chunks(1)), steps([stream.as_bytes()]));
        }
    }
}
