//! Bytes of one's own or something shared, in 12 bytes.
//!
//! ```text
//!     Box<[u8]>             pointer 8 | length 8                            16
//!     enum { that, Arc<T> } pointer 8 | length 8                            16, and 8 with anything beside it
//!     CompactBytes<T>               pointer 8 | length 2 | note 2                   12, and goes where 4 bytes go
//! ```
//!
//! A cache of a million short values pays a million times for what a value is beside its bytes. This one leaves room for 4 bytes more in
//! 16, and puts nothing into the block: an allocator rounds that up to the next 16, so a length there can cost 16 of its own. Which of the
//! two it is, the length says.
//!
//! Costs: own bytes are fewer than 64 KiB, and a copy of them is a copy. What is longer is to be shared.
//!
//! # Why not a crate
//!
//! thin-vec, and triomphe's `ThinArc`, have 16 bytes of length and more in the block. slimmer_box has the length beside the pointer, too, but
//! nothing that can be shared, so that a value of both kinds needs a tag and a block more; and next to nobody uses it. thin-slice hides the
//! length in the pointer's upper bits, of one processor only.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

/// See the [module](self).
///
/// The 16 bits of its note are its owner's: what they mean is not known here.
///
/// ```
/// use lowwater_base::compact_bytes::{CompactBytes, Kept};
/// use std::sync::Arc;
///
/// let short = CompactBytes::<Vec<u64>>::own(Box::from(*b"a few bytes"), 7).expect("not too long");
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
/// 1. If `len` is not `SHARED`, `pointer` is that of a `Box<[u8]>` of `len` bytes, which is ours.
/// 2. If it is, `pointer` is that of an `Arc<T>`, of which one count is ours.
// So that it goes where 4 bytes go: the pointer is copied out, never referred to.
#[repr(C, packed(4))]
pub struct CompactBytes<T> {
    pointer: NonNull<u8>,
    len: u16,
    note: u16,
    shares: PhantomData<Arc<T>>,
}

/// What a [`CompactBytes`] is.
#[derive(Debug)]
pub enum Kept<'a, T> {
    /// Bytes of its own.
    Own(&'a [u8]),
    /// Shared with its clones.
    Shared(&'a T),
}

/// The length of what is shared.
const SHARED: u16 = u16::MAX;

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<CompactBytes<u64>>() == 12 && size_of::<Option<CompactBytes<u64>>>() == 12);

// SAFETY: it is a box of bytes or an `Arc<T>`, and both go to another thread with such a `T`.
unsafe impl<T: Send + Sync> Send for CompactBytes<T> {}
// SAFETY: as for Send.
unsafe impl<T: Send + Sync> Sync for CompactBytes<T> {}

impl<T> CompactBytes<T> {
    /// Own bytes are at most so many.
    pub const BYTES_MAX: usize = SHARED as usize - 1;

    /// Bytes of its own, with a note. O(1), takes no memory.
    ///
    /// # Errors
    ///
    /// The bytes, if they are more than [`BYTES_MAX`](Self::BYTES_MAX).
    #[inline]
    pub fn own(bytes: Box<[u8]>, note: u16) -> Result<Self, Box<[u8]>> {
        match u16::try_from(bytes.len()) {
            // Invariant 1: from here on the box is ours.
            Ok(len) if len != SHARED => Ok(Self::new(Box::into_raw(bytes).cast(), len, note)),
            _ => Err(bytes),
        }
    }

    /// What is shared with others and with its clones, with a note. O(1), takes no memory.
    #[inline]
    pub fn share(shared: Arc<T>, note: u16) -> Self {
        // Invariant 2: from here on its count is ours.
        Self::new(Arc::into_raw(shared).cast_mut().cast(), SHARED, note)
    }

    fn new(pointer: *mut u8, len: u16, note: u16) -> Self {
        // SAFETY: it came from a box or an `Arc`, which are never null.
        let pointer = unsafe { NonNull::new_unchecked(pointer) };
        Self { pointer, len, note, shares: PhantomData }
    }

    /// What it is. O(1).
    #[inline]
    pub fn get(&self) -> Kept<'_, T> {
        match self.len {
            // SAFETY: invariant 2, and ours is a count for as long as `self` is borrowed.
            SHARED => Kept::Shared(unsafe { self.pointer.cast::<T>().as_ref() }),
            // SAFETY: invariant 1, and nobody writes to the box while `self` is borrowed.
            _ => Kept::Own(unsafe { &*self.own_bytes() }),
        }
    }

    /// The box of invariant 1; where that does not hold, nothing that may be looked at.
    fn own_bytes(&self) -> *mut [u8] {
        ptr::slice_from_raw_parts_mut(self.pointer.as_ptr(), usize::from(self.len))
    }

    /// What was noted.
    #[inline]
    pub fn note(&self) -> u16 {
        self.note
    }

    /// Notes something else.
    #[inline]
    pub fn set_note(&mut self, note: u16) {
        self.note = note;
    }
}

impl<T> Clone for CompactBytes<T> {
    /// Copies own bytes, which takes memory (without any the process ends); shares what is shared.
    fn clone(&self) -> Self {
        match self.get() {
            Kept::Own(bytes) => Self::new(Box::into_raw(Box::<[u8]>::from(bytes)).cast(), self.len, self.note),
            Kept::Shared(_) => {
                let pointer = self.pointer.as_ptr();
                // SAFETY: invariant 2; the count that this adds is the clone's.
                unsafe { Arc::increment_strong_count(pointer.cast::<T>()) };
                Self::new(pointer, self.len, self.note)
            }
        }
    }
}

impl<T> Drop for CompactBytes<T> {
    fn drop(&mut self) {
        if self.len == SHARED {
            // SAFETY: invariant 2, and nobody uses it after this.
            drop(unsafe { Arc::from_raw(self.pointer.cast::<T>().as_ptr()) });
        } else {
            // SAFETY: invariant 1, and nobody uses it after this.
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

    fn bytes<T>(slim: &CompactBytes<T>) -> &[u8] {
        match slim.get() {
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

    #[test]
    fn too_many_bytes_come_back() {
        for length in [CompactBytes::<()>::BYTES_MAX + 1, CompactBytes::<()>::BYTES_MAX + 2, 1 << 20] {
            let refused = CompactBytes::<()>::own(vec![7; length].into_boxed_slice(), 0);
            assert_eq!(refused.err().map(|bytes| bytes.len()), Some(length));
        }
    }

    #[test]
    fn what_is_shared_is_dropped_with_the_last() {
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

    /// Where 4 bytes go, whatever the shared type wants for itself.
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
    fn it_goes_to_other_threads() {
        let shared = CompactBytes::share(Arc::new(AtomicU32::new(0)), 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (lent, given) = (&shared, shared.clone());
                scope.spawn(move || {
                    for slim in [lent, &given, &lent.clone()] {
                        let Kept::Shared(count) = slim.get() else { panic!("it is shared") };
                        // Relaxed: it is read when the threads have ended.
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        // Relaxed: as above.
        assert!(matches!(shared.get(), Kept::Shared(count) if count.load(Ordering::Relaxed) == 12));
    }
}
