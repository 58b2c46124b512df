// SPDX-License-Identifier: GPL-2.0

//! Shrinkers: caches that give memory back when the kernel asks.
//!
//! A registration owns the cache and unregisters before it drops it, so no callback runs on a
//! dropped cache. A change must keep this order.

use super::{Count, Scan, ShrinkControl};
use core::{
    cell::Cell,
    mem::ManuallyDrop,
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering},
};
use kernel::{bindings, c_str, fmt, prelude::*, str::CString, sync::Arc};

// `BIT()` macros, which bindgen does not evaluate.
const SHRINKER_NUMA_AWARE: u32 = 1 << 2;
const SHRINKER_MEMCG_AWARE: u32 = 1 << 3;

/// A cache that gives memory back on request.
///
/// Both methods are called on any thread, several at once, for different groups and nodes or the
/// same ones.
///
/// They may use the lists and locks of their own cache as far as
/// [`ShrinkControl::flags`] allows. They must not start reclaim: allocate nothing, or only with
/// `GFP_NOWAIT`. They must not drop their own [`Registration`], which waits for them, nor create or
/// drop another one: that takes a lock under which the kernel allocates.
#[doc(alias = "struct shrinker")]
pub(crate) trait Shrinker: Send + Sync {
    /// Counts the objects of `sc.memcg()` on `sc.node()` that could be freed.
    ///
    /// Must be cheap, and must not return [`Count::Empty`] while a list has objects.
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count;

    /// Scans up to `sc.nr_to_scan()` objects, oldest first, and frees those that are not in use.
    ///
    /// Reports the number of scanned objects with [`ShrinkControl::set_nr_scanned`] if it differs
    /// from the requested number.
    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan;
}

/// The first of two steps: the options of a shrinker.
///
/// The shrinker is NUMA-aware, as a `list_lru` has a list for each node in any case.
#[must_use = "a builder does nothing until `alloc`"]
pub(crate) struct ShrinkerBuilder {
    name: &'static CStr,
    memcg_aware: bool,
    batch: i64,
    seeks: i32,
}

impl ShrinkerBuilder {
    /// Begins a shrinker of this name.
    pub(crate) fn new(name: &'static CStr) -> Self {
        Self {
            name,
            memcg_aware: true,
            batch: 0,
            seeks: bindings::DEFAULT_SEEKS as i32,
        }
    }

    /// Sets whether the shrinker distinguishes groups.
    ///
    /// True by default; if false, it is called once for all groups, and only when the machine needs
    /// memory.
    #[doc(alias = "SHRINKER_MEMCG_AWARE")]
    pub(crate) fn memcg_aware(self, aware: bool) -> Self {
        Self {
            memcg_aware: aware,
            ..self
        }
    }

    /// Sets the number of objects in one call of `scan_objects`, 128 by default; 0 means the
    /// default.
    pub(crate) fn batch(self, objects: u64) -> Self {
        Self {
            batch: objects.min(i64::MAX as u64 / 4) as i64,
            ..self
        }
    }

    /// Sets the cost of recreating an object, 2 by default: a cache with objects that cost twice as
    /// much gives up half as many.
    ///
    /// 0 is for objects that cost nothing.
    pub(crate) fn seeks(self, seeks: u32) -> Self {
        Self {
            seeks: seeks.min(i32::MAX as u32) as i32,
            ..self
        }
    }

    /// Allocates the shrinker, which is not called yet, so that its lists can be created.
    ///
    /// May sleep. Objects must be added after [`Prepared::register`], which explains why.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[doc(alias = "shrinker_alloc")]
    pub(crate) fn alloc(self) -> Result<Prepared> {
        let memcg_aware = if self.memcg_aware {
            SHRINKER_MEMCG_AWARE
        } else {
            0
        };
        let flags = SHRINKER_NUMA_AWARE | memcg_aware;
        // SAFETY: The format takes one C string, and the name is one.
        let raw = unsafe {
            bindings::shrinker_alloc(flags, c_str!("%s").as_char_ptr(), self.name.as_char_ptr())
        };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        let fields = raw.as_ptr();
        // SAFETY: The shrinker was allocated above. Reclaim may find it by its id, but until it is
        // registered, reads only its `refcount`: so these fields are ours, and there must be no
        // reference of the whole.
        unsafe {
            (*fields).batch = self.batch as _;
            (*fields).seeks = self.seeks;
        }
        // INVARIANT: The shrinker was allocated above.
        Ok(Prepared {
            raw,
            name: self.name,
            lists: Cell::new(0),
        })
    }
}

