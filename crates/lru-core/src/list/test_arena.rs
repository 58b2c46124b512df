//! A slot allocator for tests, without the slab of `lowwater-store`: chunks are freed with the
//! arena.
//!
//! With it, lists whose links are slot numbers are tested in this crate, although the slab is in a
//! crate above.
//!
//! The arena must hand out numbers as the slab does: one for each slot, none twice at a time.

use super::Handle;
use crate::sync::Mutex;
use crate::NodeId;
use alloc::alloc::{alloc, dealloc};
use alloc::vec::Vec;
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use lowwater_base::slots::{ChunkHeader, ChunkLayout, ChunkOwner, ChunkTable};

/// Chunks of slots for `T`s. All handles must be dropped before the arena.
pub(crate) struct Arena<T>(Mutex<Chunks>, PhantomData<T>);

#[derive(Default)]
struct Chunks {
    chunks: Vec<NonNull<u8>>,
    /// The number of used slots in the last chunk.
    used: usize,
}

/// The handle of an object in an [`Arena`]. Its slot is not reused.
pub(crate) struct ArenaSlot<T>(NonNull<T>);

// SAFETY: the pointers are used only under the arena's lock.
unsafe impl Send for Chunks {}
// SAFETY: a slot owns a `T`, as a box does, and `T` is `Send`.
unsafe impl<T: Send> Send for ArenaSlot<T> {}

impl<T> Arena<T> {
    const LAYOUT: ChunkLayout = ChunkLayout::of::<T>();

    pub(crate) fn new() -> Self {
        Self(Mutex::new(Chunks::default()), PhantomData)
    }

    fn layout() -> Layout {
        Layout::from_size_align(Self::LAYOUT.full, Self::LAYOUT.full).unwrap()
    }

    pub(crate) fn alloc(&self, value: T) -> ArenaSlot<T> {
        let mut this = self.0.lock();
        if this.chunks.is_empty() || this.used == Self::LAYOUT.slots(Self::LAYOUT.full) {
            // SAFETY: the size of the layout is not 0.
            let chunk = NonNull::new(unsafe { alloc(Self::layout()) }).unwrap();
            let number = ChunkTable::global().register(chunk.as_ptr(), Self::LAYOUT.numbers_end()).unwrap();
            let header = ChunkHeader::whole(number, NodeId::ZERO, ChunkOwner::new(ptr::null(), 0));
            // SAFETY: the chunk begins with room for its header.
            unsafe { chunk.cast::<ChunkHeader>().write(header) };
            this.chunks.push(chunk);
            this.used = 0;
        }
        let offset = Self::LAYOUT.first + this.used * Self::LAYOUT.slot;
        this.used += 1;
        // SAFETY: `offset` is that of a slot of the chunk.
        let slot = unsafe { this.chunks.last().unwrap().add(offset) }.cast::<T>();
        // SAFETY: the slot has not been used yet.
        unsafe { slot.write(value) };
        ArenaSlot(slot)
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        for chunk in &self.0.lock().chunks {
            // SAFETY: the chunk begins with its header, which `alloc` initialized.
            let number = unsafe { chunk.cast::<ChunkHeader>().as_ref() }.table_number;
            // SAFETY: the number was registered in `alloc`, and no handle exists any more (contract
            // of `Arena`).
            unsafe { ChunkTable::global().unregister(number) };
            // SAFETY: the chunk was allocated with this layout.
            unsafe { dealloc(chunk.as_ptr(), Self::layout()) };
        }
    }
}

impl<T> Deref for ArenaSlot<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the object lives as long as its handle.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for ArenaSlot<T> {
    fn drop(&mut self) {
        // SAFETY: there is one handle for each object, so it is dropped once.
        unsafe { self.0.drop_in_place() };
    }
}

// SAFETY: an object neither moves nor is freed while its handle exists, as a value or as a pointer.
unsafe impl<T> Handle for ArenaSlot<T> {
    type Target = T;
    const UNIQUE: bool = true;

    fn into_raw(self) -> NonNull<T> {
        let object = self.0;
        core::mem::forget(self);
        object
    }

    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        Self(raw)
    }
}

/// Implements [`Linked`](super::Linked) for a type with
/// [`CompressedLinks`](super::CompressedLinks).
macro_rules! in_arena {
    ($type:ty { $links:ident }) => {
        $crate::linked!(@impl[] for $type { $links: CompressedLinks, handle: $crate::list::test_arena::ArenaSlot<Self> });
        // SAFETY: the only handle of the type is `ArenaSlot`, which is in a registered chunk.
        unsafe impl $crate::list::InSlots for $type {}
    };
}
pub(crate) use in_arena;
