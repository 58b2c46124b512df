//! Namespaces: the keys that a connection can access.
//!
//! A connection that belongs to a tenant, by its listener or by its login, can access only that
//! tenant's keys, and omits the prefix: its `cart` is `shop:cart` for all other connections. So a
//! tenant has the same values and the same limits on its own connections and on those that send its
//! prefix.
//!
//! A change must ensure that a restricted connection cannot access another tenant's keys.

use std::borrow::Cow;

use crate::settings::limits::DEFAULT_TENANT;

/// The keys that a connection can access: all keys, or those of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// The tenant's name and the delimiter; empty for all tenants.
    prefix: Box<[u8]>,
}

impl Namespace {
    /// Returns the namespace of `tenant`. The default tenant's namespace contains all keys: its
    /// connections access other tenants by prefix.
    pub fn of_tenant(tenant: &str, delimiter: u8) -> Self {
        if tenant == DEFAULT_TENANT {
            return Self::default();
        }
        Self { prefix: [tenant.as_bytes(), &[delimiter]].concat().into() }
    }

    /// Returns the name of the tenant that the connections of this namespace belong to.
    pub fn tenant_name(&self) -> &[u8] {
        match self.prefix.split_last() {
            Some((_delimiter, name)) => name,
            None => DEFAULT_TENANT.as_bytes(),
        }
    }

    /// Returns the key with its tenant's prefix, as the store uses it.
    pub fn qualify<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        match self.is_restricted() {
            true => [&self.prefix, key].concat().into(),
            false => key.into(),
        }
    }

    /// Returns whether the namespace is restricted to one tenant: then commands that concern all
    /// tenants are refused.
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
        assert_eq!(&*shop.qualify(b"other:cart"), b"shop:other:cart", "no key is outside the namespace");
        assert!(shop.is_restricted());
        assert_eq!((shop.tenant_name(), Namespace::default().tenant_name()), (&b"shop"[..], &b"default"[..]));
        assert_eq!(&*Namespace::of_tenant(DEFAULT_TENANT, b':').qualify(b"shop:cart"), b"shop:cart");
    }
}
