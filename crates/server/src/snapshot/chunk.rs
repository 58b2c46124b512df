//! The file of a snapshot: a header, chunks of values, and an empty chunk at the end.
//!
//! ```text
//!   header   magic, 8 bytes | time of the save, in milliseconds since 1970, 8 bytes | last CAS number, 8 bytes
//!            | milliseconds from the save to a delayed flush, or `NO_FLUSH`, 8 bytes
//!            | delimiter of tenants' names (`-D`), 8 bytes
//!   chunk    length, 4 bytes | checksum, 8 bytes | that many bytes of values
//! ```
//!
//! Numbers are little-endian. The checksum is that of the chunk, of all chunks before it and of the
//! header's numbers, so neither a damaged nor a missing chunk goes unnoticed.
//!
//! A change of the layout needs another magic number: a file of another version must be refused,
//! not misread. A file of version 3 is read as well: its header has no delimiter.
//!
//! A change must ensure that reading a damaged file allocates memory in proportion to the bytes
//! that the file contains, whatever lengths it states.

use std::io::{self, Read, Write};
use std::time::Duration;

const MAGIC: &[u8; 8] = b"lowwate4";
/// The magic number of the version without a delimiter in the header.
const MAGIC_WITHOUT_DELIMITER: &[u8; 8] = b"lowwate3";
/// The bytes of the magic number that all versions have in common; the version follows.
const MAGIC_OF_ALL: &[u8; 7] = b"lowwate";
/// In the header: the delimiter is not known.
const UNKNOWN: u64 = u64::MAX;
/// In the header: no flush is delayed.
const NO_FLUSH: u64 = u64::MAX;
/// A chunk ends with the value that makes it this long.
const CHUNK_BYTES: usize = 1 << 20;
/// Longer chunks are not read: a chunk of nearly `CHUNK_BYTES` may end with the largest value
/// (`-I`), of 1 GiB, and its key and numbers.
const CHUNK_BYTES_MAX: usize = (1 << 30) + (2 << 20);
/// Bytes are read in steps of this size, so that a damaged length allocates little more memory than
/// the file has bytes.
const READ_BYTES: usize = 1 << 20;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The numbers of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The time of the save, in milliseconds since 1970.
    pub saved_millis: u64,
    /// The last serial number that the saving server has given out.
    pub last_serial: u64,
    /// The time from the save until a delayed flush, in whole milliseconds.
    pub flush_left: Option<Duration>,
    /// The saving server's delimiter: it ends the name of its tenant in a key. `None` in a file
    /// that does not have it.
    pub delimiter: Option<u8>,
}

/// Writes chunks.
#[derive(Debug)]
pub struct ChunkWriter<W> {
    to: W,
    /// The values of the next chunk.
    chunk: Vec<u8>,
    sum: Checksum,
}

/// Reads chunks.
#[derive(Debug)]
pub struct ChunkReader<R> {
    from: R,
    header: Header,
    chunk: Vec<u8>,
    sum: Checksum,
}

/// A checksum of all bytes so far, and of the length of each part: the step of FNV-1a for eight
/// bytes at a time, with a rotation, so that high bits reach low ones.
#[derive(Clone, Copy, Debug)]
struct Checksum(u64);

/// The reason why a file is not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file has no magic number of a version that is read: another program or version may
    /// need it.
    #[error("{0}")]
    Foreign(&'static str),
    /// The file cannot be read, before its magic number is known.
    #[error(transparent)]
    Unreadable(io::Error),
    /// The names of tenants in its keys end with another delimiter than this server's: a key of one
    /// tenant would belong to another.
    #[error("it was saved with -D {}, and can only be loaded with it", char::from(*.0))]
    OtherDelimiter(u8),
    /// The file is one of a version that is read, and is damaged or cannot be read further.
    #[error(transparent)]
    Damaged(#[from] io::Error),
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        let mut step = |word: u64| self.0 = (self.0 ^ word).wrapping_mul(FNV_PRIME).rotate_left(23);
        let mut rest = bytes;
        while let Some((word, after)) = rest.split_first_chunk() {
            step(u64::from_le_bytes(*word));
            rest = after;
        }
        rest.iter().for_each(|byte| step(u64::from(*byte) | 1 << 63));
        step(bytes.len() as u64);
    }
}

/// Returns the error of a file in which `what` is damaged.
pub fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} is damaged"))
}

impl<W: Write> ChunkWriter<W> {
    /// Begins a file with this header.
    pub fn new(mut to: W, Header { saved_millis, last_serial, flush_left, delimiter }: Header) -> io::Result<Self> {
        let mut sum = Checksum(FNV_OFFSET);
        let flush_millis = flush_left.map_or(NO_FLUSH, |left| left.as_millis() as u64);
        to.write_all(MAGIC)?;
        for number in [saved_millis, last_serial, flush_millis, delimiter.map_or(UNKNOWN, u64::from)] {
            to.write_all(&number.to_le_bytes())?;
            sum.add(&number.to_le_bytes());
        }
        Ok(Self { to, chunk: Vec::new(), sum })
    }

    /// Returns the buffer to which the next value is to be added.
    pub fn item(&mut self) -> &mut Vec<u8> {
        &mut self.chunk
    }

    /// Ends a value: writes the chunk, if it is long enough.
    pub fn end_item(&mut self) -> io::Result<()> {
        if self.chunk.len() >= CHUNK_BYTES {
            self.write_chunk()?;
        }
        Ok(())
    }

    /// Writes the last chunk and the end.
    pub fn finish(mut self) -> io::Result<()> {
        if !self.chunk.is_empty() {
            self.write_chunk()?;
        }
        self.write_chunk()?;
        self.to.flush()
    }

