//! Items as memcached's clients know them: the longest key, the class, and the size that `-I`
//! bounds.

/// memcached's limit, and that of the clients which check it.
#[doc(alias = "KEY_MAX_LENGTH")]
pub const KEY_BYTES_MAX: usize = 250;

/// The one slab class, where memcached's clients ask for a class: there are none here.
pub const SLAB_CLASS: u32 = 1;

/// What memcached adds to an item before it compares it with its largest: header, unique number,
/// and the key's end.
const ITEM_BYTES: usize = 48 + 8 + 1;

/// How large memcached would call an item: what `-I` bounds.
#[doc(alias = "item_size_ok")]
pub fn item_bytes(key: &[u8], flags: u32, length: usize) -> usize {
    let flags_bytes = if flags == 0 { 0 } else { 4 };
    ITEM_BYTES + key.len() + flags_bytes + length + 2
}
