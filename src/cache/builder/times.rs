//! The builder's methods for the times of a cache's entries: when entries expire, are reloaded, and
//! are kept as stale.
//!
//! These methods are apart from the other options, since the times depend on each other only.
//!
//! A change must ensure that each method states how its time combines with the others.

use std::time::Duration;

#[cfg(doc)]
use super::Cache;
use super::CacheBuilder;
#[cfg(doc)]
use crate::cache::error::CacheBuildError;
use crate::cache::expiry::lifetime::{ExpiryEvent, Lifetime};

impl<K, V, W, S> CacheBuilder<K, V, W, S> {
    /// Sets the time to live of entries that have no time of their own; unlimited by default. With
    /// [`time_to_idle`](Self::time_to_idle), an entry expires by the time that ends first.
    ///
    /// Deadlines are rounded up: by less than 8 ms, or by less than a second for a time that
    /// exceeds 20 days. So an entry with a time of zero may be found for some milliseconds. An
    /// exception are entries that are inserted when no entry of the cache has had a deadline for 24
    /// days: until the next sweep, their deadlines are rounded up by less than a second. A deadline
    /// more than 34 years after the start of the process's first clock, or after the 0 of a manual
    /// clock, counts as none.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.choices.times.time_to_live = Some(time);
        self
    }

    /// Sets the idle time of entries that have no time of their own. An unused entry stays for at
    /// least this time after its last use, and for at most an eighth longer, or 16 ms if that is
    /// more. Unlimited by default, and if longer than eight years.
    ///
    /// A use is one that eviction counts: [`Cache::get`], and not [`Cache::peek`]. A use writes to
    /// the entry only if some part of the idle time has passed since the last write: at most a
    /// tenth, or 12 ms if that is more. An exception are entries that are inserted when no entry of
    /// the cache has been due for 16,000 times their idle time (four hours for a second): until the
    /// next sweep, uses do not extend their time.
    ///
    /// With a [`time_to_live`](Self::time_to_live), uses extend an entry's deadline up to that time
    /// after its insert, and not beyond. The ends of the times to live take four bytes for each
    /// entry, in blocks of memory that are in [`Cache::footprint`] and are not charged. Without
    /// memory for a block an insert aborts the process. With [`refresh_ahead`](Self::refresh_ahead)
    /// or [`stale_while_revalidate`](Self::stale_while_revalidate), an entry is reloaded, or stale,
    /// only once uses do not extend it any more.
    ///
    /// A time of the entry's own counts instead of both. If
    /// [`Entry::time_to_live`](crate::cache::Entry::time_to_live),
    /// [`Entry::forever`](crate::cache::Entry::forever) or [`Cache::touch`] sets another one, that
    /// one counts and uses do not extend it;
    /// [`Entry::time_to_idle`](crate::cache::Entry::time_to_idle) gives an entry an idle time of
    /// its own.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Runtime};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let sessions = Cache::<u64, String>::builder(&runtime)
    ///     .weigher(|_, text| text.capacity())
    ///     .time_to_idle(Duration::from_secs(1800))
    ///     .build()?;
    /// sessions.insert(7, "basket".into())?;
    /// // This use extends the deadline to half an hour from now.
    /// assert!(sessions.get(&7).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// With both times:
    ///
    /// ```
    /// use lowwater::runtime::ManualClock;
    /// use lowwater::{Cache, Runtime};
    /// use std::time::Duration;
    ///
    /// let (clock, minute) = (ManualClock::new(), Duration::from_secs(60));
    /// let runtime = Runtime::builder().unlimited().clock(&clock).build()?;
    /// let sessions = Cache::<u64, String>::builder(&runtime)
    ///     .weigher(|_, text| text.capacity())
    ///     .time_to_live(60 * minute)
    ///     .time_to_idle(30 * minute)
    ///     .build()?;
    /// sessions.insert(7, "basket".into())?;
    /// for _ in 0..2 {
    ///     clock.advance(25 * minute);
    ///     assert!(sessions.get(&7).is_some(), "used half an hour ago or less");
    /// }
    /// clock.advance(11 * minute);
    /// assert!(sessions.get(&7).is_none(), "an hour has passed");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.choices.times.time_to_idle = Some(time);
        self
    }

    /// Sets a function for the times of single entries, from their keys and values. It is called
    /// for each entry that is inserted, before the insert, and for each lookup that counts as a
    /// use. It is not called where the caller gives a time ([`Cache::touch`],
    /// [`Op::Touch`](crate::cache::Op::Touch), [`Op::PutFor`](crate::cache::Op::PutFor),
    /// [`Cache::load`]), and not for a stale value.
    ///
    /// [`Lifetime::Unchanged`] leaves the deadline as it is, and gives a new entry the time of
    /// [`time_to_live`](Self::time_to_live) or [`time_to_idle`](Self::time_to_idle), if the cache
    /// has one. A time of [`Entry::time_to_live`](crate::cache::Entry::time_to_live),
    /// [`time_to_idle`](crate::cache::Entry::time_to_idle) or
    /// [`forever`](crate::cache::Entry::forever) counts instead of the function's for that insert,
    /// and so does the time that [`Op::Update`](crate::cache::Op::Update) keeps.
    ///
    /// The function is called without a lock, inside a read-side section: while it blocks, no cache
    /// of the process frees removed entries. A panic in it is passed on to the caller of the insert
    /// or the lookup. If another thread changes the entry meanwhile, the event is still the one
    /// from before the change. Lookups in a cache with such a function cost more: each hit calls
    /// it.
    ///
    /// ```
    /// use lowwater::cache::{ExpiryEvent, Lifetime};
    /// use lowwater::{Cache, Runtime};
    /// use std::time::Duration;
    ///
    /// #[derive(Clone)]
    /// struct Token { text: String, valid: Duration }
    ///
    /// let runtime = Runtime::builder().unlimited().build()?;
    /// let tokens = Cache::<u64, Token>::builder(&runtime)
    ///     .weigher(|_, token| token.text.capacity())
    ///     .expire_after(|_, token, event| match event {
    ///         ExpiryEvent::Read { .. } => Lifetime::Unchanged,
    ///         _ => Lifetime::Live(token.valid),
    ///     })
    ///     .build()?;
    /// tokens.insert(1, Token { text: "short".into(), valid: Duration::ZERO })?;
    /// tokens.insert(2, Token { text: "long".into(), valid: Duration::from_secs(3600) })?;
    /// std::thread::sleep(Duration::from_millis(10));
    /// assert!(tokens.get(&1).is_none() && tokens.get(&2).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "Expiry")]
    pub fn expire_after(mut self, function: impl Fn(&K, &V, ExpiryEvent) -> Lifetime + Send + Sync + 'static) -> Self {
        self.choices.times.expiry = Some(Box::new(function));
        self
    }

    /// Sets the last part of an entry's time to live in which a call that reloads it may do so:
    /// when less than `time` is left. None by default.
    ///
    /// Only [`Cache::get_or_refresh`] and loads with
    /// [`Entry::refresh`](crate::cache::Entry::refresh) reload entries. One of their callers is
    /// chosen; the others get the present value at once. The new value takes the old one's place,
    /// with a new deadline, unless the entry was replaced or removed by a call meanwhile. See
    /// [`Refresh`](crate::cache::Refresh) for failures.
    ///
    /// An entry without a deadline is not reloaded, nor is one with an idle time, which a use
    /// extends. An entry with a time of its own that is not longer than `time` is reloaded again as
    /// soon as it was reloaded.
    ///
    /// ```
    /// use lowwater::runtime::ManualClock;
    /// use lowwater::{Cache, Runtime};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let runtime = Runtime::builder().unlimited().clock(&clock).build()?;
    /// let pages = Cache::<u64, String>::builder(&runtime)
    ///     .weigher(|_, page| page.capacity())
    ///     .time_to_live(Duration::from_secs(60))
    ///     .refresh_ahead(Duration::from_secs(10))
    ///     .build()?;
    /// pages.insert(7, "old".into())?;
    /// assert_eq!(pages.entry(7).refresh().or_insert_with(|| "new".into()), "old");
    /// clock.advance(Duration::from_secs(55));
    /// assert_eq!(pages.entry(7).refresh().or_insert_with(|| "new".into()), "new");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`build`](CacheBuilder::build) refuses a `time` that is not shorter than
    /// [`time_to_live`](Self::time_to_live)
    /// ([`RefreshTooEarly`](CacheBuildError::RefreshTooEarly)).
    #[doc(alias = "refreshAfterWrite")]
    #[doc(alias = "refresh_after_write")]
    pub fn refresh_ahead(mut self, time: Duration) -> Self {
        self.choices.times.refresh_ahead = time;
        self
    }

    /// Keeps expired entries for a further `time`, in which they are stale: calls that reload an
    /// entry ([`refresh_ahead`](Self::refresh_ahead)) return the old value while one of their
    /// callers reloads it. Zero by default. At most a year; a longer time counts as a year.
    ///
    /// For all other calls a stale entry has expired: [`Cache::get`], [`Cache::peek`], iteration,
    /// [`Cache::save`] and loads do not find it, and [`Cache::retain`] removes it without a call of
    /// its closure. It is charged, counts in [`Cache::len`], and is evicted in the order of all
    /// entries. It leaves, for the cause [`Expired`](crate::cache::RemovalCause::Expired), when the
    /// time is over, or when another value takes its place.
    ///
    /// An entry with an idle time is never stale. The 20 days and 34 years of
    /// [`time_to_live`](Self::time_to_live) are for a time to live with `time` added.
    ///
    /// ```
    /// use lowwater::runtime::ManualClock;
    /// use lowwater::{Cache, Runtime};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let runtime = Runtime::builder().unlimited().clock(&clock).build()?;
    /// let pages = Cache::<u64, String>::builder(&runtime)
    ///     .weigher(|_, page| page.capacity())
    ///     .time_to_live(Duration::from_secs(60))
    ///     .stale_while_revalidate(Duration::from_secs(600))
    ///     .build()?;
    /// pages.insert(7, "old".into())?;
    /// clock.advance(Duration::from_secs(61));
    /// assert_eq!(pages.get(&7), None);
    /// let hit = pages.get_or_refresh(&7).expect("a stale value");
    /// assert_eq!((hit.value.as_str(), hit.is_stale), ("old", true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "stale-while-revalidate")]
    #[doc(alias = "stale-if-error")]
    pub fn stale_while_revalidate(mut self, time: Duration) -> Self {
        self.choices.times.stale_while_revalidate = time;
        self
    }
}
