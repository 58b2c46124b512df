//! [`KeyOrder`]: values in the order of their keys, in one vector.
//!
//! For the caches of a runtime, of which there may be a hundred thousand: a `BTreeMap` would take
//! twice the memory for each, and a removal from a plain vector would move all that follow.
//!
//! A change must ensure that at most half of the places are empty, so that visits of all values in
//! their order are O(values).

/// Values in the order of their keys; a removal leaves an empty place, until half of the places are
/// empty.
pub(super) struct KeyOrder<T> {
    /// In the order of the keys.
    places: Vec<(u64, Option<T>)>,
    /// The number of values.
    len: usize,
}

impl<T> Default for KeyOrder<T> {
    fn default() -> Self {
        Self { places: Vec::new(), len: 0 }
    }
}

impl<T> KeyOrder<T> {
    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Inserts a value under a key that was never used here. O(1) amortized for the highest key;
    /// otherwise moves the values of higher keys.
    pub(super) fn insert(&mut self, key: u64, value: T) {
        let at = self.places.partition_point(|(there, _)| *there < key);
        self.places.insert(at, (key, Some(value)));
        self.len += 1;
    }

    /// Removes a value. O(log values) amortized.
    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        let at = self.places.binary_search_by_key(&key, |(there, _)| *there).ok()?;
        let value = self.places[at].1.take()?;
        self.len -= 1;
        if self.len < self.places.len() / 2 {
            self.places.retain(|(_, value)| value.is_some());
            self.places.shrink_to(2 * self.len);
        }
        Some(value)
    }

    /// Returns the value under a key. O(log values).
    pub(super) fn get(&self, key: u64) -> Option<&T> {
        let at = self.places.binary_search_by_key(&key, |(there, _)| *there).ok()?;
        self.places[at].1.as_ref()
    }

    /// Returns the values with their keys, in order, from the first key that is at least `key`.
    pub(super) fn from(&self, key: u64) -> impl Iterator<Item = (u64, &T)> {
        let at = self.places.partition_point(|(there, _)| *there < key);
        self.places[at..].iter().filter_map(|(key, value)| Some((*key, value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Call {
        /// Inserts under the key that follows the highest by this.
        Insert(u64),
        /// Inserts under this key, if it was never used.
        InsertAt(u64),
        /// Removes the value at this index of the map.
        Remove(usize),
        From(u64),
    }

    fn call() -> impl Strategy<Value = Call> {
        prop_oneof![
            3 => (1..3_u64).prop_map(Call::Insert),
            1 => (0..60_u64).prop_map(Call::InsertAt),
            3 => (0..40_usize).prop_map(Call::Remove),
            1 => (0..60_u64).prop_map(Call::From),
        ]
    }

    proptest! {
        /// The twin is a `BTreeMap`.
        #[test]
        fn behaves_as_a_map(calls in proptest::collection::vec(call(), 0..200)) {
            let (mut order, mut map, mut used) = (KeyOrder::default(), BTreeMap::new(), BTreeMap::new());
            for call in calls {
                match call {
                    Call::Insert(_) | Call::InsertAt(_) => {
                        let last = used.last_key_value().map_or(0, |(key, ())| *key);
                        let key = match call { Call::Insert(more) => last + more, Call::InsertAt(key) => key, _ => 0 };
                        if used.insert(key, ()).is_none() {
                            order.insert(key, key);
                            map.insert(key, key);
                        }
                    }
                    Call::Remove(at) => {
                        let key = map.keys().nth(at).copied().unwrap_or(u64::MAX);
                        prop_assert_eq!(order.remove(key), map.remove(&key));
                        prop_assert_eq!(order.remove(key), None);
                    }
                    Call::From(key) => {
                        let ours = order.from(key).map(|(key, value)| (key, *value));
                        prop_assert!(ours.eq(map.range(key..).map(|(key, value)| (*key, *value))));
                        prop_assert_eq!(order.get(key), map.get(&key));
                    }
                }
                prop_assert_eq!(order.len(), map.len());
                prop_assert!(order.places.len() <= 2 * order.len() + 1);
            }
        }
    }
}
