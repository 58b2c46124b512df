//! Short owned bytes, or a shared value, in 12 bytes (on 64-bit targets), with 16 bits for its
//! user: the note.
//!
//! ```text
//!     Box<[u8]>                pointer 8 | length 8                   16
//!     enum { Box, Arc<T> }     pointer 8 | length 8                   16, and 8 more with any other field
//!     CompactBytes<T>          pointer 8 | length 2 | note 2          12, aligned to 4 bytes
//! ```
//!
//! A cache of a million short values pays a million times for each value's overhead beside its
//! bytes. This type leaves room for a field of 4 bytes in a struct of 16, and stores nothing in the
//! allocation: an allocator rounds sizes up to a multiple of 16, so a length in the allocation can
//! cost 16 bytes more. The length also distinguishes the two kinds.
//!
//! Costs: owned bytes are fewer than 64 KiB, and a clone of them copies. Longer values should be
//! shared.
//!
//! # Why not a crate
//!
//! thin-vec, and triomphe's `ThinArc`, put a header of 16 bytes or more in the allocation.
//! slimmer_box has the length beside the pointer, too, but nothing that can be shared, so that a
//! value of both kinds needs a tag and another allocation; and it has almost no users. thin-slice
//! hides the length in the pointer's upper bits, on one processor architecture only.
//!
//! A change must ensure that owned bytes never have the length `SHARED` (their box would be dropped
//! as an `Arc`), and that the type stays at 12 bytes.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

/// Owned bytes or a shared `T`, with a note: 16 bits to which the user gives a meaning. See the
/// [module](self).
///
/// ```
/// use lowwater_base::compact_bytes::{CompactBytes, Kept};
/// use std::sync::Arc;
///
/// let short = CompactBytes::<Vec<u64>>::own(Box::from(*b"a few bytes"), 7).expect("the bytes fit");
/// let long = CompactBytes::share(Arc::new(vec![0_u64; 100_000]), 8);
/// assert_eq!(size_of_val(&short), 12);
/// for value in [short, long] {
///     match value.get() {
///         Kept::Own(bytes) => assert_eq!((bytes, value.note()), (&b"a few bytes"[..], 7)),
///         Kept::Shared(numbers) => assert_eq!((numbers.len(), value.note()), (100_000, 8)),
///     }
/// }
/// ```
///
/// # Invariants
///
/// 1. If `len` is not `SHARED`, `pointer` came from a `Box<[u8]>` of `len` bytes, which this value
///    owns.
/// 2. If `len` is `SHARED`, `pointer` came from an `Arc<T>`, of which this value owns one count.
// Packed, so that it needs an alignment of 4 bytes only; the pointer is copied out, and never
// borrowed.
#[repr(C, packed(4))]
pub struct CompactBytes<T> {
    pointer: NonNull<u8>,
    /// The number of owned bytes, or [`SHARED`].
    len: u16,
    note: u16,
    /// A drop may drop a `T`.
    shares: PhantomData<Arc<T>>,
}

/// The contents of a [`CompactBytes`], borrowed by [`CompactBytes::get`].
#[derive(Debug)]
pub enum Kept<'a, T> {
    /// Bytes that this value alone owns, at most [`CompactBytes::BYTES_MAX`]. A clone copies them.
    Own(&'a [u8]),
    /// A value shared with its clones.
    Shared(&'a T),
}

/// The `len` of a shared value.
const SHARED: u16 = u16::MAX;

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<CompactBytes<u64>>() == 12 && size_of::<Option<CompactBytes<u64>>>() == 12);

// SAFETY: the value is a box of bytes or an `Arc<T>`, which are `Send` for such a `T`.
unsafe impl<T: Send + Sync> Send for CompactBytes<T> {}
// SAFETY: the value is a box of bytes or an `Arc<T>`, which are `Sync` for such a `T`.
unsafe impl<T: Send + Sync> Sync for CompactBytes<T> {}

