//! What a cache must be able to do: say how much it holds, and let some of it go.

use lowwater_lru_core::ByteSize;

use crate::control::ShrinkControl;

/// A cache that gives memory back when asked.
///
/// Both calls come from any thread, several at once, for different groups and nodes or the same one. They may use the lists
/// and locks of their own cache as far as [`ShrinkControl::flags`] allows; they must not start reclaim themselves (it would
/// answer that it is already running), and must not drop their own [`Registration`](crate::Registration).
///
/// A callback that panics is caught under `std`, counted, and its shrinker is set aside: it is not asked again, and reclaim
/// goes on with the others.
///
/// ```
/// use lowwater_shrinker::{Count, Scan, ShrinkControl, Shrinker};
/// use std::sync::Mutex;
///
/// struct Buffers(Mutex<Vec<Vec<u8>>>);
///
/// impl Shrinker for Buffers {
///     fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
///         // Unknown rather than Empty: nobody tells the map when the next buffer comes back to this pool.
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
#[doc(alias = "struct shrinker")]
pub trait Shrinker: Send + Sync {
    /// How many objects of `sc.memcg()` on `sc.node()` could be freed. Must be cheap, and must not say
    /// [`Count::Empty`] while a list holds something.
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count;

    /// Looks at up to `sc.nr_to_scan()` objects, oldest first, and frees those that may go. Reports how many it looked at
    /// with [`ShrinkControl::set_nr_scanned`] if that differs from what was asked.
    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan;

    /// What the objects that [`count_objects`](Self::count_objects) counts weigh together; none if it is not known.
    /// For people who look ([`Registry::survey`](crate::Registry::survey)); and where victims are chosen
    /// [by utility](crate::RegistryConfig::by_utility), of shrinkers to which memory earns the same the heavier pays. Where it is not
    /// known, what the group uses is taken for it.
    fn weigh_objects(&self, _sc: &ShrinkControl<'_>) -> Option<ByteSize> {
        None
    }
}

/// A shrinker's answer to how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Nothing, and nothing will come without an [`Occupancy::occupied`](lowwater_lru_core::Occupancy::occupied). The
    /// shrinker is not asked again for this group and node until then.
    #[doc(alias = "SHRINK_EMPTY")]
    Empty,
    /// Cannot tell, or nothing just now. Nothing is scanned; the shrinker is asked again next time.
    Unknown,
    /// So many objects.
    ///
    /// `Objects(0)` is [`Count::Empty`] from a shrinker that is memcg-aware: it was asked because
    /// its lists told of something, and they tell again. From one that is not, which is asked from
    /// the start and may have nothing that tells, it is [`Count::Unknown`].
    Objects(u64),
}

impl Count {
    /// Is nothing there, and nothing will come without a call of `occupied`?
    pub(crate) const fn is_empty(self, memcg_aware: bool) -> bool {
        match self {
            Self::Empty => true,
            Self::Objects(n) => n == 0 && memcg_aware,
            Self::Unknown => false,
        }
    }

    /// The number of objects; 0 unless it is known.
    pub const fn objects(self) -> u64 {
        match self {
            Self::Objects(n) => n,
            Self::Empty | Self::Unknown => 0,
        }
    }
}

/// What came of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// So many objects were freed; 0 when all were looked at and none could go yet.
    Freed(u64),
    /// No progress is possible in this context (a lock is taken, I/O is not allowed). The rest is left to the background.
    #[doc(alias = "SHRINK_STOP")]
    Stop,
}
