//! Replaces `tls.rs` in a program without the feature `tls`. No value of [`Tls`] exists, as the
//! settings refuse `-Z`.
//!
//! A change must keep the functions of `tls.rs`, so that callers compile with either module.

use std::io;
use std::time::Duration;

use super::stream::Stream;
use crate::settings::tls::TlsSettings;

#[derive(Debug)]
pub enum Tls {}

pub enum NewConfig {}

impl Tls {
    pub fn open(_settings: &TlsSettings) -> Result<Self, String> {
        Err("-Z: this program was built without TLS".to_owned())
    }

    pub fn read_again(&self) -> Result<NewConfig, String> {
        match *self {}
    }

    pub fn replace(&self, new: NewConfig) {
        match new {}
    }

    pub fn age(&self) -> Duration {
        match *self {}
    }

    pub async fn accept(&self, _stream: Stream) -> io::Result<Stream> {
        match *self {}
    }
}
