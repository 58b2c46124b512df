//! The interface of a cache: count its objects, and free some of them.
//!
//! The trait [`Shrinker`] is the whole contract of a cache with the registry. Callbacks may panic,
//! block, return false numbers or call the registry. A change must ensure that the registry
//! survives each of these (tests `answers`, `hazards`), and calls no callback with one of its locks
//! held.

use lowwater_lru_core::ByteSize;

use crate::control::ShrinkControl;

/// A cache that gives memory back on request.
///
/// The methods are called on any thread, several at once, for different groups and nodes or the
/// same ones. They may use the lists and locks of their own cache as far as
/// [`ShrinkControl::flags`] allows. With `std`, reclaim that they start returns at once, because it
/// is running already; without it they must start none, as it would recurse without bound. A
/// [`Registration`](crate::Registration) that they drop, also their own, ends without waiting.
///
/// With `std`, a panic of a callback is caught and counted, and the shrinker is quarantined: it is
/// not called again, and reclaim continues with the others.
///
/// ```
/// use lowwater_shrinker::{Count, Scan, ShrinkControl, Shrinker};
/// use std::sync::Mutex;
///
/// struct Buffers(Mutex<Vec<Vec<u8>>>);
///
/// impl Shrinker for Buffers {
///     fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
///         // Not Empty: the map is not notified when the next buffer returns to this pool.
///         match self.0.lock().unwrap().len() {
///             0 => Count::Unknown,
///             n => Count::Objects(n as u64),
///         }
///     }
///
///     fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
///         let mut pool = self.0.lock().unwrap();
///         let n = pool.len().min(sc.nr_to_scan() as usize);
///         sc.set_nr_scanned(n as u64);
///         pool.drain(..n);
///         Scan::Freed(n as u64)
///     }
/// }
/// ```
///
/// Objects on a [`ListLru`](lowwater_lru_core::ListLru), which notifies the registry itself if it
/// is made by `ListLru::with_occupancy(prepared.occupancy())`:
///
/// ```
/// use lowwater_lru_core::{linked, Isolated, Links, ListLru};
/// use lowwater_shrinker::{Count, Scan, ShrinkControl, Shrinker};
/// use std::sync::Arc;
///
/// struct Session {
///     links: Links,
///     in_use: bool,
/// }
/// linked!(impl[] for Session { links, handle: Arc<Session> });
///
/// struct Sessions(ListLru<Session>);
///
/// impl Shrinker for Sessions {
///     fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
///         Count::Objects(self.0.count_one(sc.memcg(), sc.node()))
///     }
///
///     fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
///         let (mut old, mut left) = (Isolated::new(), sc.nr_to_scan());
///         // Oldest first, under the list's lock.
///         self.0.walk_one(sc.memcg(), sc.node(), &mut left, |it| match it.item().in_use {
///             true => it.rotate(),
///             false => it.isolate(&mut old),
///         });
///         sc.set_nr_scanned(sc.nr_to_scan() - left);
///         // The isolated sessions are dropped here, without a lock.
///         Scan::Freed(old.count() as u64)
///     }
/// }
/// ```
#[doc(alias = "struct shrinker")]
pub trait Shrinker: Send + Sync {
    /// Counts the objects of `sc.memcg()` on `sc.node()` that could be freed. Must be cheap, and
    /// must not return [`Count::Empty`] while a list of this group and node has objects.
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count;

    /// Scans up to `sc.nr_to_scan()` objects, oldest first, and frees those that are not in use.
    /// Reports the number of scanned objects with [`ShrinkControl::set_nr_scanned`] if it differs
    /// from the requested number, and with [`ShrinkControl::set_freed_bytes`] the bytes of freed
    /// objects if they are weighed.
    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan;

    /// Returns the total weight of the objects that [`count_objects`](Self::count_objects) counts;
    /// `None` if it is unknown. For display ([`Registry::survey`](crate::Registry::survey)); and if
    /// victims are selected [by utility](crate::RegistryConfig::by_utility), for the utility of a
    /// byte, and among pairs of equal utility the heavier one is the victim. An unknown weight is
    /// estimated: from the group's usage at first, then from its fall during scans. The bytes of
    /// freed objects are taken to be in proportion, unless
    /// [`scan_objects`](Self::scan_objects) reports them.
    fn weigh_objects(&self, _sc: &ShrinkControl<'_>) -> Option<ByteSize> {
        None
    }
}

/// The number of objects that a shrinker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// No objects, and none will be added without a call of
    /// [`Occupancy::occupied`](lowwater_lru_core::Occupancy::occupied). The shrinker is not called
    /// again for this group and node until then.
    #[doc(alias = "SHRINK_EMPTY")]
    Empty,
    /// Unknown, or none at the moment. Nothing is scanned; the shrinker is called again in the next
    /// pass.
    Unknown,
    /// This number of objects.
    ///
    /// From a memcg-aware shrinker, `Objects(0)` means [`Count::Empty`]: the shrinker was called
    /// because its lists reported objects, and they will report again. From a shrinker that is not
    /// memcg-aware, which is called from the start and may have no list that reports, it means
    /// [`Count::Unknown`].
    Objects(u64),
}

impl Count {
    /// Returns true if there are no objects, and none will be added without a call of `occupied`.
    pub(crate) const fn is_empty(self, memcg_aware: bool) -> bool {
        match self {
            Self::Empty => true,
            Self::Objects(n) => n == 0 && memcg_aware,
            Self::Unknown => false,
        }
    }

    /// Returns the number of objects; 0 if it is unknown.
    pub const fn objects(self) -> u64 {
        match self {
            Self::Objects(n) => n,
            Self::Empty | Self::Unknown => 0,
        }
    }
}

/// The result of [`Shrinker::scan_objects`]: the number of objects that it freed, or the reason why
/// it scanned none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// This number of objects was freed; 0 if all were scanned and none could be freed yet. It may
    /// be more than was requested. If victims are selected
    /// [by utility](crate::RegistryConfig::by_utility), more than 256 are credited only as far as
    /// [`Shrinker::count_objects`] returns fewer after the scan.
    Freed(u64),
    /// No progress is possible in this context (a lock is held, I/O is not allowed). The rest is
    /// left to the background.
    #[doc(alias = "SHRINK_STOP")]
    Stop,
    /// Nothing was scanned, because another thread frees objects of this shrinker at the moment,
    /// and this one would have to wait for it. Unlike `Freed(0)` it uses up nothing of the caller's
    /// bound: the caller asks another shrinker. Unlike [`Stop`](Self::Stop) it leaves no debt,
    /// except under a policy that owes what is left of every plan, as Linux does. Linux has no such
    /// result.
    Busy,
}
