// SPDX-License-Identifier: GPL-2.0

//! lowwater's groups for the kernel's control groups, created on first use by a task of the
//! control group. They have the levels of the control groups, because the kernel charges a removed
//! control group's entries to its parent: the parent's `memory.max` must find them on its list.
//!
//! In a stock kernel, a module is not notified of a control group that goes offline, and
//! `set_shrinker_bit` is not exported: so lowwater's groups live until the module ends, each with a
//! reference of its control group, and the shrinker is called for the whole machine only. README.md
//! has a table of both; `in_tree.rs` uses a kernel with both.
//!
//! A change must ensure that a group's entry in `CONTROL_GROUPS` is cleared before the group goes
//! offline, and its reference is dropped after that: then the id and the address may be those of
//! others.

use super::sys::NoMemory;
use core::{
    cmp::Reverse,
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicUsize, Ordering},
};
use kernel::{ffi::c_void, new_mutex, prelude::*, str::CString, sync::Mutex};
use lowwater_lru_core::{Memcg, MemcgId, MemcgTree};

// In `extra.c`.
extern "C" {
    /// The control group of the current task, with a reference.
    fn lowwater_memcg_get() -> *mut c_void;
    /// Whether it is the root.
    fn lowwater_memcg_is_root(memcg: *mut c_void) -> bool;
    /// The kernel's number of a live control group; 0 once the number is free.
    fn lowwater_memcg_id(memcg: *mut c_void) -> u16;
    /// Whether the control group is removed, or about to be.
    fn lowwater_memcg_is_dying(memcg: *mut c_void) -> bool;
    /// The parent of a control group other than the root, which lives as long as that does.
    fn lowwater_memcg_parent(memcg: *mut c_void) -> *mut c_void;
    /// Takes one more reference.
    fn lowwater_memcg_hold(memcg: *mut c_void);
    /// Drops a reference.
    fn lowwater_memcg_put(memcg: *mut c_void);
}

/// A control group, and a reference of it; or null.
struct ControlGroup(*mut c_void);

// SAFETY: A reference of a control group may be dropped on any thread.
unsafe impl Send for ControlGroup {}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // SAFETY: The reference is ours.
        unsafe { lowwater_memcg_put(self.0) }
    }
}

/// The groups of the module.
struct Groups {
    tree: MemcgTree,
    /// By the id of the group.
    known: Pin<KBox<Mutex<KVVec<Known>>>>,
    /// The number of groups that were ever created, by which they are named.
    created: AtomicUsize,
}

/// A group with its control group; `None` before it is created and once it has ended.
type Known = Option<(ControlGroup, Memcg)>;

/// One more than the largest id of a group of lowwater that can stand for a control group. The root
/// has id 0; an ended group keeps its id until its last entry is freed. README.md states the number
/// less 1.
const MAX_GROUPS: usize = 1 << 14;

/// The control groups of lowwater's groups, by the id of the group; null if there is none.
static CONTROL_GROUPS: [AtomicPtr<c_void>; MAX_GROUPS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_GROUPS];

/// The id of lowwater's group by the kernel's number of its control group. An entry may be out of
/// date: it counts only if the group's entry in `CONTROL_GROUPS` is that control group.
static IDS: [AtomicU16; 1 << 16] = [const { AtomicU16::new(0) }; 1 << 16];

/// Whether the log has a line about too many groups.
static IS_FULL_REPORTED: AtomicBool = AtomicBool::new(false);

impl Groups {
    /// Creates the group of a control group below a group, named by its number. Fails without
    /// memory, and without an id below `MAX_GROUPS`, which the kernel's log reports once.
    fn create(
        &self,
        known: &mut KVVec<Known>,
        parent: &Memcg,
        of: ControlGroup,
    ) -> Result<Memcg, NoMemory> {
        let name = CString::try_from_fmt(kernel::fmt!(
            "{}",
            self.created.fetch_add(1, Ordering::Relaxed)
        ))
        .map_err(|_| NoMemory)?;
        let name = name.to_str().map_err(|_| NoMemory)?;
        let group = parent.create(name).map_err(|_| NoMemory)?;
        let (memcg, id) = (of.0, group.id().index());
        // Its list could not set the shrinker's bit, so its entries would not be reclaimed.
        if !memcg.is_null() && id >= MAX_GROUPS {
            if !IS_FULL_REPORTED.swap(true, Ordering::Relaxed) {
                pr_err!("{MAX_GROUPS} groups exist or have entries: inserts of more groups fail\n");
            }
            let _ = group.offline();
            return Err(NoMemory);
        }
        while known.len() <= id {
            if let Err(error) = known.push(None, GFP_KERNEL) {
                let _ = group.offline();
                return Err(error.into());
            }
        }
        known[id] = Some((of, group.clone()));
        if !memcg.is_null() {
            // Release: pairs with the load in `control_group_of`.
            CONTROL_GROUPS[id].store(memcg, Ordering::Release);
            // SAFETY: `known` has a reference of the control group.
            let number = unsafe { lowwater_memcg_id(memcg) };
            // Release: pairs with the load in `group_of`.
            IDS[usize::from(number)].store(id as u16, Ordering::Release);
        }
        Ok(group)
    }

