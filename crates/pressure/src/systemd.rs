//! The pressure source that a service manager assigns to a service: systemd's `$MEMORY_PRESSURE_WATCH` and `$MEMORY_PRESSURE_WRITE`.
//!
//! | the path is | it is | after the write |
//! |---|---|---|
//! | a regular file | a PSI file | wait for `POLLPRI`; read, by another descriptor, only to see whether the first is news |
//! | a FIFO | the manager's, or a test's | wait for `POLLIN`, read and forget |
//! | an `AF_UNIX` socket | the same | connect; wait for `POLLIN`, read and forget |
//! | `/dev/null` | "do not watch" | - |
//!
//! The bytes to write stand in the second variable in Base64, since it may be any bytes, and is written right after
//! opening. One event is [`Level::Medium`](super::Level::Medium): the protocol knows one degree.
//!
//! The protocol: <https://systemd.io/PRESSURE/>.

use alloc::string::String;
use alloc::vec::Vec;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use thiserror::Error;

/// The variable that says what to watch.
pub const WATCH_VARIABLE: &str = "MEMORY_PRESSURE_WATCH";
/// The variable that says what to write into it first.
pub const WRITE_VARIABLE: &str = "MEMORY_PRESSURE_WRITE";

/// The service manager's choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Systemd {
    /// Nothing was said: this is no service, or its manager does not know the protocol.
    Unset,
    /// Memory pressure is not to be watched.
    Off,
    /// This is to be watched.
    Watch(Watch),
}

/// A path to watch, and what to write there first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// An absolute path.
    pub path: String,
    /// Any bytes; often a PSI trigger.
    pub write: Vec<u8>,
}

/// The service manager's variables do not follow the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SystemdError {
    /// The path is not absolute, or not text.
    #[error("${WATCH_VARIABLE}: found {0:?}, expected an absolute path, or /dev/null to switch it off; correct the unit, or unset it")]
    Path(String),
    /// The data is not Base64.
    #[error("${WRITE_VARIABLE}: {0}; expected Base64; correct the unit, or unset it")]
    Write(base64::DecodeError),
    /// The data is not text.
    #[error("${WRITE_VARIABLE}: found bytes that are not text, expected Base64; correct the unit, or unset it")]
    NotText,
}

impl Systemd {
    /// Reads the two variables' values.
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
    /// [`SystemdError`] names the variable.
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

    /// Reads this process's variables.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse).
    pub fn from_env() -> Result<Self, SystemdError> {
        let watch = std::env::var_os(WATCH_VARIABLE);
        let watch = watch.map(|text| text.into_string());
        let watch = watch.transpose().map_err(|text| SystemdError::Path(text.to_string_lossy().into_owned()))?;
        let write = std::env::var_os(WRITE_VARIABLE).map(|text| text.into_string());
        let write = write.transpose().map_err(|_| SystemdError::NotText)?;
        Self::parse(watch.as_deref(), write.as_deref())
    }
}

/// For the fuzzer: any two values are read or refused, and what is read is what was said. The first line is the path.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let (path, write) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(Systemd::Watch(watch)) = Systemd::parse(Some(path), Some(write)) {
        assert_eq!(watch.path, path);
        assert_eq!(BASE64_STANDARD.encode(&watch.write), write.trim_ascii(), "what was read is not written the same");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            fuzz(text.as_bytes());
        }

        #[test]
        fn any_near_miss_is_read_or_refused(text in "/[a-z]{0,3}\n ?[A-Za-z0-9+/]{0,9}={0,3}") {
            fuzz(text.as_bytes());
        }

        #[test]
        fn any_bytes_can_be_written(path in "/[a-z/]{1,9}x", write: Vec<u8>) {
            let told = Systemd::parse(Some(&path), Some(&BASE64_STANDARD.encode(&write)));
            prop_assert_eq!(told, Ok(Systemd::Watch(Watch { path, write })));
        }
    }

    #[test]
    fn unset_off_and_wrong_are_told_apart() {
        assert_eq!(Systemd::parse(None, Some("!")), Ok(Systemd::Unset));
        assert_eq!(Systemd::parse(Some("/dev/null"), Some("!")), Ok(Systemd::Off));
        assert!(Systemd::parse(Some("memory.pressure"), None)
            .unwrap_err()
            .to_string()
            .contains("$MEMORY_PRESSURE_WATCH"));
        assert!(Systemd::parse(Some("/x"), Some("a")).unwrap_err().to_string().contains("$MEMORY_PRESSURE_WRITE"));
    }
}
