//! Arrays of each kind: allocated, mapped with small pages, mapped with huge pages. They must be
//! zero at first, shrink from the end, and refuse impossible lengths.

use super::*;
use crate::sync::atomic::Ordering;

/// Small arrays, mapped ones, and ones with huge pages; under Miri none is mapped.
const LENGTHS: [usize; 5] = if cfg!(miri) { [0, 1, 100, 1_000, 2_000] } else { [0, 1, 1_000, 40_000, 700_001] };

/// Returns the number of `shrink` calls that free an array of this many bytes.
fn steps_of(bytes: usize) -> usize {
    #[cfg(all(target_os = "linux", feature = "std", not(miri)))]
    if bytes >= mapped::FROM {
        return bytes.div_ceil(mapped::STEP);
    }
    let _ = bytes;
    1
}

fn sum(words: &[AtomicU64]) -> u64 {
    words.iter().map(|word| word.load(Ordering::Relaxed)).sum()
}

#[test]
fn words_are_zero_and_independent() {
    for len in LENGTHS {
        let words = ZeroedAtomics::try_new(len).unwrap();
        assert_eq!((words.len(), sum(&words)), (len, 0));
        assert_eq!(words.first.addr().get() % LINE * len, 0, "the first word begins a line");
        words.iter().zip(1..).for_each(|(word, n)| word.store(n, Ordering::Relaxed));
        assert_eq!(sum(&words), len as u64 * (len as u64 + 1) / 2);
        assert_eq!(words.footprint().get(), 8 * len as u64);
    }
}

#[test]
fn shrink_frees_the_last_words() {
    for len in LENGTHS {
        let mut words = ZeroedAtomics::try_new(len).unwrap();
        words.iter().for_each(|word| word.store(1, Ordering::Relaxed));
        let mut steps = 0;
        while words.shrink() {
            assert_eq!(sum(&words), words.len() as u64, "the remaining words are unchanged");
            steps += 1;
        }
        assert_eq!(words.len(), 0);
        assert!(!words.shrink());
        let all_but_the_last = steps_of(8 * len) - 1;
        assert_eq!(steps, all_but_the_last, "of {len} words");
    }
}

// `docs/HAZARDS.md` quotes this name.
#[test]
fn impossible_lengths_are_refused() {
    assert!(ZeroedAtomics::try_new(usize::MAX).is_none());
    // Miri aborts if there is not enough memory, and a 32-bit system may have so much.
    assert!(cfg!(any(miri, target_pointer_width = "32")) || ZeroedAtomics::try_new(usize::MAX >> 6).is_none());
}
