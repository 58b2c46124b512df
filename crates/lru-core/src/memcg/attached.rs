//! Reparenting: the lists attached to a dying group move to its parent.
//!
//! The lists are a layer above groups, so groups call a function that `list_lru` installs. The
//! function must run before the offline hooks: a hook expects the items on the parent's lists.

mod lists;

pub(crate) use self::lists::{Attached, AttachedLists};

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::group::Memcg;

/// The function that reparents the lists of a dying group; null before [`install`].
static REPARENT: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Installs the function that hands the lists of a dying group, whose chain is closed, to the
/// group's parent. Must be called before the first list is attached, always with the same function.
pub(crate) fn install(reparent: fn(&Memcg)) {
    // Relaxed: the function is code, and no data is published with it. `reparent` sees the store
    // because a list is attached afterwards, under the lock of the group's attached lists, which
    // `reparent` takes first.
    REPARENT.store(reparent as *mut (), Ordering::Relaxed);
}

/// Closes the chain of a dying group, and hands the attached lists to the group's parent.
#[doc(alias = "memcg_reparent_list_lrus")]
pub(super) fn reparent(dying: &Memcg) {
    let is_empty = {
        let mut attached = dying.attached().lock();
        attached.is_closed = true;
        attached.first.is_null()
    };
    // Relaxed: a list that was found above was attached under the same lock, after `install`.
    let reparent = REPARENT.load(Ordering::Relaxed);
    if is_empty || reparent.is_null() {
        return;
    }
    // SAFETY: `install` stores functions of this type only.
    let reparent = unsafe { core::mem::transmute::<*mut (), fn(&Memcg)>(reparent) };
    reparent(dying);
}
