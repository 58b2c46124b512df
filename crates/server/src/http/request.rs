//! Parses the head of an HTTP/1 request: the request line and the `Host` header. Pure, and bounded.
//!
//! A minimal parser instead of a dependency: one request per connection, no body, no keep-alive.
//! Every length is bounded, because anyone who reaches the port may send anything.
//!
//! A change must ensure that every length stays bounded, and that `is_by_address` is false for each
//! host name but `localhost`: a page of another site could send the name (DNS rebinding).

use thiserror::Error;

/// Maximum length of a head.
pub const HEAD_BYTES_MAX: usize = 8 * 1024;

/// A parsed request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    /// The path without its query.
    pub path: String,
    /// The `Host` header without the port; `None` if there is none.
    pub host: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    #[error("the request's head is longer than {HEAD_BYTES_MAX} bytes")]
    TooLong,
    #[error("not an HTTP/1 request: it begins like GET /metrics HTTP/1.1")]
    Malformed,
    #[error("only GET and HEAD are answered")]
    Method,
}

impl RequestError {
    pub const fn status(self) -> &'static str {
        match self {
            Self::TooLong => "431 Request Header Fields Too Large",
            Self::Malformed => "400 Bad Request",
            Self::Method => "405 Method Not Allowed",
        }
    }
}

/// Parses `head`; `None` while the head is incomplete and may still become valid.
pub fn parse(head: &[u8]) -> Option<Result<Request, RequestError>> {
    // An empty line ends the head; a first line that is not HTTP is refused as soon as it is
    // complete.
    let end = head.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    if end.map_or(head.len(), |end| end + 4) > HEAD_BYTES_MAX {
        return Some(Err(RequestError::TooLong));
    }
    match head.split(|byte| *byte == b'\n').next() {
        Some(line) if line.len() < head.len() => match first_line(line) {
            Ok(request) => end.map(|end| Ok(Request { host: host(&head[..end]), ..request })),
            Err(error) => Some(Err(error)),
        },
        _ => None,
    }
}

fn first_line(line: &[u8]) -> Result<Request, RequestError> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = std::str::from_utf8(line).map_err(|_| RequestError::Malformed)?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(RequestError::Malformed);
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(RequestError::Malformed);
    }
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        _ => return Err(RequestError::Method),
    };
    let path = target.split(['?', '#']).next().unwrap_or(target).to_owned();
    Ok(Request { method, path, host: None })
}

/// Returns the value of the `Host` header, without the port. Bytes that are not UTF-8 are replaced:
/// a script may send them in any other header, and the host must be found all the same.
fn host(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let (_, value) = fields.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("host"))?;
    let value = value.trim();
    // A colon before a `]` belongs to an IPv6 address, not to a port.
    let port = value.rfind(':').filter(|at| !value[*at..].contains(']'));
    Some(value[..port.unwrap_or(value.len())].to_owned())
}

impl Request {
    /// Returns whether the `Host` header is an address or `localhost`, or absent. Then the request
    /// does not come from another site's page by DNS rebinding: a site can let its own name resolve
    /// to this server's address, so that its visitors' browsers may read the responses, but the
    /// browsers then send that name as the host.
    pub fn is_by_address(&self) -> bool {
        self.host.as_deref().is_none_or(|host| {
            let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            host.eq_ignore_ascii_case("localhost") || address.parse::<std::net::IpAddr>().is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_parsed_from_its_first_line() {
        for (head, path, host) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "/metrics", Some("x")),
            ("GET /metrics?a=b HTTP/1.0\r\n\r\n", "/metrics", None),
            ("GET / HTTP/1.1\r\nhost:[::1]:80\r\n\r\nbody", "/", Some("[::1]")),
        ] {
            let request = Request { method: Method::Get, path: path.to_owned(), host: host.map(Into::into) };
            assert_eq!(parse(head.as_bytes()), Some(Ok(request)), "{head:?}");
            for end in 0..head.find("\r\n\r\n").unwrap() + 4 {
                assert_eq!(parse(&head.as_bytes()[..end]), None, "{:?} is not complete", &head[..end]);
            }
        }
        assert_eq!(parse(b"HEAD / HTTP/1.1\r\n\r\n").unwrap().unwrap().method, Method::Head);
    }

    #[test]
    fn host_names_are_distinguished_from_addresses() {
        for (host, by_address) in [
            ("127.0.0.1:9150", true),
            ("[::1]:9150", true),
            ("[::1]", true),
            ("LocalHost:1", true),
            ("attacker.example", false),
            ("attacker.example:9150", false),
            ("127.0.0.1.attacker.example", false),
            ("localhost.attacker.example:1", false),
            ("", false),
        ] {
            let head = format!("GET / HTTP/1.1\r\nAccept: */*\r\nHost: {host}\r\n\r\n");
            assert_eq!(parse(head.as_bytes()).unwrap().unwrap().is_by_address(), by_address, "{host:?}");
        }
        assert!(parse(b"GET / HTTP/1.0\r\n\r\n").unwrap().unwrap().is_by_address());
        for (head, by_address) in [
            (&b"GET / HTTP/1.1\r\nX: \xff\r\nHost: attacker.example\r\n\r\n"[..], false),
            (b"GET / HTTP/1.1\r\nHost: attacker.example\r\nX: \xff\r\n\r\n", false),
            (b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", false),
            (b"GET / HTTP/1.1\r\nX: \xff\r\nHost: 127.0.0.1\r\n\r\n", true),
        ] {
            let request = parse(head).unwrap().unwrap();
            assert_eq!(request.is_by_address(), by_address, "{:?}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn text_that_is_not_http_is_refused_early() {
        for (head, error) in [
            (&b"get a\r\n"[..], RequestError::Malformed),
            (b"\r\n", RequestError::Malformed),
            (b"GET /\xff HTTP/1.1\r\n", RequestError::Malformed),
            (b"GET metrics HTTP/1.1\r\n", RequestError::Malformed),
            (b"GET / HTTP/2\r\n", RequestError::Malformed),
            (b"GET  / HTTP/1.1\r\n", RequestError::Malformed),
            (b"POST /metrics HTTP/1.1\r\n", RequestError::Method),
            (&[b'a'; HEAD_BYTES_MAX + 1], RequestError::TooLong),
        ] {
            assert_eq!(parse(head), Some(Err(error)), "{:?}", String::from_utf8_lossy(head));
        }
        let long = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'x'; HEAD_BYTES_MAX], b"\r\n\r\n"].concat();
        assert_eq!(parse(&long), Some(Err(RequestError::TooLong)));
    }
}
