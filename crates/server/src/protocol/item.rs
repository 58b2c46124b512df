//! memcached's constants for items: the longest key, the slab class, and the size that `-I` bounds.
//!
//! The size of an item is computed as memcached does, also where this server needs fewer bytes, so
//! that `-I` refuses the same values.
//!
//! A change must ensure that `-I` refuses the values that memcached refuses.

/// memcached's limit, which some clients check themselves.
#[doc(alias = "KEY_MAX_LENGTH")]
pub const KEY_BYTES_MAX: usize = 250;

/// Maximum length of a stored key: a key may have a tenant's name and the delimiter in front, which
/// are together not longer than a key.
pub const STORED_KEY_BYTES_MAX: usize = 2 * KEY_BYTES_MAX;

/// The only slab class, in replies that need one: this server has no slabs.
pub const SLAB_CLASS: u32 = 1;

/// memcached's largest slab class.
#[doc(alias = "MAX_NUMBER_OF_SLAB_CLASSES")]
pub const CLASS_MAX: u32 = 63;

/// The overhead that memcached adds to an item before it compares the size with `-I`: header, CAS
/// number, and the key's terminating NUL.
const ITEM_BYTES: usize = 48 + 8 + 1;

/// Returns the size of an item by memcached's rules: the size that `-I` bounds.
#[doc(alias = "item_size_ok")]
pub fn item_bytes(key: &[u8], flags: u32, length: usize) -> usize {
    let flags_bytes = if flags == 0 { 0 } else { 4 };
    // 2: memcached stores the CR LF after the bytes.
    ITEM_BYTES + key.len() + flags_bytes + length + 2
}

/// Returns whether a reply that is a line shows `key` in base64: the key of a value that was stored
/// so, and one that would be more than one word, or span more than one line.
pub fn is_shown_in_base64(key: &[u8], binary: bool) -> bool {
    binary || key.iter().any(|byte| matches!(byte, b' ' | b'\n' | 0))
}
