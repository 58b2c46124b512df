//! Limits of one cache: a group of the cache's own, which ends with the cache.
//!
//! The group is a child of the group that the builder was given, or of the root. Its name is
//! `cache:` and the cache's name; `cache:NAME#2`, and so on, where another group has that name.
//!
//! A cache without limits has no such group. The order of the checks determines which error a
//! builder reports.
//!
//! A change must ensure that the group ends with the cache.

use lowwater_lru_core::{ByteSize, Memcg, MemcgError};

use super::error::CacheBuildError;
use crate::Runtime;

/// The limits that a builder was given for the cache.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CacheLimits {
    pub(super) min: Option<ByteSize>,
    pub(super) low: Option<ByteSize>,
    pub(super) high: Option<ByteSize>,
    pub(super) max: Option<ByteSize>,
}

impl CacheLimits {
    /// The limits that are set, with their names, from the lowest to the highest.
    fn set(&self) -> impl Iterator<Item = (&'static str, ByteSize)> {
        let all = [("min", self.min), ("low", self.low), ("high", self.high), ("max", self.max)];
        all.into_iter().filter_map(|(name, limit)| Some((name, limit?)))
    }

    /// Makes the group of a cache of this name below `parent`, with these limits. The caller ends
    /// it with [`Runtime::end_own_group`]. None without limits.
    pub(super) fn make_group(
        &self,
        runtime: &Runtime,
        parent: &Memcg,
        cache: &str,
    ) -> Result<Option<Memcg>, CacheBuildError> {
        if self.set().next().is_none() {
            return Ok(None);
        }
        self.check(runtime, parent)?;
        let group =
            create_unique(parent, cache).map_err(|error| CacheBuildError::OwnGroup { parent: parent.path(), error })?;
        group.set_min(self.min.unwrap_or_default());
        group.set_low(self.low.unwrap_or_default());
        group.set_high(self.high.unwrap_or(ByteSize::MAX));
        group.set_max(self.max.unwrap_or(ByteSize::MAX));
        Ok(Some(group))
    }

    /// Checks that the limits are positive, in order, and not above the `max` of any group above:
    /// for the root, the configured budget.
    fn check(&self, runtime: &Runtime, parent: &Memcg) -> Result<(), CacheBuildError> {
        if let Some((limit, _)) = self.set().find(|(_, bytes)| *bytes == ByteSize::ZERO) {
            return Err(CacheBuildError::ZeroLimit { limit });
        }
        let mut pairs = self.set().zip(self.set().skip(1));
        if let Some(((lower, lower_bytes), (upper, upper_bytes))) = pairs.find(|(lower, upper)| lower.1 > upper.1) {
            return Err(CacheBuildError::LimitsOutOfOrder { lower, lower_bytes, upper, upper_bytes });
        }
        let mut above = Some(parent);
        while let Some(group) = above {
            let max = if group.parent().is_none() { runtime.configured_budget() } else { group.max() };
            if let Some((limit, bytes)) = self.set().find(|(_, bytes)| *bytes > max) {
                return Err(CacheBuildError::LimitTooLarge { limit, bytes, group: group.path(), max });
            }
            above = group.parent();
        }
        Ok(())
    }
}

/// Makes a group for a cache of this name, under a free number. O(log n) for n groups of the name.
fn create_unique(parent: &Memcg, cache: &str) -> Result<Memcg, MemcgError> {
    let is_taken = |number| parent.child(&group_name(cache, number)).is_some();
    loop {
        match parent.create(&group_name(cache, free_number(is_taken))) {
            // Another thread has made a group of this name after the search: search again.
            Err(MemcgError::NameTaken) => {}
            result => return result,
        }
    }
}

/// Returns a free number: the lowest one, unless caches with lower numbers have ended. O(log n) for
/// n numbers that are taken; O(n) if all powers of two are.
fn free_number(is_taken: impl Fn(u64) -> bool) -> u64 {
    // `taken` is 0, which no group has, or the number of a group. `group_name` leaves out number 1.
    let (mut taken, mut free) = (0, 1_u64);
    while is_taken(free) {
        taken = free;
        free = match free.checked_mul(2) {
            Some(next) => next,
            // Not by caches: the groups were made under these names.
            None => return (1..u64::MAX).find(|number| !is_taken(*number)).unwrap_or(u64::MAX),
        };
    }
    while free - taken > 1 {
        let middle = taken + (free - taken) / 2;
        if is_taken(middle) {
            taken = middle;
        } else {
            free = middle;
        }
    }
    free
}

/// The name of a cache's own group: `cache:`, the cache's name with `_` for `/` and cut to fit, and
/// the number unless it is 1.
fn group_name(cache: &str, number: u64) -> String {
    let suffix = if number == 1 { String::new() } else { format!("#{number}") };
    let name = format!("cache:{}", prefix(cache, Memcg::NAME_MAX));
    prefix(&name, Memcg::NAME_MAX - suffix.len()).replace('/', "_") + &suffix
}

/// Returns the longest prefix of `text` that has at most `bytes_max` bytes and ends between two
/// characters.
fn prefix(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rfind(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}
