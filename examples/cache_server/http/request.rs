//! The head of an HTTP/1 request, as far as it matters here: its first line. Pure, and bounded.

use thiserror::Error;

/// A head longer than this is refused.
pub const HEAD_BYTES_MAX: usize = 8 * 1024;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    /// Without a query.
    pub path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
}

/// What is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("the request's head is longer than {HEAD_BYTES_MAX} bytes")]
    TooLong,
    #[error("not an HTTP/1 request: it begins like GET /metrics HTTP/1.1")]
    Malformed,
    #[error("only GET and HEAD are answered")]
    Method,
}

impl Refused {
    pub const fn status(self) -> &'static str {
        match self {
            Self::TooLong => "431 Request Header Fields Too Large",
            Self::Malformed => "400 Bad Request",
            Self::Method => "405 Method Not Allowed",
        }
    }
}

/// The request whose head this is; none while the head is not complete and may still become so.
pub fn parse(head: &[u8]) -> Option<Result<Request, Refused>> {
    // An empty line ends the head; the first line is enough to refuse what is no HTTP at all.
    let end = head.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    if end.map_or(head.len(), |end| end + 4) > HEAD_BYTES_MAX {
        return Some(Err(Refused::TooLong));
    }
    match head.split(|byte| *byte == b'\n').next() {
        Some(line) if line.len() < head.len() => match first_line(line) {
            Ok(request) => end.map(|_| Ok(request)),
            Err(refused) => Some(Err(refused)),
        },
        _ => None,
    }
}

fn first_line(line: &[u8]) -> Result<Request, Refused> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = std::str::from_utf8(line).map_err(|_| Refused::Malformed)?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refused::Malformed);
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(Refused::Malformed);
    }
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        _ => return Err(Refused::Method),
    };
    let path = target.split(['?', '#']).next().unwrap_or(target).to_owned();
    Ok(Request { method, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_its_first_line() {
        for (head, path) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "/metrics"),
            ("GET /metrics?a=b HTTP/1.0\r\n\r\n", "/metrics"),
            ("GET / HTTP/1.1\r\n\r\nbody", "/"),
        ] {
            let request = Request { method: Method::Get, path: path.to_owned() };
            assert_eq!(parse(head.as_bytes()), Some(Ok(request)), "{head:?}");
            for end in 0..head.find("\r\n\r\n").unwrap() + 4 {
                assert_eq!(parse(&head.as_bytes()[..end]), None, "{:?} is not complete", &head[..end]);
            }
        }
        assert_eq!(parse(b"HEAD / HTTP/1.1\r\n\r\n").unwrap().unwrap().method, Method::Head);
    }

    #[test]
    fn what_is_no_request_is_refused_at_once() {
        for (head, refused) in [
            (&b"get a\r\n"[..], Refused::Malformed),
            (b"\r\n", Refused::Malformed),
            (b"GET /\xff HTTP/1.1\r\n", Refused::Malformed),
            (b"GET metrics HTTP/1.1\r\n", Refused::Malformed),
            (b"GET / HTTP/2\r\n", Refused::Malformed),
            (b"GET  / HTTP/1.1\r\n", Refused::Malformed),
            (b"POST /metrics HTTP/1.1\r\n", Refused::Method),
            (&[b'a'; HEAD_BYTES_MAX + 1], Refused::TooLong),
        ] {
            assert_eq!(parse(head), Some(Err(refused)), "{:?}", String::from_utf8_lossy(head));
        }
        let long = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'x'; HEAD_BYTES_MAX], b"\r\n\r\n"].concat();
        assert_eq!(parse(&long), Some(Err(Refused::TooLong)));
    }
}
