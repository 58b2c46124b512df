//! memcached's constants for items: the longest key, the slab class, and the size that `-I` bounds.

/// memcached's limit, which some clients check themselves.
#[doc(alias = "KEY_MAX_LENGTH")]
pub const KEY_BYTES_MAX: usize = 250;

/// The only slab class, in replies that need one: this server has no slabs.
pub const SLAB_CLASS: u32 = 1;

/// The overhead that memcached adds to an item before it compares the size with `-I`: header, CAS
/// number, and the key's terminating NUL.
const ITEM_BYTES: usize = 48 + 8 + 1;

/// Returns the size of an item by memcached's rules: the size that `-I` bounds.
#[doc(alias = "item_size_ok")]
pub fn item_bytes(key: &[u8], flags: u32, length: usize) -> usize {
    let flags_bytes = if flags == 0 { 0 } else { 4 };
    ITEM_BYTES + key.len() + flags_bytes + length + 2
}