impl<T> CompactBytes<T> {
    /// The maximum number of owned bytes: 65,534. Longer values must be shared.
    pub const BYTES_MAX: usize = SHARED as usize - 1;

    /// Creates a value of owned bytes, with a note. O(1), allocates nothing.
    ///
    /// # Errors
    ///
    /// The bytes, if there are more than [`BYTES_MAX`](Self::BYTES_MAX).
    #[inline]
    pub fn own(bytes: Box<[u8]>, note: u16) -> Result<Self, Box<[u8]>> {
        match u16::try_from(bytes.len()) {
            // Invariant 1: from here on this value owns the box.
            Ok(len) if len != SHARED => Ok(Self::new(Box::into_raw(bytes).cast(), len, note)),
            _ => Err(bytes),
        }
    }

    /// Creates a value that shares `shared` with other owners and with its clones, with a note.
    /// O(1), allocates nothing.
    #[inline]
    pub fn share(shared: Arc<T>, note: u16) -> Self {
        // Invariant 2: from here on this value owns the count.
        Self::new(Arc::into_raw(shared).cast_mut().cast(), SHARED, note)
    }

    fn new(pointer: *mut u8, len: u16, note: u16) -> Self {
        // SAFETY: the pointer came from a box or an `Arc`, which are never null.
        let pointer = unsafe { NonNull::new_unchecked(pointer) };
        Self { pointer, len, note, shares: PhantomData }
    }

    /// Returns the bytes or the shared value, without a copy. O(1).
    #[inline]
    pub fn get(&self) -> Kept<'_, T> {
        match self.len {
            // SAFETY: by invariant 2 this value owns a count, for as long as `self` is borrowed.
            SHARED => Kept::Shared(unsafe { self.pointer.cast::<T>().as_ref() }),
            // SAFETY: by invariant 1 this value owns the box, and no code writes to it while `self`
            // is borrowed.
            _ => Kept::Own(unsafe { &*self.own_bytes() }),
        }
    }

    /// Returns the box of invariant 1; if the value is shared, the result must not be dereferenced.
    fn own_bytes(&self) -> *mut [u8] {
        ptr::slice_from_raw_parts_mut(self.pointer.as_ptr(), usize::from(self.len))
    }

    /// Returns the note: 16 bits, given at the creation or by [`set_note`](Self::set_note).
    #[inline]
    pub fn note(&self) -> u16 {
        self.note
    }

    /// Replaces the note. The contents do not change, and clones keep their own notes.
    #[inline]
    pub fn set_note(&mut self, note: u16) {
        self.note = note;
    }
}

impl<T> Clone for CompactBytes<T> {
    /// Copies owned bytes, which allocates (and aborts if there is no memory); shares a shared
    /// value.
    fn clone(&self) -> Self {
        match self.get() {
            Kept::Own(bytes) => Self::new(Box::into_raw(Box::<[u8]>::from(bytes)).cast(), self.len, self.note),
            Kept::Shared(_) => {
                let pointer = self.pointer.as_ptr();
                // SAFETY: by invariant 2 the pointer is that of a live `Arc`; the clone owns the
                // count that this adds.
                unsafe { Arc::increment_strong_count(pointer.cast::<T>()) };
                Self::new(pointer, self.len, self.note)
            }
        }
    }
}