    /// Returns the group of a control group after creating those that are missing: its own and its
    /// ancestors'. A control group that is removed meanwhile gets none, because the kernel does not
    /// report its end again; nor does one more than `Memcg::DEPTH_MAX` levels below the root. The
    /// entries of such a control group belong to the group of its nearest ancestor.
    ///
    /// # Safety
    ///
    /// `memcg` is a control group that lives during the call.
    unsafe fn create_for(
        &self,
        known: &mut KVVec<Known>,
        memcg: *mut c_void,
    ) -> Result<Memcg, NoMemory> {
        let mut live = memcg;
        // The kernel marks a control group before it calls `ended`, which takes the lock of
        // `known`: unmarked now, it and its ancestors end after their groups exist.
        //
        // SAFETY: `memcg` is live (this function's requirement), and so are its ancestors.
        while unsafe { lowwater_memcg_is_dying(live) } {
            // SAFETY: An ancestor of `memcg` that is not the root, which is never removed.
            live = unsafe { lowwater_memcg_parent(live) };
        }
        // One level each time.
        loop {
            let (mut at, mut child) = (live, None);
            let group = loop {
                // SAFETY: It is `memcg` or an ancestor, which live (this function's requirement).
                if unsafe { lowwater_memcg_is_root(at) } {
                    break self.tree.root().clone();
                }
                // SAFETY: It is `memcg` or an ancestor, which live (this function's requirement).
                if let Some(group) = unsafe { self.group_of(at) } {
                    break group;
                }
                child = Some(at);
                // SAFETY: It lives, as `memcg` or an ancestor does, and is not the root.
                at = unsafe { lowwater_memcg_parent(at) };
            };
            match child {
                Some(child) if group.depth() < Memcg::DEPTH_MAX => {
                    // SAFETY: It is `memcg` or an ancestor, which live (this function's
                    // requirement). The reference is the new `ControlGroup`'s.
                    unsafe { lowwater_memcg_hold(child) };
                    let created = self.create(known, &group, ControlGroup(child))?;
                    if child == live {
                        return Ok(created);
                    }
                }
                _ => return Ok(group),
            }
        }
    }

    /// Returns the group of a control group, if it has one. Takes no lock that is held while memory
    /// is allocated.
    ///
    /// # Safety
    ///
    /// `memcg` is a control group that lives during the call.
    unsafe fn group_of(&self, memcg: *mut c_void) -> Option<Memcg> {
        // SAFETY: `memcg` is live (this function's requirement).
        let number = unsafe { lowwater_memcg_id(memcg) };
        // Acquire: pairs with the store in `create`.
        let id = IDS[usize::from(number)].load(Ordering::Acquire);
        let group = self.tree.get(MemcgId::new(id.into()))?;
        // The group's handle keeps its id from another group. Root has none.
        (control_group_of(&group) == memcg).then_some(group)
    }
}

/// The groups, from `begin` to the drop of their [`Owner`]; null before and after.
static GROUPS: AtomicPtr<Groups> = AtomicPtr::new(ptr::null_mut());

/// The owner of the groups. Dropping it takes them offline, so that their entries become the
/// root's, and frees them. No task allocates entries then: the module's file is gone.
pub(crate) struct Owner(KBox<Groups>);

/// Creates the root group.
pub(crate) fn begin() -> Result<Owner, NoMemory> {
    let tree = MemcgTree::try_new(0).map_err(|_| NoMemory)?;
    let known = KBox::pin_init(new_mutex!(KVVec::new(), "groups"), GFP_KERNEL)?;
    let mut groups = KBox::new(
        Groups {
            tree,
            known,
            created: AtomicUsize::new(0),
        },
        GFP_KERNEL,
    )?;
    // Release: pairs with the load in `current`.
    GROUPS.store(&mut *groups, Ordering::Release);
    Ok(Owner(groups))
}

#[allow(dead_code)] // A module uses the parts that it needs.
impl Owner {
    /// Creates groups of no control group.
    pub(crate) fn create_idle(&self, groups: usize) -> Result<(), NoMemory> {
        let mut known = self.0.known.lock();
        for _ in 0..groups {
            let of = ControlGroup(ptr::null_mut());
            self.0.create(&mut known, self.0.tree.root(), of)?;
        }
        Ok(())
    }

