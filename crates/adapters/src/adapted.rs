//! A foreign cache as a member of a runtime: one shrinker, and one charge that follows the cache's
//! weight.
//!
//! The foreign cache may call user code under its own locks, so nothing is locked across a weighing
//! and a charge. A thread that lowers the charge therefore weighs again, and restores the charge of
//! entries that another thread has added meanwhile.
//!
//! A change must ensure that no lock of `Balance`, `Eviction` or `Growth` is held while the cache
//! is weighed or changed, and that once the last update has returned, all bytes are charged, or
//! evicted because there is no room for them.

use std::fmt;
use std::ops::Deref;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;

use lowwater::lru_core::{MemcgError, OverLimit};
use lowwater::shrinker::ShrinkerAllocError;
use lowwater::{ByteSize, Count, Memcg, NodeId, Occupancy, Registration, Runtime, Scan, ShrinkControl, Shrinker};

use crate::balance::Balance;
use crate::eviction::{Eviction, Turn};
use crate::growth::Growth;
use crate::Evict;

/// The bytes of one object of this shrinker: the cache counts, and is scanned, in pages and not in
/// entries.
const PAGE: u64 = 4096;
/// The fraction of the weight, as a divisor, that a scan evicts at most for postponed scans. The
/// scores of the caches do not change during an eviction, so the victim picker may have selected
/// this cache more often than its share justifies.
const POSTPONED_PARTS: u64 = 8;
/// The number of parts in which a large difference between weight and charge is charged.
const PARTS: u64 = 16;
/// A part has at least this number of bytes, so that a usual update is one charge.
const PART_MIN: u64 = 64 << 10;

/// The error of [`adapt`] and [`adapt_in`]. The cache that was passed is dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptError {
    /// The group cannot be created, or belongs to another runtime.
    #[error("no group for the cache: {0}")]
    Group(MemcgError),
    /// The shrinker cannot be registered.
    #[error("the cache cannot take part in reclaim: {0}")]
    Register(ShrinkerAllocError),
}

impl From<MemcgError> for AdaptError {
    fn from(error: MemcgError) -> Self {
        Self::Group(error)
    }
}

impl From<ShrinkerAllocError> for AdaptError {
    fn from(error: ShrinkerAllocError) -> Self {
        Self::Register(error)
    }
}

/// Makes `cache` share the budget of `runtime`, under this name: its bytes are charged to a group
/// of that path, and the runtime evicts from it when the memory is worth more elsewhere. Bytes that
/// it holds already are charged at once. Aborts the process if there is no memory for the group's
/// path or the handle.
///
/// ```
/// # #[cfg(feature = "quick_cache")]
/// # {
/// use lowwater::{ByteSize, Runtime};
/// use lowwater_adapters::adapt;
///
/// #[derive(Clone)]
/// struct Bytes;
/// impl quick_cache::Weighter<u64, Vec<u8>> for Bytes {
///     fn weight(&self, _: &u64, value: &Vec<u8>) -> u64 {
///         value.capacity() as u64
///     }
/// }
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(64)).build()?;
/// // As large as the budget: the runtime decides how much of that it holds.
/// let pages = adapt(&runtime, "pages", quick_cache::sync::Cache::with_weighter(1000, 64 << 20, Bytes))?;
/// pages.update(|pages| pages.insert(1, vec![0; 4096]));
/// assert_eq!(pages.get(&1).map(|page| page.len()), Some(4096));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`AdaptError`], if the group or the shrinker cannot be made. The message says why.
pub fn adapt<C: Evict>(runtime: &Runtime, name: &str, cache: C) -> Result<Adapted<C>, AdaptError> {
    let group = runtime.group(name)?;
    adapt_in(runtime, name, &group, cache)
}

/// As [`adapt`], charged to a group of the caller's choice.
///
/// # Errors
///
/// [`AdaptError::Group`] with [`MemcgError::Foreign`] for a group of another runtime;
/// [`AdaptError::Register`], if the shrinker cannot be made.
pub fn adapt_in<C: Evict>(runtime: &Runtime, name: &str, group: &Memcg, cache: C) -> Result<Adapted<C>, AdaptError> {
    if !group.is_in_tree_of(runtime.root()) {
        return Err(MemcgError::Foreign.into());
    }
    let prepared = runtime.registry().builder(name).numa_aware(false).alloc()?;
    let occupancy = prepared.occupancy();
    let growth = Growth::new(cache.weight());
    let member = Arc::new(Member {
        cache,
        balance: Balance::new(runtime, group.clone()),
        occupancy,
        eviction: Eviction::default(),
        growth,
    });
    let registration = prepared.register(Arc::clone(&member) as Arc<dyn Shrinker>);
    member.settle();
    Ok(Adapted { registration, member })
}