impl<T> Drop for CompactBytes<T> {
    fn drop(&mut self) {
        if self.len == SHARED {
            // SAFETY: by invariant 2 this value owns a count, and it is not used after its drop.
            drop(unsafe { Arc::from_raw(self.pointer.cast::<T>().as_ptr()) });
        } else {
            // SAFETY: by invariant 1 this value owns the box, and it is not used after its drop.
            drop(unsafe { Box::from_raw(self.own_bytes()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for CompactBytes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactBytes").field("kept", &self.get()).field("note", &self.note()).finish()
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::sync::atomic::{AtomicU32, Ordering};

    fn own<T>(bytes: &[u8], note: u16) -> CompactBytes<T> {
        CompactBytes::own(Box::from(bytes), note).unwrap_or_else(|bytes| panic!("{} bytes are too many", bytes.len()))
    }

    fn bytes<T>(value: &CompactBytes<T>) -> &[u8] {
        match value.get() {
            Kept::Own(bytes) => bytes,
            Kept::Shared(_) => panic!("it is shared"),
        }
    }

    #[test]
    fn own_bytes_are_a_copy_each() {
        for length in [0, 1, 300, CompactBytes::<u64>::BYTES_MAX] {
            let pattern: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let mut first = own::<u64>(&pattern, 0xabcd);
            let second = first.clone();
            assert!(bytes(&first) == pattern && bytes(&second) == pattern, "{length}");
            assert!(length == 0 || bytes(&first).as_ptr() != bytes(&second).as_ptr());
            first.set_note(1);
            drop(first.clone());
            assert!(bytes(&first) == pattern && first.note() == 1);
            drop(first);
            assert!(bytes(&second) == pattern);
            assert_eq!(second.note(), 0xabcd);
        }
    }

    // `docs/HAZARDS.md` quotes this name.
    #[test]
    fn too_many_bytes_are_returned_as_an_error() {
        for length in [CompactBytes::<()>::BYTES_MAX + 1, CompactBytes::<()>::BYTES_MAX + 2, 1 << 20] {
            let refused = CompactBytes::<()>::own(vec![7; length].into_boxed_slice(), 0);
            assert_eq!(refused.err().map(|bytes| bytes.len()), Some(length));
        }
    }

    #[test]
    fn a_shared_value_is_dropped_with_its_last_clone() {
        let shared = Arc::new(vec![1_u64, 2, 3]);
        let first = CompactBytes::share(Arc::clone(&shared), 3);
        let mut second = first.clone();
        second.set_note(u16::MAX);
        assert_eq!((first.note(), second.note(), Arc::strong_count(&shared)), (3, u16::MAX, 3));
        drop(first);
        assert!(matches!(second.get(), Kept::Shared(numbers) if ptr::eq(numbers, &*shared)));
        let weak = Arc::downgrade(&shared);
        drop(shared);
        assert!(weak.upgrade().is_some());
        drop(second);
        assert!(weak.upgrade().is_none());
    }

    /// An alignment of 4 bytes suffices, whatever the alignment of the shared type.
    #[test]
    fn any_place_and_any_type_will_do() {
        #[repr(align(64))]
        #[derive(Debug, PartialEq)]
        struct Wide(u8);
        #[repr(C)]
        struct Beside<T>(u32, CompactBytes<T>);

        let wide = [Beside(1, CompactBytes::share(Arc::new(Wide(9)), 5)), Beside(2, own(b"abc", 6))];
        let nothing = Beside(3, CompactBytes::share(Arc::new(()), 7));
        #[cfg(target_pointer_width = "64")]
        assert_eq!((size_of_val(&wide), size_of_val(&nothing)), (32, 16));
        assert!(matches!(wide[0].1.clone().get(), Kept::Shared(Wide(9))));
        assert_eq!((wide[0].0, wide[0].1.note(), bytes(&wide[1].1), wide[1].1.note()), (1, 5, &b"abc"[..], 6));
        assert!(matches!(nothing.1.clone().get(), Kept::Shared(())));
        assert_eq!(alloc::format!("{:?}", wide[1].1), "CompactBytes { kept: Own([97, 98, 99]), note: 6 }");
    }

    #[test]
    fn can_be_sent_to_another_thread() {
        let shared = CompactBytes::share(Arc::new(AtomicU32::new(0)), 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (lent, given) = (&shared, shared.clone());
                scope.spawn(move || {
                    for value in [lent, &given, &lent.clone()] {
                        let Kept::Shared(count) = value.get() else { panic!("it is shared") };
                        // Relaxed: the count is read after the threads have ended.
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        // Relaxed: the threads have ended.
        assert!(matches!(shared.get(), Kept::Shared(count) if count.load(Ordering::Relaxed) == 12));
    }
}
