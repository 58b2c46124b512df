//! Memory of a short value with [`CompactBytes`], compared with crates for small owned or shared
//! byte strings: why `CompactBytes` is not replaced by one of them.
//!
//! A value is either a short byte string of its own, or something that clones share, with 2 bytes
//! of flags and 4 bytes of time beside it. The sum of two parts is compared: the part in the
//! cache's entry, and the heap block, whose size glibc rounds up to 16 bytes.
//!
//! If a crate takes fewer bytes than `CompactBytes` after an update, the decision should be made
//! again.

#![cfg(target_pointer_width = "64")]

use std::sync::Arc;

use inline_array::InlineArray;
use lowwater_base::compact_bytes::CompactBytes;
use slimmer_box::SlimmerBox;
use thin_vec::ThinVec;
use triomphe::ThinArc;

/// The part of a long value that clones share.
type Long = [usize; 5];

/// A value's part in its entry: bytes, flags, time.
#[allow(dead_code)]
struct Value<B>(B, u16, u32);

/// Owned bytes, or a shared object.
#[allow(dead_code)]
enum Either<B> {
    Own(B),
    Shared(Arc<Long>),
}

/// Returns the size of a block in glibc's allocator: a header of 8 bytes, the sum rounded up to 16,
/// at least 32. A copy of the server's `value/malloc.rs`, which a test of a program cannot call.
fn block_bytes(bytes: u64) -> u64 {
    if bytes == 0 {
        0
    } else {
        (bytes + 8).next_multiple_of(16).max(32)
    }
}

/// Returns the mean memory of a value of type `V` over `lengths`, including the block that `make`
/// allocates.
fn mean_bytes<V, B>(lengths: std::ops::Range<usize>, make: impl Fn(&[u8]) -> B) -> f64 {
    let count = lengths.len() as f64;
    let heap_bytes: u64 = lengths
        .map(|length| {
            let bytes = vec![7; length];
            let mut made = None;
            let allocated = allocation_counter::measure(|| made = Some(make(&bytes)));
            block_bytes(allocated.bytes_current as u64)
        })
        .sum();
    size_of::<V>() as f64 + heap_bytes as f64 / count
}

#[test]
fn no_library_takes_as_few_bytes_for_a_short_value() {
    // Small values, and those up to nearly `SHORT_BYTES_MAX` of `src/value.rs`. Both ranges have a
    // whole number of allocation steps of 16 bytes, so that each remainder counts equally.
    for lengths in [32..32 + 13 * 16, 256..256 + 110 * 16] {
        let compact = mean_bytes::<(CompactBytes<Long>, u32), _>(lengths.clone(), |bytes| {
            CompactBytes::<Long>::own(bytes.into(), 0).unwrap()
        });
        let others = [
            ("Box", mean_bytes::<Value<Either<Box<[u8]>>>, _>(lengths.clone(), |bytes| Box::<[u8]>::from(bytes))),
            ("Arc", mean_bytes::<Value<Either<Arc<[u8]>>>, _>(lengths.clone(), |bytes| Arc::<[u8]>::from(bytes))),
            // No room for the tag of `Either` is counted for these three: the tag could be a bit of
            // their flags.
            ("thin-vec", mean_bytes::<Value<ThinVec<u8>>, _>(lengths.clone(), |bytes| ThinVec::<u8>::from(bytes))),
            (
                "triomphe",
                mean_bytes::<Value<ThinArc<(), u8>>, _>(lengths.clone(), |bytes| {
                    ThinArc::from_header_and_slice((), bytes)
                }),
            ),
            ("inline-array", mean_bytes::<Value<InlineArray>, _>(lengths.clone(), |bytes| InlineArray::from(bytes))),
            (
                "slimmer_box",
                mean_bytes::<Value<Either<SlimmerBox<[u8], u16>>>, _>(lengths.clone(), |bytes| {
                    SlimmerBox::<[u8], u16>::from_box(bytes.into())
                }),
            ),
        ];
        println!("{lengths:?} bytes: CompactBytes {compact:.1}");
        for (name, bytes) in others {
            println!("    {name} {bytes:.1}, {:+.1}", bytes - compact);
            assert!(
                bytes >= compact + 1.0,
                "{name} takes {bytes} bytes, CompactBytes {compact}: CompactBytes could be replaced"
            );
        }
    }
}
