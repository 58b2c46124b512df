//! The times with which a cache is to be built: how long its entries live, and when they are
//! reloaded.
//!
//! They depend on each other, so they are checked together, by [`Times::check`]; the builder's
//! methods set them.
//!
//! A change must ensure that each combination of times is an error or has a stated meaning.

use std::time::Duration;

use super::clock::Ttl;
use super::freshness::RefreshTimes;
use super::lifetime::ExpiryFn;
use crate::cache::error::CacheBuildError;

/// The times that were set.
pub(in crate::cache) struct Times<K, V> {
    pub(in crate::cache) time_to_live: Option<Duration>,
    pub(in crate::cache) time_to_idle: Option<Duration>,
    pub(in crate::cache) expiry: Option<Box<ExpiryFn<K, V>>>,
    pub(in crate::cache) refresh_ahead: Duration,
    pub(in crate::cache) stale_while_revalidate: Duration,
}

// Derived, it would require defaults of the keys and values.
impl<K, V> Default for Times<K, V> {
    fn default() -> Self {
        let (refresh_ahead, stale_while_revalidate) = (Duration::ZERO, Duration::ZERO);
        Self { time_to_live: None, time_to_idle: None, expiry: None, refresh_ahead, stale_while_revalidate }
    }
}

impl<K, V> Times<K, V> {
    /// Returns the time to live and the idle time, if both were set.
    pub(in crate::cache) fn both(&self) -> Option<(Duration, Duration)> {
        self.time_to_live.zip(self.time_to_idle)
    }

    /// Returns the time of an entry that has none of its own, and the times in which entries are
    /// reloaded.
    ///
    /// # Errors
    ///
    /// `refresh_ahead` is not shorter than the time to live.
    pub(in crate::cache) fn check(&self) -> Result<(Ttl, RefreshTimes), CacheBuildError> {
        let ttl = match (self.time_to_live, self.time_to_idle) {
            (None, None) => Ttl::Forever,
            (Some(time), None) => Ttl::Fixed(time),
            (None, Some(time)) => Ttl::Idle(time),
            (Some(_), Some(_)) => Ttl::Both,
        };
        let refresh_ahead = self.refresh_ahead;
        match self.time_to_live {
            Some(time_to_live) if !refresh_ahead.is_zero() && time_to_live <= refresh_ahead => {
                Err(CacheBuildError::RefreshTooEarly { refresh_ahead, time_to_live })
            }
            _ => Ok((ttl, RefreshTimes::new(refresh_ahead, self.stale_while_revalidate))),
        }
    }
}