/// A foreign cache that shares a budget; from [`adapt`]. It dereferences to the cache.
///
/// Lookups go to the cache directly. A change that may make it heavier goes through
/// [`update`](Self::update), or is followed by [`settle`](Self::settle): until then the new bytes
/// are not charged. The budget is therefore exceeded by one update of each thread. While one thread
/// evicts, the excess may be larger: the other threads do not wait, and the evicting thread evicts
/// their excess, too, before it returns.
///
/// A foreign cache reports no ghost hits, so the runtime estimates the benefit of more memory from
/// the cache's turnover: the pages inserted per page held. A cache that is not used gives its
/// memory to the others.
///
/// The drop of this handle waits until no callback is in the cache, and uncharges its bytes. Inside
/// a callback (a [`CallbackScope`](lowwater::shrinker::CallbackScope)) it does not wait: the last
/// thread to leave the cache uncharges them. The group stays: [`Runtime::end_group`] ends it.
///
/// The type has no bounds, so a type that holds one needs none: only its methods do.
///
/// ```
/// use lowwater_adapters::Adapted;
///
/// struct Wrapper<C> {
///     cache: Adapted<C>,
/// }
/// ```
///
/// # Deadlocks
///
/// Code that an eviction runs on another thread and waits for, as foyer's listeners and the drop of
/// its values, must not drop this handle: the drop waits for the callback, which waits for that
/// thread.
pub struct Adapted<C> {
    /// Dropped before `member`, as the first field: outside of callbacks, no callback is in the
    /// cache any more then.
    registration: Registration,
    member: Arc<Member<C>>,
}

impl<C: Evict> Adapted<C> {
    /// Calls `change` with the cache, and charges or uncharges the difference in weight. At a limit
    /// this thread first reclaims a little, from all caches, as in [`Runtime::charge`]. A
    /// difference of more than 64 KiB is charged in parts. If there is still no room, the cache
    /// evicts down to the charge. So after an update above a limit it keeps the entries for which
    /// other caches have made room.
    ///
    /// No lock that [`Evict::shrink_to`] takes may be held when `change` returns. The drop of an
    /// evicted value may update the cache. Above a limit, what it inserts is evicted as well, so an
    /// update does not end while each evicted value inserts another one.
    ///
    /// # Panics
    ///
    /// As `change` and [`Evict`] do. Entries that `change` added before a panic are charged as
    /// well.
    pub fn update<R>(&self, change: impl FnOnce(&C) -> R) -> R {
        let changed = catch_unwind(AssertUnwindSafe(|| change(&self.member.cache)));
        self.member.settle();
        changed.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Compares the weight with the charge, as [`update`](Self::update) does: after changes that
    /// the cache made by itself, such as an expiry.
    pub fn settle(&self) {
        self.member.settle();
    }

    /// Returns the group to which the cache is charged. Its limits bound the cache.
    pub fn group(&self) -> &Memcg {
        self.member.balance.group()
    }

    /// Returns the bytes that are charged: after a settlement without concurrent updates, the
    /// weight and less than 32 KiB more (two steps of `balance.rs`).
    pub fn charged(&self) -> ByteSize {
        self.member.balance.charged()
    }

    /// Returns the name under which statistics show the cache.
    pub fn name(&self) -> &str {
        self.registration.name()
    }
}

impl<C: Evict> Deref for Adapted<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.member.cache
    }
}

impl<C: Evict> fmt::Debug for Adapted<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapted")
            .field("name", &self.name())
            .field("group", self.group())
            .field("charged", &self.charged())
            .finish_non_exhaustive()
    }
}

/// The shrinker of a foreign cache.
struct Member<C> {
    cache: C,
    balance: Balance,
    occupancy: Arc<dyn Occupancy>,
    eviction: Eviction,
    growth: Growth,
}

impl<C: Evict> Member<C> {
    /// Raises or lowers the charge to the weight. Weighs once, unless something is charged or
    /// uncharged.
    fn settle(&self) {
        self.growth.settled();
        let weight = self.cache.weight();
        if weight > ByteSize::ZERO {
            self.occupancy.occupied(self.balance.group(), NodeId::ZERO);
        }
        if weight > self.balance.charged() {
            if let Err(over) = self.raise(weight) {
                // The cache keeps only the entries for which the limit has room.
                self.balance.raise_to_limit(self.cache.weight(), &over);
                self.evict_to_charge();
            }
            // The charge may have reclaimed from this cache.
            self.lower(self.cache.weight());
        } else {
            self.lower(weight);
        }
    }

