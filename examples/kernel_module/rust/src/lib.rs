// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache's lists for a kernel module: per group and per node, with a shrinker that scans them.
//! `lowwater.h` is the C side.
//!
//! A change of an `extern "C"` function's signature must be made in `lowwater.h`, too.

#![no_std]

extern crate alloc;

mod kernel;
mod panic;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ffi::{c_int, c_ulong};
use core::ptr::{self, NonNull};

use lowwater_base::fallible::{try_arc, try_box};
use lowwater_lru_core::{Handle, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId, Topology, linked};
use lowwater_shrinker::{Count, Reclaim, Registration, Registry, RegistryConfig, Scan, ShrinkControl, Shrinker, Work};

/// `struct lowwater_links` of C, which is part of its objects.
#[repr(C)]
pub struct Object {
    links: Links,
}

const _: () = assert!(size_of::<Object>() == 3 * size_of::<usize>(), "struct lowwater_links");

linked!(impl[] for Object { links, handle: Owned });

/// An object of C, with the right and the duty to free it.
pub struct Owned(NonNull<Object>);

// C declares it as `struct lowwater_links`, of the same size (asserted above), and never accesses
// its content.
#[expect(improper_ctypes, reason = "the pointer is all that C needs to understand")]
unsafe extern "C" {
    /// Frees an object that was on a list, after RCU readers.
    fn lowwater_object_free(object: *mut Object);
}

// SAFETY: C's objects do not move, and live until they are passed to `lowwater_object_free`.
unsafe impl Handle for Owned {
    type Target = Object;
    // By the contract of `lowwater_add`, only one owner exists.
    const UNIQUE: bool = true;

    #[inline]
    fn into_raw(self) -> NonNull<Object> {
        core::mem::ManuallyDrop::new(self).0
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<Object>) -> Self {
        Self(raw)
    }
}

// SAFETY: C frees its objects on any thread.
unsafe impl Send for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: `self` owns the object, and an owned object is on no list.
        unsafe { lowwater_object_free(self.0.as_ptr()) }
    }
}

/// The lists and their shrinker of one module.
pub struct Lowwater {
    // Dropped first: after it no callback uses the lists.
    _registration: Registration,
    objects: Arc<ListLru<Object>>,
    registry: Registry,
    tree: MemcgTree,
}

/// The machine's nodes, by the kernel's numbers. Only their number is needed: objects and scans
/// come with a node.
struct Nodes(u16);

impl Topology for Nodes {
    fn nodes(&self) -> usize {
        self.0.into()
    }

    fn current(&self) -> NodeId {
        NodeId::ZERO
    }

    fn cpus_of(&self, _: NodeId) -> &[usize] {
        &[]
    }

    /// Linux's `LOCAL_DISTANCE` and `REMOTE_DISTANCE`; lowwater's registry asks for none.
    fn distance(&self, a: NodeId, b: NodeId) -> u32 {
        10 + 10 * u32::from(a != b)
    }
}

/// The shrinker of the lists.
struct Objects(Arc<ListLru<Object>>);

impl Shrinker for Objects {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.0.count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let mut left = sc.nr_to_scan();
        let mut old = Isolated::new();
        self.0.walk_one(sc.memcg(), sc.node(), &mut left, |it| it.isolate(&mut old));
        let scanned = sc.nr_to_scan() - left;
        sc.set_nr_scanned(scanned);
        // The isolated objects are freed here, when no lock is held.
        drop(old);
        Scan::Freed(scanned)
    }
}

/// Creates the lists and their shrinker, for `nodes` nodes; null without memory.
#[unsafe(no_mangle)]
pub extern "C" fn lowwater_start(nodes: c_int) -> *mut Lowwater {
    start(nodes.clamp(1, u16::MAX.into()) as u16).map_or(ptr::null_mut(), Box::into_raw)
}

fn start(nodes: u16) -> Option<Box<Lowwater>> {
    let tree = MemcgTree::try_new(0).ok()?;
    let config = RegistryConfig::try_with_topology(try_arc(Nodes(nodes))?).ok()?;
    let registry = Registry::try_with_config(&tree, config).ok()?;
    let prepared = registry.builder("objects").alloc().ok()?;
    let objects = try_arc(ListLru::try_with_occupancy(prepared.try_occupancy().ok()?).ok()?)?;
    let shrinker = try_arc(Objects(Arc::clone(&objects)))?;
    let registration = prepared.try_register(shrinker).ok()?;
    try_box(Lowwater { _registration: registration, objects, registry, tree })
}

