//! Namespaces: the keys that a connection reaches.
//!
//! A connection that belongs to a tenant, by the listener it came through or the name it gave, sees
//! that tenant's keys and no others, and leaves the prefix out: its `cart` is everybody else's
//! `shop:cart`. So both ways to one tenant lead to the same values and the same limits, and a
//! tenant shut in its namespace reaches nobody else's.

use std::borrow::Cow;

use super::tenant::DEFAULT_TENANT;

/// The keys that a connection reaches: all, or those of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// The tenant's name and the delimiter; empty: all tenants.
    prefix: Box<[u8]>,
}

impl Namespace {
    /// Returns the namespace of `tenant`. The default tenant's has all keys, for it is the one that
    /// names others.
    pub fn of_tenant(tenant: &str, delimiter: u8) -> Self {
        if tenant == DEFAULT_TENANT {
            return Self::default();
        }
        Self { prefix: [tenant.as_bytes(), &[delimiter]].concat().into() }
    }

    /// Returns the key with the prefix of its tenant, as the store has it.
    pub fn qualify<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        match self.is_restricted() {
            true => [&self.prefix, key].concat().into(),
            false => key.into(),
        }
    }

    /// Returns whether it is one tenant's: commands that concern all tenants are refused there.
    pub fn is_restricted(&self) -> bool {
        !self.prefix.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_keys_have_its_prefix() {
        let shop = Namespace::of_tenant("shop", b':');
        assert_eq!(&*shop.qualify(b"cart"), b"shop:cart");
        assert_eq!(&*shop.qualify(b"other:cart"), b"shop:other:cart", "nothing leads out of a namespace");
        assert!(shop.is_restricted());
        assert_eq!(&*Namespace::of_tenant(DEFAULT_TENANT, b':').qualify(b"shop:cart"), b"shop:cart");
    }
}