/// A shrinker that is not called yet, between the two steps.
///
/// Dropping this frees the shrinker and its id.
///
/// # Invariants
///
/// `raw` was allocated by `shrinker_alloc`, is not registered, and is owned by `self`. Only reclaim
/// reads it besides, and only its `refcount`.
#[must_use = "without `register` the shrinker is never called"]
pub(crate) struct Prepared {
    raw: NonNull<bindings::shrinker>,
    name: &'static CStr,
    /// The number of `ListLru`s that were created for the shrinker.
    lists: Cell<usize>,
}

impl Prepared {
    /// Returns the id of the future shrinker, by which lists other than `list_lru` set its bit.
    ///
    /// Returns `None` if the shrinker is not memcg-aware: it has no id and no bits then. The id is
    /// free again if this is dropped without `register`.
    pub(crate) fn id(&self) -> Option<i32> {
        #[cfg(CONFIG_MEMCG)]
        // SAFETY: By the type invariant, the shrinker is alive, and its id is set by `alloc` only.
        let id = self
            .is_memcg_aware()
            .then(|| unsafe { (*self.raw.as_ptr()).id });
        #[cfg(not(CONFIG_MEMCG))]
        let id = None;
        id
    }

    /// Returns whether the shrinker is called for each group: not if the kernel has no groups.
    fn is_memcg_aware(&self) -> bool {
        // SAFETY: By the type invariant, the shrinker is alive, and its flags are set by `alloc`
        // only.
        unsafe { (*self.raw.as_ptr()).flags & SHRINKER_MEMCG_AWARE != 0 }
    }

    /// Returns the occupancy to create the shrinker's lists with, so that the shrinker is called
    /// for groups and nodes where they hold objects.
    ///
    /// Several `ListLru`s may report to one shrinker, which should count the objects of all of
    /// them. A group whose first list is empty may have objects on the second one, so the answer
    /// [`Count::Empty`] is passed on as [`Count::Unknown`] then: no object is missed, but the
    /// shrinker is called in each pass for each group that once had objects. One shrinker per
    /// `ListLru` avoids these calls.
    pub(crate) fn occupancy(&self) -> Occupancy<'_> {
        Occupancy { prepared: self }
    }

    /// Registers the shrinker: it may be called from any thread, from now until the registration is
    /// dropped.
    ///
    /// Objects must be added to its lists after this. When reclaim of a group meets the bit of a
    /// shrinker that is not registered, it clears the bit; the list is not empty then, so a later
    /// object does not set the bit again, and the shrinker is not called for that group until its
    /// list was empty.
    #[doc(alias = "shrinker_register")]
    pub(crate) fn register<S: Shrinker + 'static>(self, shrinker: Arc<S>) -> Registration<S> {
        let this = ManuallyDrop::new(self);
        let raw = this.raw;
        let data: *const S = &*shrinker;
        let fields = raw.as_ptr();
        // SAFETY: By the type invariant, the shrinker is alive, and reclaim may read its `refcount`
        // now: so these fields are ours, and there must be no reference of the whole.
        unsafe {
            (*fields).count_objects = Some(match this.lists.get() {
                0 | 1 => count::<S, false>,
                _ => count::<S, true>,
            });
            (*fields).scan_objects = Some(scan::<S>);
            (*fields).private_data = data.cast_mut().cast();
        }
        // SAFETY: The shrinker was allocated, and its callbacks are set; their data, an `S`, lives
        // until `shrinker_free` has returned. It is NUMA-aware, as `alloc` set that flag.
        unsafe { bindings::shrinker_register(raw.as_ptr()) };
        // INVARIANT: The shrinker was registered above, and its data is the content of `shrinker`.
        Registration { raw, shrinker }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the shrinker is ours and not registered.
        unsafe { bindings::shrinker_free(self.raw.as_ptr()) }
    }
}

/// The number of slab caches that the module has named.
static SLAB_CACHES: AtomicUsize = AtomicUsize::new(0);

/// The listener by which lists report to a shrinker that they are not empty any more.
#[derive(Clone, Copy)]
pub(crate) struct Occupancy<'a> {
    prepared: &'a Prepared,
}

