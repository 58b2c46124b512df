//! Percent-encoding of keys.
//!
//! Listings show keys in this form, so that a key of any bytes stays on its line.
//!
//! A change must ensure that no byte of a key can end the line.

/// Returns `key` as memcached prints it: letters, digits and `-._~` as they are, any other byte as
/// `%` and two hexadecimal digits.
pub fn uri_encoded(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
