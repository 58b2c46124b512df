//! The memory of a chunk together with its number in the chunk table.
//!
//! A change must ensure that a number is released before its memory is freed.

use super::spans::{Memory, Spans};
use lowwater_base::slots::{ChunkHeader, ChunkLayout, ChunkTable};

/// Allocates the memory of a chunk, and a number for it in the chunk table. `None` without memory,
/// or if there is no number for the slots of this layout.
pub(super) fn get_numbered(bytes: usize, layout: &ChunkLayout, spans: &mut Spans) -> Option<(Memory, u32)> {
    let memory = spans.get(bytes, layout)?;
    let Some(table_number) = ChunkTable::global().register(memory.base.as_ptr(), layout.numbers_end()) else {
        // SAFETY: the memory came from these spans just now, and no other code has it.
        unsafe { spans.put(memory, layout) };
        return None;
    };
    Some((memory, table_number))
}

/// Frees the memory of a chunk and its number.
///
/// # Safety
///
/// The memory came from [`get_numbered`] with these spans and this layout, and begins with a header
/// that has its number. No slot is in use, and no number of one.
pub(super) unsafe fn put_numbered(memory: Memory, layout: &ChunkLayout, spans: &mut Spans) {
    // SAFETY: the memory begins with a header (this function's clause).
    let table_number = unsafe { (*memory.base.as_ptr().cast::<ChunkHeader>()).table_number };
    // SAFETY: no number of a slot is in use (this function's clause).
    unsafe { ChunkTable::global().unregister(table_number) };
    // SAFETY: the memory came from these spans, and no slot is in use (this function's clause).
    unsafe { spans.put(memory, layout) };
}
