//! The refusal of memcached's binary protocol, which this server does not have: clients of that
//! protocol get its own error, "unknown command", instead of no answer.
//!
//! A client that gets the error can fall back or report it; one without an answer would hang.
//!
//! A change must ensure that the answer repeats the request's opcode and opaque.

/// The first byte of a binary request. No text command begins with it.
pub const REQUEST_MAGIC: u8 = 0x80;
/// The length of a request's header, and of a response's.
pub const HEADER_BYTES: usize = 24;

const RESPONSE_MAGIC: u8 = 0x81;
/// The status "unknown command".
const UNKNOWN_COMMAND: u16 = 0x0081;
const TEXT: &[u8] = b"Unknown command";

/// Returns the response that refuses the request with this header: with its opcode and its opaque,
/// by which the client finds the request.
pub fn refusal(header: &[u8; HEADER_BYTES]) -> Vec<u8> {
    let mut response = vec![RESPONSE_MAGIC, header[1]];
    // No key, no extras, and data type 0.
    response.extend([0; 4]);
    response.extend(UNKNOWN_COMMAND.to_be_bytes());
    response.extend((TEXT.len() as u32).to_be_bytes());
    response.extend(&header[12..16]);
    // No unique number of a value.
    response.extend([0; 8]);
    response.extend(TEXT);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_repeats_opcode_and_opaque() {
        let mut header = [0; HEADER_BYTES];
        (header[0], header[1]) = (REQUEST_MAGIC, 0x0a);
        header[12..16].copy_from_slice(b"opaq");
        let response = refusal(&header);
        assert_eq!(response[..HEADER_BYTES], *b"\x81\x0a\0\0\0\0\0\x81\0\0\0\x0fopaq\0\0\0\0\0\0\0\0");
        assert_eq!(response[HEADER_BYTES..], *b"Unknown command");
    }
}
