//! Whose a connection is.
//!
//! A connection that belongs to a tenant, by the listener it came through or the name it gave, sees that tenant's keys and no others,
//! and leaves the prefix out: its `cart` is everybody else's `shop:cart`. So both ways to one tenant lead to the same values and the
//! same limits, and a tenant shut in its namespace reaches nobody else's.

use std::borrow::Cow;

use super::tenant::DEFAULT_TENANT;

/// What a connection may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// The tenant's name and the delimiter; empty: all tenants.
    prefix: Box<[u8]>,
}

impl Namespace {
    /// The keys of `tenant`. The default tenant's are all keys: it is the one that names others.
    pub fn of_tenant(tenant: &str, delimiter: u8) -> Self {
        if tenant == DEFAULT_TENANT {
            return Self::default();
        }
        Self { prefix: [tenant.as_bytes(), &[delimiter]].concat().into() }
    }

    /// What the store calls this key.
    pub fn qualify<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        match self.is_restricted() {
            true => [&self.prefix, key].concat().into(),
            false => key.into(),
        }
    }

    /// Whether it is one tenant's only: then what concerns all is not to be had.
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