    fn write_chunk(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.chunk.len()).map_err(|_| damaged("a value that is too long"))?;
        self.sum.add(&self.chunk);
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(&self.sum.0.to_le_bytes())?;
        self.to.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }
}

impl<R: Read> ChunkReader<R> {
    /// Reads the header.
    pub fn new(mut from: R) -> Result<Self, ReadError> {
        let mut magic = [0; 8];
        match from.read_exact(&mut magic) {
            Ok(()) if [MAGIC, MAGIC_WITHOUT_DELIMITER].contains(&&magic) => {}
            Ok(()) if magic.starts_with(MAGIC_OF_ALL) => {
                return Err(ReadError::Foreign("another version of the server has saved it"));
            }
            Err(why) if why.kind() != io::ErrorKind::UnexpectedEof => return Err(ReadError::Unreadable(why)),
            Ok(()) | Err(_) => return Err(ReadError::Foreign("it is no file of saved values")),
        }
        let mut sum = Checksum(FNV_OFFSET);
        let mut number = || -> io::Result<u64> {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes)?;
            sum.add(&bytes);
            Ok(u64::from_le_bytes(bytes))
        };
        let (saved_millis, last_serial, flush_millis) = (number()?, number()?, number()?);
        let flush_left = (flush_millis != NO_FLUSH).then(|| Duration::from_millis(flush_millis));
        let delimiter = if magic == *MAGIC { number()? } else { UNKNOWN };
        let delimiter = match delimiter {
            UNKNOWN => None,
            known => Some(u8::try_from(known).map_err(|_| damaged("the delimiter"))?),
        };
        let header = Header { saved_millis, last_serial, flush_left, delimiter };
        Ok(Self { from, header, chunk: Vec::new(), sum })
    }

    /// Returns the header. To be used after the first chunk has been read, whose checksum covers
    /// it.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Returns the next chunk; `None` after the last one.
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let (mut length, mut sum) = ([0; 4], [0; 8]);
        self.from.read_exact(&mut length)?;
        self.from.read_exact(&mut sum)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > CHUNK_BYTES_MAX {
            return Err(damaged("the length of a chunk"));
        }
        self.chunk.clear();
        while self.chunk.len() < length {
            let before = self.chunk.len();
            self.chunk.resize((before + READ_BYTES).min(length), 0);
            self.from.read_exact(&mut self.chunk[before..])?;
        }
        self.sum.add(&self.chunk);
        if self.sum.0 != u64::from_le_bytes(sum) {
            return Err(damaged("a chunk"));
        }
        Ok((length > 0).then_some(&self.chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        saved_millis: 77,
        last_serial: 88,
        flush_left: Some(Duration::from_millis(99)),
        delimiter: Some(b'/'),
    };

    fn file(items: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut chunks = ChunkWriter::new(&mut file, HEADER).unwrap();
        for item in items {
            chunks.item().extend_from_slice(item);
            chunks.end_item().unwrap();
        }
        chunks.finish().unwrap();
        file
    }

    fn read(file: &[u8]) -> Result<Vec<u8>, ReadError> {
        let mut chunks = ChunkReader::new(file)?;
        assert_eq!(chunks.header(), HEADER);
        let mut all = Vec::new();
        while let Some(chunk) = chunks.next()? {
            all.extend_from_slice(chunk);
        }
        Ok(all)
    }

    #[test]
    fn chunks_come_back() {
        assert_eq!(read(&file(&[])).unwrap(), b"");
        assert_eq!(read(&file(&[b"one", b"two"])).unwrap(), b"onetwo");
        let large = vec![7; CHUNK_BYTES + 1];
        let two = file(&[&large, b"rest"]);
        assert!(read(&two).unwrap() == [&large[..], b"rest"].concat());
        assert_eq!(two.len(), 40 + 3 * 12 + large.len() + 4);
    }

    #[test]
    fn a_file_without_a_delimiter_in_its_header_is_read() {
        let (mut file, mut sum) = (MAGIC_WITHOUT_DELIMITER.to_vec(), Checksum(FNV_OFFSET));
        for number in [77_u64, 88, 99] {
            file.extend(number.to_le_bytes());
            sum.add(&number.to_le_bytes());
        }
        ChunkWriter { to: &mut file, chunk: b"one".to_vec(), sum }.finish().unwrap();
        let mut chunks = ChunkReader::new(&file[..]).unwrap();
        assert_eq!(chunks.next().unwrap(), Some(&b"one"[..]));
        assert_eq!(chunks.header(), Header { delimiter: None, ..HEADER });
        assert_eq!(chunks.next().unwrap(), None);
    }

    #[test]
    fn damage_is_noticed() {
        let good = file(&[b"some bytes of a value", &vec![1; CHUNK_BYTES], b"more"]);
        for at in (0..60).chain([good.len() - 13, good.len() - 5]) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            // The header's numbers are a part of the checksum.
            let outcome = ChunkReader::new(&bad[..]).and_then(|mut chunks| {
                while chunks.next()?.is_some() {}
                Ok(())
            });
            // The first seven bytes are those of all versions, and a change of the eighth one makes
            // it another version.
            let is_damaged = matches!(outcome, Err(ReadError::Damaged(_)));
            assert!(outcome.is_err() && is_damaged == (at > 7), "byte {at}");
        }
        for length in (0..40).chain([good.len() - 12, good.len() - 1]) {
            assert!(read(&good[..length]).is_err(), "{length} bytes");
        }
        // A chunk is missing.
        let one = file(&[&vec![1; CHUNK_BYTES], b"more"]);
        let without = [&one[..40], &one[40 + 12 + CHUNK_BYTES..]].concat();
        assert!(read(&without).is_err());
    }
}