impl Occupancy<'_> {
    /// Counts one more `ListLru` of the shrinker, and returns the name of its slab cache.
    ///
    /// That is the name of the shrinker, with a number from the module's second `ListLru` on. Two
    /// caches of one name would be an error in the kernel's log, also those of two shrinkers.
    pub(super) fn slab_name(&self) -> Result<CString> {
        let (name, lists) = (self.prepared.name, &self.prepared.lists);
        lists.set(lists.get() + 1);
        // Relaxed: each number is given out once, which needs no order.
        match SLAB_CACHES.fetch_add(1, Ordering::Relaxed) {
            0 => CString::try_from_fmt(fmt!("{name}")),
            before => CString::try_from_fmt(fmt!("{name}-{}", before + 1)),
        }
    }

    /// Returns whether the shrinker is called for each group.
    pub(super) fn is_memcg_aware(&self) -> bool {
        self.prepared.is_memcg_aware()
    }

    /// Returns the shrinker, which is alive for as long as this can be used.
    pub(super) fn as_ptr(&self) -> *mut bindings::shrinker {
        self.prepared.raw.as_ptr()
    }
}

/// A registered shrinker, which is called until this is dropped.
///
/// Dropping it waits for running callbacks; after that none is called. It must be dropped before
/// the module's code is unloaded, so it belongs into the module's struct.
///
/// **Never forget it** (`mem::forget`, a `static`, a cycle of `Arc`s): the kernel would call code
/// that is unloaded. This kernel's Rust interface has nothing that prevents it: a module's struct
/// is moved out of its `init`, so nothing can be pinned in it, and a registration that held a
/// reference of its module would keep it from ever being unloaded.
///
/// # Invariants
///
/// `raw` is registered, and its `private_data` is the content of `shrinker`.
pub(crate) struct Registration<S> {
    raw: NonNull<bindings::shrinker>,
    shrinker: Arc<S>,
}

// SAFETY: `shrinker_free` may be called on any thread; the `Arc<S>` is as `Send` as `S` is.
unsafe impl<S: Send + Sync> Send for Registration<S> {}
// SAFETY: A reference gives only `&S`.
unsafe impl<S: Send + Sync> Sync for Registration<S> {}

impl<S> core::ops::Deref for Registration<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.shrinker
    }
}

impl<S> Drop for Registration<S> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the shrinker is registered. `shrinker` is dropped after
        // this, when no callback runs any more.
        unsafe { bindings::shrinker_free(self.raw.as_ptr()) }
    }
}

/// The kernel's `count_objects`.
///
/// `SEVERAL` is whether more than one `ListLru` reports to the shrinker.
///
/// # Safety
///
/// `shrinker` is valid and NUMA-aware, and its `private_data` is an `S` that lives during the call.
/// `sc` is valid and used by this thread only, and its group lives, during the call.
unsafe extern "C" fn count<S: Shrinker, const SEVERAL: bool>(
    shrinker: *mut bindings::shrinker,
    sc: *mut bindings::shrink_control,
) -> usize {
    // SAFETY: By the safety requirements, the data is a live `S`.
    let this = unsafe { &*(*shrinker).private_data.cast::<S>() };
    // SAFETY: By the safety requirements, `sc` is the argument of this callback, and the shrinker
    // is NUMA-aware.
    let sc = unsafe { ShrinkControl::from_raw(sc) };
    match this.count_objects(&sc) {
        // See `Prepared::occupancy`.
        Count::Empty | Count::Objects(0) if SEVERAL => Count::Unknown,
        count => count,
    }
    .into_raw()
}

/// The kernel's `scan_objects`.
///
/// # Safety
///
/// `shrinker` is valid and NUMA-aware, and its `private_data` is an `S` that lives during the call.
/// `sc` is valid and used by this thread only, and its group lives, during the call.
unsafe extern "C" fn scan<S: Shrinker>(
    shrinker: *mut bindings::shrinker,
    sc: *mut bindings::shrink_control,
) -> usize {
    // SAFETY: By the safety requirements, the data is a live `S`.
    let this = unsafe { &*(*shrinker).private_data.cast::<S>() };
    // SAFETY: By the safety requirements, `sc` is the argument of this callback, and the shrinker
    // is NUMA-aware.
    let mut sc = unsafe { ShrinkControl::from_raw(sc) };
    let answer = this.scan_objects(&mut sc);
    answer.into_raw(&sc)
}
