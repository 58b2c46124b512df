//! TLS: `-Z`, and the options of `-o` that begin with `ssl_`.
//!
//! A change must ensure that a server which cannot use TLS as the options tell does not start.

use std::path::PathBuf;

/// The settings of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The file with the server's certificate and those of its issuers, in PEM.
    pub chain: PathBuf,
    /// The file with the private key, in PEM.
    pub key: PathBuf,
    /// The rule for clients' certificates.
    pub clients: ClientCertificates,
    /// TLS 1.3 only; otherwise also TLS 1.2.
    pub is_13_only: bool,
}

/// The certificates that clients are asked for, with the file of the authorities that issue them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// None is asked for.
    None,
    /// A client may have none; one that it has must be valid.
    Optional(PathBuf),
    /// Each client must have a valid one.
    Required(PathBuf),
}

/// The options of `-o` that belong to TLS, as they were given.
#[derive(Debug, Default)]
pub struct TlsOptions {
    chain: Option<PathBuf>,
    key: Option<PathBuf>,
    authorities: Option<PathBuf>,
    /// 0: no certificates of clients, 1: optional, 2 or 3: required.
    verify_mode: u8,
    is_13_only: bool,
    /// The name of the last option that was given.
    given: Option<String>,
}

impl TlsOptions {
    /// Notes the option `name=value`. Returns false if it does not belong to TLS.
    ///
    /// # Errors
    ///
    /// A sentence with the option's name, if the value is not valid for the option.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<bool, String> {
        let needs = |what: &str| format!("-o: {name} needs {what}");
        let file = || value.filter(|path| !path.is_empty()).map(PathBuf::from).ok_or_else(|| needs("a file"));
        match name {
            "ssl_chain_cert" => self.chain = Some(file()?),
            "ssl_key" => self.key = Some(file()?),
            "ssl_ca_cert" => self.authorities = Some(file()?),
            "ssl_verify_mode" => {
                let mode = value.and_then(|mode| mode.parse().ok()).filter(|mode| *mode <= 3);
                self.verify_mode = mode.ok_or_else(|| needs("0 (none), 1 (optional), 2 or 3 (required)"))?;
            }
            "ssl_min_version" => {
                self.is_13_only = match value {
                    Some("tlsv1.2") => false,
                    Some("tlsv1.3") => true,
                    _ => return Err(needs("tlsv1.2 or tlsv1.3; there are no older versions")),
                }
            }
            "ssl_keyformat" => match value {
                Some("1") => {}
                _ => return Err(needs("1 (PEM), the only format")),
            },
            // Accepted without effect: the TLS library bounds buffers and sessions itself.
            "ssl_wbuf_size" | "ssl_session_cache" => {}
            _ => return Ok(false),
        }
        self.given = Some(name.to_owned());
        Ok(true)
    }

    /// Returns the settings, if TLS is on.
    ///
    /// # Errors
    ///
    /// A sentence with the flag or option and the reason.
    pub fn settings(self, is_on: bool) -> Result<Option<TlsSettings>, String> {
        match (is_on, self.given) {
            (false, None) => return Ok(None),
            (false, Some(name)) => return Err(format!("-o: {name} has no effect without -Z")),
            (true, _) if cfg!(not(feature = "tls")) => {
                return Err("-Z: this program was built without TLS; build it with `--features tls`".to_owned());
            }
            (true, _) => {}
        }
        let needed = |name: &str| format!("-Z: the option -o {name}=FILE is needed");
        let clients = match (self.verify_mode, self.authorities) {
            (0, _) => ClientCertificates::None,
            (_, None) => return Err(needed("ssl_ca_cert") + " to verify the clients' certificates (ssl_verify_mode)"),
            (1, Some(file)) => ClientCertificates::Optional(file),
            (_, Some(file)) => ClientCertificates::Required(file),
        };
        Ok(Some(TlsSettings {
            chain: self.chain.ok_or_else(|| needed("ssl_chain_cert"))?,
            key: self.key.ok_or_else(|| needed("ssl_key"))?,
            clients,
            is_13_only: self.is_13_only,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(given: &[(&str, &str)]) -> Result<TlsOptions, String> {
        let mut options = TlsOptions::default();
        for (name, value) in given {
            assert!(options.set(name, Some(value))?, "{name}");
        }
        Ok(options)
    }

    #[test]
    fn values_are_checked() {
        for (name, value) in [
            ("ssl_chain_cert", ""),
            ("ssl_verify_mode", "4"),
            ("ssl_verify_mode", "x"),
            ("ssl_min_version", "tlsv1.1"),
            ("ssl_keyformat", "2"),
        ] {
            let why = options(&[(name, value)]).unwrap_err();
            assert!(why.starts_with(&format!("-o: {name} needs ")), "{why}");
        }
        assert_eq!(TlsOptions::default().set("ssl_key", None), Err("-o: ssl_key needs a file".to_owned()));
        assert_eq!(TlsOptions::default().set("ssl_ciphers", Some("x")), Ok(false));
    }

    #[test]
    fn options_without_tls_are_an_error() {
        assert_eq!(TlsOptions::default().settings(false), Ok(None));
        let why = options(&[("ssl_key", "/k")]).unwrap().settings(false).unwrap_err();
        assert_eq!(why, "-o: ssl_key has no effect without -Z");
    }

    #[test]
    #[cfg(feature = "tls")]
    fn the_files_are_needed() {
        let files = [("ssl_chain_cert", "/c"), ("ssl_key", "/k")];
        for (given, missing) in [
            (&files[..1], "ssl_key"),
            (&files[1..], "ssl_chain_cert"),
            (&[files[0], files[1], ("ssl_verify_mode", "2")][..], "ssl_ca_cert"),
        ] {
            let why = options(given).unwrap().settings(true).unwrap_err();
            assert!(why.starts_with(&format!("-Z: the option -o {missing}=FILE is needed")), "{why}");
        }
        let clients = |mode| {
            let given = [files[0], files[1], ("ssl_verify_mode", mode), ("ssl_ca_cert", "/a")];
            options(&given).unwrap().settings(true).unwrap().unwrap().clients
        };
        assert_eq!(clients("0"), ClientCertificates::None);
        assert_eq!(clients("1"), ClientCertificates::Optional("/a".into()));
        assert_eq!(clients("2"), ClientCertificates::Required("/a".into()));
        assert_eq!(clients("3"), ClientCertificates::Required("/a".into()));
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn a_program_without_tls_does_not_start_with_it() {
        let why = options(&[("ssl_key", "/k")]).unwrap().settings(true).unwrap_err();
        assert!(why.starts_with("-Z: this program was built without TLS"), "{why}");
    }
}