    /// The tree of lowwater's groups.
    pub(crate) fn tree(&self) -> &MemcgTree {
        &self.0.tree
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        GROUPS.store(ptr::null_mut(), Ordering::Relaxed);
        let mut known = core::mem::replace(&mut *self.0.known.lock(), KVVec::new());
        // Children go offline before their parents.
        known.sort_unstable_by_key(|known| {
            Reverse(known.as_ref().map_or(0, |(_, group)| group.depth()))
        });
        for (control_group, group) in known.into_iter().flatten() {
            end(control_group, &group);
        }
    }
}

/// Takes a group offline, and drops the reference of its control group.
fn end(control_group: ControlGroup, group: &Memcg) {
    // Before the id can be that of another group. The kernel asks no shrinker for a group that
    // ends.
    if let Some(at) = CONTROL_GROUPS.get(group.id().index()) {
        at.store(ptr::null_mut(), Ordering::Relaxed);
    }
    // Its children have ended, as the kernel ends those first, and it ends once: no error is
    // possible.
    let _ = group.offline();
    drop(control_group);
}

/// Returns the control group of a group; null if there is none. It may be used until the caller
/// releases the spin lock that it holds.
pub(crate) fn control_group_of(group: &Memcg) -> *mut c_void {
    let at = CONTROL_GROUPS.get(group.id().index());
    // Acquire: pairs with the store in `create`.
    at.map_or(ptr::null_mut(), |at| at.load(Ordering::Acquire))
}

/// Returns the group of a control group, if it has one. A shrinker may call it.
///
/// # Safety
///
/// `memcg` is null or a control group that lives during the call.
#[allow(dead_code)] // A module uses the parts that it needs.
pub(crate) unsafe fn of(memcg: *mut c_void) -> Option<Memcg> {
    // Acquire: pairs with the store in `begin`.
    let groups = GROUPS.load(Ordering::Acquire);
    // SAFETY: Null, or the groups of the `Owner`, which outlives the shrinker that asks.
    let groups = unsafe { groups.as_ref() }?;
    if memcg.is_null() {
        return None;
    }
    // SAFETY: `memcg` is live (this function's requirement).
    unsafe { groups.group_of(memcg) }
}

/// Whether a control group is the root, to which lowwater's root corresponds.
///
/// # Safety
///
/// `memcg` is null or a control group that lives during the call.
#[allow(dead_code)] // A module uses the parts that it needs.
pub(crate) unsafe fn is_root(memcg: *mut c_void) -> bool {
    // SAFETY: `memcg` is null or live (this function's requirement).
    unsafe { lowwater_memcg_is_root(memcg) }
}

/// Ends the group of a control group that has ended. May sleep.
///
/// # Safety
///
/// `memcg` is a control group that lives during the call.
#[allow(dead_code)] // A module uses the parts that it needs.
pub(crate) unsafe fn ended(memcg: *mut c_void) {
    // Acquire: pairs with the store in `begin`.
    let groups = GROUPS.load(Ordering::Acquire);
    // SAFETY: Null, or the groups of the `Owner`, which outlives the notifier.
    let Some(groups) = (unsafe { groups.as_ref() }) else {
        return;
    };
    let mut known = groups.known.lock();
    // SAFETY: `memcg` is live (this function's requirement).
    let group = unsafe { groups.group_of(memcg) };
    let found = group.and_then(|group| known.get_mut(group.id().index())?.take());
    drop(known);
    if let Some((control_group, group)) = found {
        end(control_group, &group);
    }
}

/// Returns the group of the current task's control group. May sleep.
pub(crate) fn current() -> Result<Memcg, NoMemory> {
    // Acquire: pairs with the store in `begin`.
    let groups = GROUPS.load(Ordering::Acquire);
    // SAFETY: Null, or the groups of the `Owner`, which outlives the tasks that allocate.
    let groups = unsafe { groups.as_ref() }.ok_or(NoMemory)?;
    // SAFETY: The function has no requirements.
    let mine = ControlGroup(unsafe { lowwater_memcg_get() });
    // SAFETY: The reference keeps the control group.
    if unsafe { lowwater_memcg_is_root(mine.0) } {
        return Ok(groups.tree.root().clone());
    }
    // SAFETY: `mine` has a reference of the control group.
    if let Some(group) = unsafe { groups.group_of(mine.0) } {
        return Ok(group);
    }
    // SAFETY: `mine` has a reference of the control group.
    unsafe { groups.create_for(&mut groups.known.lock(), mine.0) }
}
