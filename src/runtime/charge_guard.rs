//! [`Charge`]: a charge that is uncharged when it is dropped.
//!
//! For memory that is no cache entry: buffers, values held by readers. A guard that is leaked keeps
//! its bytes charged for ever, and nothing else goes wrong.
//!
//! A change must ensure that a guard uncharges exactly the bytes and the group that it charged.

use lowwater_lru_core::{ByteSize, Memcg, OverLimit};

use super::handle::Runtime;

/// A guard for bytes that are charged to a group until the guard is dropped; from
/// [`Runtime::charge_guard`].
///
/// So the budget includes memory outside of the caches: a request's buffers, a connection, the
/// values that readers hold. A `Charge` consists of a handle on the group and a number. It has no
/// handle on the runtime: it may be dropped on any thread, inside any callback, and after the
/// runtime's last handle. After the end of the group the bytes stay counted in the group's
/// ancestors until the drop. A group that has ended can still be charged: the bytes are counted in
/// the group and in its ancestors, within the limits of all. The `max` of a group that is ended by
/// [`drop_group`](Runtime::drop_group) is 0 until the [hooks](crate::MemcgTree::add_hook) for its
/// end have returned; from then on there is none. [`mem::forget`](std::mem::forget) leaves the
/// bytes charged for ever.
///
/// ```
/// use lowwater::{ByteSize, Runtime};
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
/// let group = runtime.group("requests")?;
///
/// let mut charge = runtime.charge_guard(&group, ByteSize::kib(64))?;
/// let buffer = vec![0_u8; 64 << 10];
/// charge.resize(&runtime, ByteSize::kib(96))?;
/// let body = charge.split(ByteSize::kib(32)).expect("the guard holds 96 KiB");
/// assert_eq!((charge.bytes(), body.bytes()), (ByteSize::kib(64), ByteSize::kib(32)));
///
/// drop((buffer, charge));
/// assert!(runtime.charge_guard(&group, ByteSize::mib(1)).is_err(), "32 KiB are still charged");
/// drop(body);
/// assert!(runtime.charge_guard(&group, ByteSize::mib(1)).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the bytes are uncharged when this is dropped"]
#[doc(alias = "MemoryReservation")]
pub struct Charge {
    group: Memcg,
    bytes: ByteSize,
}

/// The error of [`Runtime::charge_guard`], [`Charge::grow`] and [`Charge::resize`]; no charge has
/// changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChargeError {
    /// The `max` of the group or of an ancestor refused: see [`Runtime::charge`].
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// The group belongs to another runtime.
    #[error("the group {group} is not of this runtime: take one from there, with Runtime::group")]
    ForeignGroup {
        /// The path of the group.
        group: String,
    },
}

impl Runtime {
    /// Charges `bytes` to `group` until the returned [`Charge`] is dropped. Reclaims memory as
    /// [`charge`](Self::charge) does, within the same bounds and under the same conditions. The
    /// group may have ended: see [`Charge`]. O(depth) where there is room.
    ///
    /// # Errors
    ///
    /// [`ChargeError`]; nothing is charged then.
    pub fn charge_guard(&self, group: &Memcg, bytes: ByteSize) -> Result<Charge, ChargeError> {
        let mut charge = Charge { group: group.clone(), bytes: ByteSize::ZERO };
        charge.grow(self, bytes)?;
        Ok(charge)
    }
}

impl Charge {
    /// Returns the group that was charged, as given to [`Runtime::charge_guard`]. It may have
    /// ended: see [`Charge`].
    pub fn group(&self) -> &Memcg {
        &self.group
    }

    /// Returns the bytes that are charged now, and that the drop uncharges. [`grow`](Self::grow),
    /// [`shrink`](Self::shrink), [`resize`](Self::resize) and [`split`](Self::split) change them.
    pub fn bytes(&self) -> ByteSize {
        self.bytes
    }

    /// Charges `more` bytes, as [`Runtime::charge_guard`] does.
    ///
    /// # Errors
    ///
    /// [`ChargeError`]; the charge is unchanged then. A sum of more than [`ByteSize::MAX`] is over
    /// the limit, even of a group without a limit.
    pub fn grow(&mut self, runtime: &Runtime, more: ByteSize) -> Result<(), ChargeError> {
        if !runtime.owns(&self.group) {
            return Err(ChargeError::ForeignGroup { group: self.group.try_path().unwrap_or_default() });
        }
        runtime.charge(&self.group, more)?;
        // The group's usage has counted the sum, so the sum does not overflow.
        self.bytes = self.bytes.saturating_add(more);
        Ok(())
    }

    /// Uncharges `less` bytes, or all charged bytes if they are fewer. Returns the number of
    /// uncharged bytes.
    pub fn shrink(&mut self, less: ByteSize) -> ByteSize {
        let less = less.min(self.bytes);
        self.bytes = self.bytes.saturating_sub(less);
        self.group.uncharge(less);
        less
    }

    /// Grows or shrinks the charge to `bytes`.
    ///
    /// # Errors
    ///
    /// Those of [`grow`](Self::grow).
    pub fn resize(&mut self, runtime: &Runtime, bytes: ByteSize) -> Result<(), ChargeError> {
        if bytes > self.bytes {
            return self.grow(runtime, bytes.saturating_sub(self.bytes));
        }
        self.shrink(self.bytes.saturating_sub(bytes));
        Ok(())
    }

    /// Returns a guard for bytes that were charged to `group` before.
    pub(crate) fn of_paid(group: Memcg, bytes: ByteSize) -> Self {
        Self { group, bytes }
    }

    /// Ends the guard, and leaves its bytes charged: the caller uncharges them.
    pub(crate) fn into_paid(mut self) -> ByteSize {
        std::mem::take(&mut self.bytes)
    }

    /// Moves `bytes` into a new charge of the same group; `None` if fewer are charged. The group's
    /// usage does not change.
    pub fn split(&mut self, bytes: ByteSize) -> Option<Self> {
        if bytes > self.bytes {
            return None;
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(Self { group: self.group.clone(), bytes })
    }
}

impl Charge {
    /// Takes the bytes, which stay charged to the group.
    pub(super) fn take(&mut self) -> ByteSize {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(ByteSize::MAX);
    }
}
