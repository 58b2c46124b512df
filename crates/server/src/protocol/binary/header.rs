//! The header of requests and of replies: 24 bytes, numbers in network byte order.
//!
//! | bytes | request | reply |
//! |---|---|---|
//! | 0 | 0x80 | 0x81 |
//! | 1 | opcode | the same |
//! | 2..4 | length of the key | length of the key |
//! | 4 | length of the extras | length of the extras |
//! | 5 | data type, not used | 0 |
//! | 6..8 | not used | status |
//! | 8..12 | length of extras, key and value | length of extras, key and value |
//! | 12..16 | opaque | the same |
//! | 16..24 | CAS number | CAS number |
//!
//! A change must ensure that a reply repeats the opcode and the opaque of its request.

use super::status::Status;

/// The first byte of a request. No text command begins with it.
pub const REQUEST_MAGIC: u8 = 0x80;
const REPLY_MAGIC: u8 = 0x81;

/// The length of a header.
pub const HEADER_BYTES: usize = 24;

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    pub opcode: u8,
    pub key_length: usize,
    pub extras_length: usize,
    /// The length of extras, key and value together.
    pub body_length: usize,
    pub opaque: [u8; 4],
    /// The CAS number that the value must have; 0: any.
    pub unique: u64,
}

impl RequestHeader {
    /// Parses the header of a request; `None` if these bytes begin no request.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let &[magic, opcode, k0, k1, extras, _, _, _, b0, b1, b2, b3, o0, o1, o2, o3, unique @ ..] = bytes;
        (magic == REQUEST_MAGIC).then(|| Self {
            opcode,
            key_length: u16::from_be_bytes([k0, k1]).into(),
            extras_length: extras.into(),
            body_length: u32::from_be_bytes([b0, b1, b2, b3]) as usize,
            opaque: [o0, o1, o2, o3],
            unique: u64::from_be_bytes(unique),
        })
    }

    /// Returns the length of the value; `None` if extras and key are longer than the body.
    pub fn value_length(&self) -> Option<usize> {
        self.body_length.checked_sub(self.extras_length + self.key_length)
    }
}

/// The parts of a request that its reply needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    pub opcode: u8,
    pub opaque: [u8; 4],
    /// Whether the usual outcome gets no reply: success, or for a read that nothing was found.
    pub is_quiet: bool,
}

/// The lengths of the parts of a reply.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lengths {
    pub extras: usize,
    pub key: usize,
    pub value: usize,
}

impl ReplyTo {
    /// Returns the header of a reply. `lengths` are those of the server's own texts, of a key or a
    /// value, so that each fits into its field.
    pub fn header(self, status: Status, lengths: Lengths, unique: u64) -> [u8; HEADER_BYTES] {
        let Lengths { extras, key, value } = lengths;
        let mut bytes = [0; HEADER_BYTES];
        (bytes[0], bytes[1]) = (REPLY_MAGIC, self.opcode);
        bytes[2..4].copy_from_slice(&(key as u16).to_be_bytes());
        bytes[4] = extras as u8;
        bytes[6..8].copy_from_slice(&status.code().to_be_bytes());
        bytes[8..12].copy_from_slice(&((extras + key + value) as u32).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.opaque);
        bytes[16..].copy_from_slice(&unique.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_its_place() {
        let mut bytes = *b"\x80\x01\x00\x03\x08\0\0\0\0\0\0\x10opaq\0\0\0\0\0\0\0\x09";
        let header = RequestHeader::parse(&bytes).unwrap();
        assert_eq!((header.opcode, header.key_length, header.extras_length), (1, 3, 8));
        assert_eq!((header.value_length(), &header.opaque, header.unique), (Some(5), b"opaq", 9));
        bytes[0] = 0x81;
        assert_eq!(RequestHeader::parse(&bytes), None);
        let short = RequestHeader { body_length: 10, ..header };
        assert_eq!(short.value_length(), None);
        let to = ReplyTo { opcode: 0x0c, opaque: *b"opaq", is_quiet: false };
        let reply = to.header(Status::NotFound, Lengths { extras: 4, key: 258, value: 65_536 }, u64::MAX - 1);
        assert_eq!(reply, *b"\x81\x0c\x01\x02\x04\0\0\x01\0\x01\x01\x06opaq\xff\xff\xff\xff\xff\xff\xff\xfe");
    }
}