    /// Raises the charge to the weight, in parts if much is missing. A charge reclaims until all of
    /// it fits, or from no cache if it is larger than the limit, and does not know that this cache
    /// needs less once the reclaim has evicted from it. So each part is followed by a weighing.
    fn raise(&self, mut weight: ByteSize) -> Result<(), OverLimit> {
        let max = self.balance.max();
        let part = ((weight.min(max) - self.balance.charged()) / PARTS).max(ByteSize::new(PART_MIN));
        // Bounded, because other threads may add entries, or lower the charge.
        for _ in 0..2 * PARTS {
            let charged = self.balance.charged();
            if weight <= charged {
                return Ok(());
            }
            // The last part may be above the limit: its reclaim makes room for later updates, too.
            let raised = if weight - charged <= part { weight } else { max.min(charged + part) };
            if raised <= charged {
                // Only this cache could give way, and the caller evicts from it in one call.
                break;
            }
            self.balance.raise_to(raised)?;
            weight = self.cache.weight();
        }
        self.balance.try_raise_to(weight)
    }

    /// Uncharges the bytes that the cache does not need at this weight.
    fn lower(&self, weight: ByteSize) {
        if !self.balance.lower_to(weight) {
            return;
        }
        // Another thread's entries may have been uncharged with the rest. The charge does not
        // reclaim, because this thread may be inside a scan.
        let weight = self.cache.weight();
        if self.balance.try_raise_to(weight).is_err() {
            self.evict_to_charge();
        }
    }

    /// Evicts the excess over the charge, or leaves that to the thread that evicts.
    fn evict_to_charge(&self) {
        if let Some(turn) = self.eviction.begin_or_request() {
            // A charge by the drop of an evicted value is refused at once, as inside of a scan: it
            // would wait for this eviction. Without memory for a scope it waits, until its
            // deadline.
            let _scope = self.balance.no_reclaim_scope();
            self.evict_in(turn, |_| self.evict_uncharged());
        }
    }

    /// Calls `evict`, serves the requests of other threads, and ends the turn. A panic is passed on
    /// only then, as those threads have returned; a panic of a request that is served ends the turn
    /// at once, as its values might make requests for ever. Of two panics the first is passed on.
    fn evict_in<R>(&self, mut turn: Turn<'_>, evict: impl FnOnce(&Turn<'_>) -> R) -> R {
        let mut result = catch_unwind(AssertUnwindSafe(|| evict(&turn)));
        while let Some(next) = turn.end() {
            turn = next;
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.evict_uncharged())) {
                result = result.and(Err(panic));
                break;
            }
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Evicts down to `target`, and returns the bytes that were evicted. Those that other threads
    /// have added meanwhile are estimated.
    fn evict_to(&self, target: ByteSize) -> ByteSize {
        let before = self.cache.weight();
        self.growth.begin_eviction(before);
        self.cache.shrink_to(target);
        let after = self.cache.weight();
        let added = self.growth.end_eviction(after);
        // An estimate may be wrong: this is its bound.
        (before.saturating_add(added) - after).min(before)
    }

    fn evict_uncharged(&self) {
        let charged = self.balance.charged();
        if self.cache.weight() > charged {
            self.evict_to(charged);
        }
    }
}

impl<C: Evict> Shrinker for Member<C> {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        match self.cache.weight().get().div_ceil(PAGE) {
            0 => Count::Empty,
            pages => Count::Objects(pages),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let before = self.cache.weight();
        let bytes = ByteSize::new(PAGE) * sc.nr_to_scan();
        let Some(turn) = self.eviction.begin_or_postpone(bytes) else {
            // A `Stop` would become a debt, which the background pays even if the cache is no
            // longer the victim by then.
            return Scan::Busy;
        };
        let evicted = self.evict_in(turn, |turn| {
            // Subtractions of `ByteSize` saturate.
            let mut evicted = self.evict_to(before - bytes);
            let weight = self.cache.weight();
            let postponed = turn.take_postponed().min(weight / POSTPONED_PARTS);
            if postponed > ByteSize::ZERO {
                evicted = evicted.saturating_add(self.evict_to(weight - postponed));
            }
            evicted
        });
        let after = self.cache.weight();
        self.lower(after);
        // Less than a page may be all that the cache held: 0 would mean that nothing was evicted.
        // `evicted` alone does not tell, because it is an estimate.
        let is_emptied = after < before && after < ByteSize::new(PAGE);
        Scan::Freed((evicted.get() / PAGE).max(u64::from(is_emptied)))
    }

    fn weigh_objects(&self, _: &ShrinkControl<'_>) -> Option<ByteSize> {
        Some(self.cache.weight())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn a_message_has_the_cause_and_no_source_repeats_it() {
        let errors: [(AdaptError, &dyn Error); 2] = [
            (MemcgError::Foreign.into(), &MemcgError::Foreign),
            (ShrinkerAllocError::OutOfIds.into(), &ShrinkerAllocError::OutOfIds),
        ];
        for (error, cause) in errors {
            assert!(error.to_string().ends_with(&cause.to_string()), "{error}");
            assert!(error.source().is_none(), "{error}");
        }
    }
}
