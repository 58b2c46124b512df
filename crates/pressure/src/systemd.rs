//! The pressure source that a service manager assigns to a service: systemd's
//! `$MEMORY_PRESSURE_WATCH` and `$MEMORY_PRESSURE_WRITE`.
//!
//! The first variable is a path, the second one the bytes to write to it right after opening it, in
//! Base64 because they are arbitrary. This file parses both; the source (`source/linux.rs`) opens
//! the path, and does according to its type:
//!
//! | the path is | meaning | after the write |
//! |---|---|---|
//! | a regular file | a PSI file | wait for `POLLPRI`; the polled descriptor is not read |
//! | a FIFO | made by the manager, or by a test | wait for `POLLIN`, read and discard |
//! | an `AF_UNIX` socket | as a FIFO; connected before the write | as a FIFO |
//! | `/dev/null` | pressure must not be watched | - |
//!
//! The first event of a new PSI trigger may be about a stall from before the watch began. So the
//! stall times are read through a second descriptor, and such an event is dropped. Every event is
//! [`Level::Medium`](super::Level::Medium): the protocol has only one degree.
//!
//! The protocol: <https://systemd.io/PRESSURE/>.
//
// A change must keep to the protocol, and must not panic whatever the variables hold.

use alloc::string::String;
use alloc::vec::Vec;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use thiserror::Error;

/// The environment variable with the path to watch.
pub const WATCH_VARIABLE: &str = "MEMORY_PRESSURE_WATCH";
/// The environment variable with the bytes to write to the path first, in Base64.
pub const WRITE_VARIABLE: &str = "MEMORY_PRESSURE_WRITE";

/// The service manager's setting for memory pressure, parsed from [`WATCH_VARIABLE`] and
/// [`WRITE_VARIABLE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Systemd {
    /// [`WATCH_VARIABLE`] is not set, or empty: the process is not a service, or its manager does
    /// not implement the protocol.
    Unset,
    /// The path is `/dev/null`: memory pressure must not be watched.
    Off,
    /// The path to watch.
    Watch(Watch),
}

/// A path to watch, and the bytes to write to it first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// An absolute path without NUL bytes.
    pub path: String,
    /// Arbitrary bytes, often a PSI trigger; empty if nothing is to be written.
    pub write: Vec<u8>,
}

/// An error in the service manager's variables.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SystemdError {
    /// The path is not absolute, is not UTF-8, or has a NUL byte.
    #[error("${WATCH_VARIABLE}: found {0:?}, expected an absolute path, or /dev/null to switch it off; correct the unit, or unset it")]
    Path(String),
    /// The value of [`WRITE_VARIABLE`] is not Base64.
    #[error("${WRITE_VARIABLE}: {0}; expected Base64; correct the unit, or unset it")]
    Write(base64::DecodeError),
    /// The value of [`WRITE_VARIABLE`] is not UTF-8.
    #[error("${WRITE_VARIABLE}: found bytes that are not text, expected Base64; correct the unit, or unset it")]
    NotText,
}

impl Systemd {
    /// Parses the values of the two variables; `None` stands for a variable that is not set.
    ///
    /// ```
    /// use lowwater_pressure::systemd::{Systemd, Watch};
    ///
    /// let told = Systemd::parse(Some("/sys/fs/cgroup/shop.service/memory.pressure"), Some("c29tZSAyMDAwMDAgMjAwMDAwMAA="))?;
    /// let Systemd::Watch(watch) = told else { panic!("something to watch") };
    /// assert_eq!(watch.write, b"some 200000 2000000\0");
    /// assert_eq!(Systemd::parse(Some("/dev/null"), None)?, Systemd::Off);
    /// # Ok::<(), lowwater_pressure::systemd::SystemdError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SystemdError`], which names the variable.
    pub fn parse(watch: Option<&str>, write: Option<&str>) -> Result<Self, SystemdError> {
        let path = match watch {
            None | Some("") => return Ok(Self::Unset),
            Some("/dev/null") => return Ok(Self::Off),
            Some(path) if path.starts_with('/') && !path.contains('\0') => path,
            Some(other) => return Err(SystemdError::Path(other.into())),
        };
        let write = BASE64_STANDARD.decode(write.unwrap_or("").trim_ascii()).map_err(SystemdError::Write)?;
        Ok(Self::Watch(Watch { path: path.into(), write }))
    }

    /// Returns the reason why there is no path to watch; `None` if there is one.
    #[doc(hidden)]
    pub fn missing(&self) -> Option<&'static str> {
        match self {
            Self::Unset => Some("the service manager has not set MEMORY_PRESSURE_WATCH"),
            Self::Off => Some("switched off by the service manager ($MEMORY_PRESSURE_WATCH is /dev/null)"),
            Self::Watch(_) => None,
        }
    }

    /// Parses the variables of this process.
    ///
    /// # Errors
    ///
    /// The errors of [`parse`](Self::parse).
    pub fn from_env() -> Result<Self, SystemdError> {
        let watch = std::env::var_os(WATCH_VARIABLE);
        let watch = watch.map(|text| text.into_string());
        let watch = watch.transpose().map_err(|text| SystemdError::Path(text.to_string_lossy().into_owned()))?;
        let write = std::env::var_os(WRITE_VARIABLE).map(|text| text.into_string());
        let write = write.transpose().map_err(|_| SystemdError::NotText)?;
        Self::parse(watch.as_deref(), write.as_deref())
    }
}

/// Fuzz target: any two values are parsed or rejected without a panic, and the parsed bytes encode
/// to their input without the white space around it. The first line of `bytes` is the path, the
/// rest the Base64 of the bytes to write.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let (path, write) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(Systemd::Watch(watch)) = Systemd::parse(Some(path), Some(write)) {
        assert_eq!(watch.path, path);
        assert_eq!(BASE64_STANDARD.encode(&watch.write), write.trim_ascii(), "a parsed value differs from its input");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text: String) {
            fuzz(text.as_bytes());
        }

        #[test]
        fn any_nearly_valid_text_is_parsed_or_refused(text in "/[a-z]{0,3}\n ?[A-Za-z0-9+/]{0,9}={0,3}") {
            fuzz(text.as_bytes());
        }

        #[test]
        fn any_bytes_can_be_written(path in "/[a-z/]{1,9}x", write: Vec<u8>) {
            let told = Systemd::parse(Some(&path), Some(&BASE64_STANDARD.encode(&write)));
            prop_assert_eq!(told, Ok(Systemd::Watch(Watch { path, write })));
        }
    }

    #[test]
    fn unset_disabled_and_invalid_variables_are_distinguished() {
        assert_eq!(Systemd::parse(None, Some("!")), Ok(Systemd::Unset));
        assert_eq!(Systemd::parse(Some("/dev/null"), Some("!")), Ok(Systemd::Off));
        assert!(Systemd::parse(Some("memory.pressure"), None)
            .unwrap_err()
            .to_string()
            .contains("$MEMORY_PRESSURE_WATCH"));
        assert!(Systemd::parse(Some("/x"), Some("a")).unwrap_err().to_string().contains("$MEMORY_PRESSURE_WRITE"));
    }
}