/// Frees the lists, the shrinker, and every object that is still on a list.
///
/// # Safety
///
/// `lowwater` came from [`lowwater_start`], is not used any more, and all groups have been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowwater_stop(lowwater: *mut Lowwater) {
    // SAFETY: by the contract, `lowwater` came from a box in `lowwater_start`, and is not used any
    // more.
    drop(unsafe { Box::from_raw(lowwater) });
}

/// Creates a group with this name below `parent`, or below the root if that is null; null without
/// memory, or if the name exists.
///
/// # Safety
///
/// `lowwater` and `parent` are alive, `name` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowwater_group_new(
    lowwater: &Lowwater,
    parent: Option<&Memcg>,
    name: *const u8,
    len: usize,
) -> *mut Memcg {
    // SAFETY: by the contract, `lowwater` and `parent` are alive and `name` points to `len` bytes.
    let name = unsafe { core::slice::from_raw_parts(name, len) };
    let Ok(name) = core::str::from_utf8(name) else { return ptr::null_mut() };
    let parent = parent.unwrap_or(lowwater.tree.root());
    let Ok(memcg) = parent.create(name) else { return ptr::null_mut() };
    // Without the handle the group would stay for as long as the tree.
    match try_box(memcg.clone()) {
        Some(handle) => Box::into_raw(handle),
        None => {
            let _ = memcg.offline();
            ptr::null_mut()
        }
    }
}

/// Takes a group offline: its objects become its parent's.
///
/// # Safety
///
/// `group` came from [`lowwater_group_new`], and is not used any more. Groups that were created
/// below it must be freed before: otherwise it stays until [`lowwater_stop`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowwater_group_free(group: *mut Memcg) {
    // SAFETY: by the contract, `group` came from a box in `lowwater_group_new`, and is not used any
    // more.
    let group = unsafe { Box::from_raw(group) };
    // It has no children in this module, and ends once: no error is possible.
    let _ = group.offline();
}

/// Adds an object as the newest of its group on its node; returns 0, -EEXIST or -ENOMEM.
///
/// # Safety
///
/// The object lives until [`lowwater_object_free`] is called for it or [`lowwater_del`] returned
/// it. No other thread adds it concurrently.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowwater_add(
    lowwater: &Lowwater,
    object: NonNull<Object>,
    group: &Memcg,
    node: c_int,
) -> c_int {
    match lowwater.objects.add(Owned(object), group, NodeId::new(node as u16)) {
        Ok(()) => 0,
        Err(refused) => {
            let errno = match refused {
                lowwater_lru_core::AddError::Linked(_) => -17,
                _ => -12,
            };
            // The object still belongs to C.
            let _ = refused.into_handle().into_raw();
            errno
        }
    }
}

/// Removes an object from its list. Returns true if it was on one, and belongs to the caller now.
///
/// # Safety
///
/// The object is not freed concurrently: the caller is inside RCU, or the object cannot be on a
/// list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowwater_del(lowwater: &Lowwater, object: &Object) -> bool {
    lowwater.objects.del(object).map(Handle::into_raw).is_some()
}

/// The kernel's `count_objects` for one node, all groups.
#[unsafe(no_mangle)]
pub extern "C" fn lowwater_count(lowwater: &Lowwater, node: c_int) -> c_ulong {
    lowwater.objects.count_node(NodeId::new(node as u16)) as c_ulong
}

/// The kernel's `scan_objects` for one node: a bounded pass over the groups, which continues where
/// the last one stopped. Its bound is `objects`, so the priority is 0, everything. Returns the
/// number of freed objects, and in `scanned` the number of scanned ones.
#[unsafe(no_mangle)]
pub extern "C" fn lowwater_scan(lowwater: &Lowwater, node: c_int, objects: c_ulong, scanned: &mut c_ulong) -> c_ulong {
    let mut work = Work::objects(objects);
    let root = lowwater.tree.root();
    let done = lowwater.registry.shrink(root, NodeId::new(node as u16), 0, Reclaim::KSWAPD, &mut work);
    *scanned = done.scanned;
    done.freed
}

/// The kernel calls this after the grace period that `lowwater_shim_after_readers` requested.
///
/// # Safety
///
/// A grace period has passed since that request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowwater_readers_left() {
    // SAFETY: by the contract, a grace period has passed since the request.
    unsafe { lowwater_lru_core::embedder::readers_left() }
}

/// The number of objects that wait for RCU.
#[unsafe(no_mangle)]
pub extern "C" fn lowwater_waiting() -> c_ulong {
    lowwater_lru_core::embedder::waiting() as c_ulong
}
