//! The precondition of an insert on the current record of the key.
//!
//! It is checked under the lock of the record's segment. A change must ensure that a record that
//! was found before is recognized without the key's `Eq`, which may be inconsistent.

use std::hash::Hash;

use super::load::single_flight::InflightLoad;
use super::record::Record;

/// The precondition of an insert on the current record of the key.
pub(super) enum Expect<'g, K, V> {
    /// Any record, or none.
    Any,
    /// No record, or an expired one.
    Vacant,
    /// This record, and no other; and it has not expired.
    Same(&'g Record<K, V>),
    /// No record, or an expired one; and no call has stopped this load.
    Load(&'g InflightLoad<K, V>),
    /// The record that this load reloads; or no record, if that one was evicted or has expired.
    Reload(&'g InflightLoad<K, V>),
}

impl<K: Hash + Send + Sync + 'static, V: Send + Sync + 'static> Expect<'_, K, V> {
    /// Returns whether the value to be inserted is that of a load, which others may stop.
    #[inline]
    pub(super) fn is_load(&self) -> bool {
        matches!(self, Self::Load(_) | Self::Reload(_))
    }

    /// Returns whether the value to be inserted is that of a reload.
    pub(super) fn is_reload(&self) -> bool {
        matches!(self, Self::Reload(_))
    }

    /// Returns whether a record of the key's hash is taken for the key's record. The new key is on
    /// the left, as the sought one in `Core::find`.
    #[inline]
    pub(super) fn is_key_of(&self, there: &Record<K, V>, key: &K) -> bool
    where
        K: Eq,
    {
        match self {
            // Not by the key's `Eq`: if that is inconsistent, no record might ever be the expected
            // one.
            Self::Same(same) => std::ptr::eq(*same, there),
            _ => *key == there.key,
        }
    }

    /// Returns whether the precondition holds while `there` is the key's record, by
    /// [`is_key_of`](Self::is_key_of). `is_live`: there is a record, and it has not expired.
    #[inline]
    pub(super) fn allows(&self, there: Option<&Record<K, V>>, is_live: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Vacant => !is_live,
            Self::Same(_) => is_live,
            Self::Load(load) => load.allows(!is_live),
            Self::Reload(load) => load.allows(there.is_none_or(Record::is_reloading)),
        }
    }
}
