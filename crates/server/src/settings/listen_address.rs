//! Addresses to listen on, each for all tenants or for one.
//!
//! `-l` takes memcached's forms: `host`, `host:port`, `[v6]:port`; the host `*` is all addresses. A
//! tag in front restricts the clients of that address to one tenant: `tag_shop_:127.0.0.1:11212`,
//! or in the form of later memcached versions, `tag[shop]:127.0.0.1:11212`.
//!
//! `notls:` in front exempts an address from TLS.
//!
//! A change must keep memcached's forms valid.

use std::path::PathBuf;

use super::limits::{check_tenant_name, DEFAULT_TENANT};

/// In front of an address without TLS.
const PLAIN: &str = "notls:";

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The tenant to which the address restricts its clients; `None`: they can access all tenants.
    pub tenant: Option<String>,
    /// Whether the clients use no TLS, even if the server has TLS on.
    pub is_plain: bool,
    pub endpoint: Endpoint,
}

/// A TCP address or a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `host:port`; an IPv6 address is in brackets, unless it names a zone: `fe80::1%eth0:11211`.
    Tcp(String),
    /// The path of a unix socket (`-s`), and its permission bits.
    Unix { path: PathBuf, mode: u32 },
}

impl ListenAddress {
    /// Parses one address of `-l`. `port` is used if the address has none; `delimiter` ends the
    /// tenant's name in a key, so no tag may contain it.
    ///
    /// # Errors
    ///
    /// A sentence with the reason.
    pub fn parse(text: &str, port: u16, delimiter: u8) -> Result<Self, String> {
        let after_tls = text.strip_prefix(PLAIN);
        let (tenant, endpoint) = match split_tag(after_tls.unwrap_or(text)) {
            None => (None, after_tls.unwrap_or(text)),
            Some((tag, endpoint)) => {
                check_tenant_name(tag, delimiter).map_err(|why| format!("-l: the tag in {text:?}: {why}"))?;
                if tag == DEFAULT_TENANT {
                    return Err(format!("-l: the tag in {text:?}: clients of this tenant have all keys; leave it out"));
                }
                (Some(tag.to_owned()), endpoint)
            }
        };
        // The prefixes may be in either order.
        let after_tag = endpoint.strip_prefix(PLAIN);
        let is_plain = after_tls.is_some() || after_tag.is_some();
        let endpoint = Endpoint::Tcp(address("-l", after_tag.unwrap_or(endpoint), port)?);
        Ok(Self { tenant, is_plain, endpoint })
    }
}

/// Splits `tag_NAME_:address` or `tag[NAME]:address` into name and address.
fn split_tag(text: &str) -> Option<(&str, &str)> {
    let old = text.strip_prefix("tag_").and_then(|text| text.split_once("_:"));
    old.or_else(|| text.strip_prefix("tag[").and_then(|text| text.split_once("]:")))
}

/// Converts `host`, `host:port`, `[v6]`, `[v6]:port` or plain `v6` to `host:port`. `flag` is named
/// in errors.
pub fn address(flag: &str, text: &str, port: u16) -> Result<String, String> {
    let is_v6 = |host: &str| host.parse::<std::net::Ipv6Addr>().is_ok();
    let without_zone = text.split_once('%').map_or(text, |(host, _)| host);
    let (host, own_port) = if is_v6(without_zone) {
        (text, None)
    } else if let Some((host, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        let own_port = rest.strip_prefix(':');
        if own_port.is_none() && !rest.is_empty() {
            return Err(format!("{flag}: {rest:?} in {text:?} is not a port"));
        }
        (host, own_port)
    } else {
        match text.split_once(':') {
            Some((host, own_port)) => (host, Some(own_port)),
            None => (text, None),
        }
    };
    let port = match own_port {
        None => port,
        Some(own_port) => own_port.parse().map_err(|_| format!("{flag}: {own_port:?} in {text:?} is not a port"))?,
    };
    if host.is_empty() {
        return Err(format!("{flag}: {text:?} has no address"));
    }
    // A zone is resolved by the system, which takes no brackets.
    Ok(if is_v6(host) { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_are_read() {
        for (text, tenant, endpoint) in [
            ("127.0.0.1", None, "127.0.0.1:11211"),
            ("tag_shop_:127.0.0.1:7", Some("shop"), "127.0.0.1:7"),
            ("tag[shop]:[::1]:7", Some("shop"), "[::1]:7"),
            ("[fe80::1%eth0]:7", None, "fe80::1%eth0:7"),
            ("fe80::1%eth0", None, "fe80::1%eth0:11211"),
            ("tag_my_shop_:localhost", Some("my_shop"), "localhost:11211"),
            ("*", None, "*:11211"),
            ("tagged.example", None, "tagged.example:11211"),
        ] {
            let listen = ListenAddress::parse(text, 11211, b':').unwrap();
            assert_eq!(
                listen,
                ListenAddress {
                    tenant: tenant.map(Into::into),
                    is_plain: false,
                    endpoint: Endpoint::Tcp(endpoint.into())
                },
                "{text}"
            );
        }
        for text in ["notls:127.0.0.1:7", "notls:tag_a_:127.0.0.1:7", "tag_a_:notls:127.0.0.1:7"] {
            let listen = ListenAddress::parse(text, 11211, b':').unwrap();
            assert_eq!((listen.is_plain, listen.endpoint), (true, Endpoint::Tcp("127.0.0.1:7".into())), "{text}");
            assert_eq!(listen.tenant.as_deref(), text.contains("tag").then_some("a"));
        }
        for text in [
            "tag_default_:localhost",
            "tag__:localhost",
            "tag[a:b]:localhost",
            "tag_a_:localhost:x",
            "[::1]7",
            "[]",
            "",
        ] {
            assert!(ListenAddress::parse(text, 1, b':').unwrap_err().starts_with("-l: "), "{text}");
        }
    }
}
