//! Tests of the ghost table.
//!
//! `hash(n)` spreads ghosts over the buckets, as hashes of real keys do; tests of a single bucket
//! use hashes with equal low bits.
//!
//! A change of the bits that choose a bucket or a tag requires new hashes here.

use super::*;

fn hash(n: u64) -> u64 {
    let mixed = (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB)
}

/// Makes the table fit `len` entries.
fn fit(ghosts: &Ghosts, len: usize) {
    ghosts.entries.store(len, Ordering::Relaxed);
    ghosts.fit();
}

/// Drops the table, as when the last entry of all caches is removed.
fn forget(ghosts: &Ghosts) {
    ghosts.entries.store(1, Ordering::Relaxed);
    ghosts.note_entries(1, 0);
}

/// Records a ghost in a table for `len` entries.
fn remember(ghosts: &Ghosts, len: usize, hash: u64, ghost: Ghost) {
    fit(ghosts, len);
    ghosts.known(&pin()).remember(hash, ghost);
}

fn take(ghosts: &Ghosts, hash: u64) -> Option<Ghost> {
    ghosts.known(&pin()).take(hash, NOW)
}

/// The time of lookups: the last one at which a ghost of time 0 is found.
const NOW: u32 = TIMES - 1;

/// Returns a ghost of an entry that left probation at this time.
fn left(time: u32) -> Ghost {
    Ghost { is_main: false, time }
}

#[test]
fn a_ghost_is_found_once_with_its_queue_and_time() {
    let ghosts = Ghosts::default();
    assert_eq!(take(&ghosts, hash(1)), None);
    let ghost = |n| Ghost { is_main: n % 3 == 0, time: n as u32 % TIMES };
    (0..5_000).for_each(|n| remember(&ghosts, 5_000, hash(n), ghost(n)));
    let found = (0..5_000).filter_map(|n| Some((n, take(&ghosts, hash(n))?))).collect::<Vec<_>>();
    assert!(found.len() > 4_850, "{}", found.len());
    // A key may get the ghost of another key that has the same tag in the same bucket.
    let others = found.iter().filter(|&&(n, found)| found != ghost(n)).count();
    assert!(others < 3, "{others}");
    let twice = (0..5_000).filter(|&n| take(&ghosts, hash(n)).is_some()).count();
    assert!(twice < 3, "{twice}");
}

#[test]
fn a_full_bucket_overwrites_its_oldest_ghost() {
    let ghosts = Ghosts::default();
    // The same bucket (low bits) and different tags (high bits).
    let key = |n: u64| n << 48 | 5;
    (1..=10).for_each(|n| remember(&ghosts, 10, key(n), left(n as u32)));
    let known: Vec<_> = (1..=10).filter(|&n| take(&ghosts, key(n)) == Some(left(n as u32))).collect();
    assert_eq!(known, (3..=10).collect::<Vec<_>>());
}

#[test]
fn a_free_slot_is_used_before_a_ghost_is_overwritten() {
    let key = |n: u64| n << 48 | 5;
    for gone in 1..=8 {
        let words = Default::default();
        let bucket = Bucket(&words);
        (1..=8).for_each(|n| bucket.remember(key(n), left(n as u32)));
        assert_eq!(bucket.take(key(gone), NOW), Some(left(gone as u32)));
        bucket.remember(key(9), left(9));
        let known: Vec<_> = (1..=9).filter(|&n| bucket.take(key(n), NOW) == Some(left(n as u32))).collect();
        assert_eq!(known, (1..=9).filter(|&n| n != gone).collect::<Vec<_>>());
    }
}

#[test]
fn the_table_has_eight_bytes_per_entry_and_aligned_buckets() {
    assert_eq!(BYTES_PER_ENTRY, 8);
    let ghosts = Ghosts::default();
    (0..50_000).for_each(|n| remember(&ghosts, 10_000, hash(n), left(0)));
    let bytes = ghosts.footprint();
    assert!((80_000..81_000).contains(&bytes), "{bytes} bytes for 10,000 entries");
    let (guard, bucket_bytes) = (pin(), 32);
    let table = ghosts.table.load(&guard).unwrap();
    let addresses = (0..50_000).map(|n| table.bucket(hash(n)).0.as_ptr().addr());
    assert!(addresses.into_iter().all(|address| address % bucket_bytes == 0));
    assert_eq!(size_of::<[AtomicU64; WORDS]>(), bucket_bytes);
}

#[test]
fn false_ghost_hits_are_rare() {
    let ghosts = Ghosts::default();
    (0..50_000).for_each(|n| remember(&ghosts, 10_000, hash(n), left(0)));
    let found = (50_000..150_000).filter(|&n| take(&ghosts, hash(n)).is_some()).count();
    assert!(found < 30, "{found} of 100,000, where 12 would be chance");
}

#[test]
fn false_ghost_hits_are_rare_among_ghosts_of_many_eras() {
    let ghosts = Ghosts::default();
    for step in [TIMES / 4_000, TIMES / 3, TIMES, TIMES * 5] {
        (0..50_000).for_each(|n| remember(&ghosts, 10_000, hash(n), left((n as u32).wrapping_mul(step))));
        let now = step.wrapping_mul(50_000);
        let found = (50_000..150_000).filter(|&n| ghosts.known(&pin()).take(hash(n), now).is_some()).count();
        assert!(found < 30, "{found} of 100,000, where 12 would be chance");
    }
}

#[test]
fn a_ghost_is_not_found_when_the_clock_has_gone_round() {
    let words = Default::default();
    let bucket = Bucket(&words);
    // No tag is 0 in one of these eras, for which 1 stands.
    for hash in (0..64).map(|tag| (1 << 14 | tag) << 48) {
        for time in [0, 1, TIMES - 1, TIMES, 5 * TIMES + 77, u32::MAX - TIMES, u32::MAX - 9, u32::MAX] {
            let found_after = |ticks: u32| {
                bucket.remember(hash, left(time));
                let found = bucket.take(hash, time.wrapping_add(ticks));
                words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                found
            };
            for ticks in [0, 1, 9, TIMES / 2, TIMES - 1] {
                assert_eq!(found_after(ticks), Some(left(time)), "{ticks} after {time}");
            }
            for ticks in [0, 1, 9, TIMES / 2, TIMES - 1] {
                for rounds in 1..50 {
                    assert_eq!(found_after(ticks + rounds * TIMES), None, "{rounds} rounds after {time}");
                }
            }
            assert_eq!(found_after(1_u32.wrapping_neg()), None, "by a clock that has lost an update");
        }
    }
}

/// Two threads record ghosts and take them, while a third drops the table, so that each thread
/// meets a table that another one has just replaced. All ghosts are equal: a ghost that was read
/// half before and half after another thread's write would differ.
#[test]
fn ghosts_are_recorded_and_taken_while_the_table_is_dropped() {
    let ghosts = Ghosts::default();
    std::thread::scope(|s| {
        for t in 0..2 {
            let ghosts = &ghosts;
            s.spawn(move || {
                for n in 0..5_000 {
                    remember(ghosts, 10, hash(2 * n + t), left(9));
                    // The other thread may be recording this one.
                    let taken = take(ghosts, hash(2 * n + 1 - t));
                    assert!(taken.is_none_or(|ghost| ghost == left(9)), "{taken:?}");
                }
            });
        }
        (0..5_000).for_each(|_| forget(&ghosts));
    });
    wait_for_readers(&ghosts);
    remember(&ghosts, 10, hash(1), left(7));
    assert_eq!(take(&ghosts, hash(1)), Some(left(7)));
}

/// Waits until no reader, which may be one of another test, holds back a replaced table.
fn wait_for_readers(ghosts: &Ghosts) {
    let begin = std::time::Instant::now();
    while ghosts.tables.load(Ordering::Relaxed) > 1 {
        assert!(begin.elapsed() < std::time::Duration::from_secs(60), "a replaced table is not dropped");
        lowwater_rcu::flush();
    }
}

#[test]
fn the_table_follows_the_number_of_entries() {
    let ghosts = Ghosts::default();
    let buckets = || ghosts.table.load(&pin()).map_or(0, |table| table.buckets());
    let mut n = 0;
    // 250 buckets are within `SLACK_MAX` of those for 2,000 entries, and stay.
    for (len, expected) in [(0, 32), (10, 32), (1_000, 250), (2_000, 250), (3_000, 750), (100, 32), (50, 32), (0, 32)] {
        n += 1;
        wait_for_readers(&ghosts);
        remember(&ghosts, len, hash(n), left(0));
        assert_eq!(buckets(), expected, "for {len} entries");
        assert!(take(&ghosts, hash(n)).is_some());
    }
    wait_for_readers(&ghosts);
    forget(&ghosts);
    assert_eq!((buckets(), ghosts.footprint()), (0, 0));
    assert_eq!(take(&ghosts, hash(n)), None);
}

#[test]
fn a_reader_holds_back_a_bounded_number_of_tables() {
    let ghosts = Ghosts::default();
    let reader = pin();
    for n in 0..100 {
        // As many as may be; then none of them is current.
        [1_000, 10_000, 1_000, 10_000].into_iter().for_each(|len| fit(&ghosts, len));
        forget(&ghosts);
        assert_eq!(ghosts.tables.load(Ordering::Relaxed), TABLES_MAX, "after {n} rounds");
    }
    fit(&ghosts, 1_000);
    drop(reader);
    // The evictions of a cache of another size flush, and replace the table.
    let begin = std::time::Instant::now();
    while !ghosts.table.load(&pin()).is_some_and(|table| fits(table.buckets(), 10_000)) {
        fit(&ghosts, 10_000);
        assert!(begin.elapsed() < std::time::Duration::from_secs(60), "the table is not replaced");
    }
}

#[test]
fn the_table_of_the_last_entry_is_dropped_beside_readers() {
    let ghosts = Ghosts::default();
    let _reader = pin();
    for _ in 0..10 {
        fit(&ghosts, 1_000);
        fit(&ghosts, 10_000);
        forget(&ghosts);
        assert_eq!(ghosts.footprint(), 0);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_replaced_table_is_returned_in_parts() {
    let ghosts = Ghosts::default();
    let large = 2_000_000;
    remember(&ghosts, large, hash(0), left(0));
    let full = ghosts.footprint();
    assert!(full >= large * BYTES_PER_ENTRY);
    fit(&ghosts, 1_000);
    // The old table is moved to the waste after a grace period, which readers of other tests delay.
    // Each value of another cell that is retired lets this thread free retired values that are
    // ready.
    let other = RcuCell::new();
    let begin = std::time::Instant::now();
    while ghosts.footprint() < full {
        assert!(begin.elapsed() < std::time::Duration::from_secs(60), "the old table is not moved");
        other.replace(None, 0, &pin());
        other.clear(&pin());
        std::thread::yield_now();
    }
    remember(&ghosts, 1_000, hash(0), left(0));
    let less = ghosts.footprint();
    assert!(less < full && less > full / 2, "{less} of {full} bytes");
    (1..GHOSTS_PER_PART).for_each(|_| remember(&ghosts, 1_000, hash(0), left(0)));
    assert_eq!(ghosts.footprint(), less, "not with each ghost");
    (0..100).for_each(|_| remember(&ghosts, 1_000, hash(0), left(0)));
    assert!(ghosts.footprint() < 10_000, "{} bytes", ghosts.footprint());
}

#[test]
fn the_footprint_includes_replaced_tables() {
    let waste = Waste::default();
    assert_eq!(waste.footprint(), size_of::<Waste>());
    waste.take(ZeroedAtomics::try_new(1_000).expect("memory"));
    let list = waste.tables.lock().capacity() * size_of::<ZeroedAtomics>();
    assert!(list >= 16, "{list} bytes");
    assert_eq!(waste.footprint(), size_of::<Waste>() + list + 8_000);
}

#[test]
#[cfg(target_os = "linux")]
fn each_page_of_a_table_is_touched_by_a_write_first() {
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // `minflt`: the eighth field after the name, which may contain spaces.
        stat.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap().parse().unwrap()
    }
    let (ghosts, pages) = (Ghosts::default(), 256);
    fit(&ghosts, pages * 4_096 / BYTES_PER_ENTRY);
    let (guard, before) = (pin(), faults());
    (0..20_000).for_each(|n| ghosts.known(&guard).remember(hash(n), left(0)));
    let taken = faults() - before;
    assert!(taken < pages as u64 * 3 / 2, "{taken} faults for {pages} pages; two each where a read comes first");
}

/// The table is dropped, allocated and replaced by tables of other sizes while ghosts are recorded.
/// Afterwards the table still works.
#[test]
fn ghosts_are_recorded_while_the_table_changes_its_size() {
    let ghosts = Ghosts::default();
    std::thread::scope(|s| {
        s.spawn(|| (0..2_000).for_each(|_| forget(&ghosts)));
        for _ in 0..2 {
            s.spawn(|| (0..20_000).for_each(|n| remember(&ghosts, n as usize % 5_000, hash(n), left(0))));
        }
    });
    wait_for_readers(&ghosts);
    remember(&ghosts, 10, hash(1), left(7));
    assert_eq!(take(&ghosts, hash(1)), Some(left(7)));
}

#[test]
fn removals_before_their_insert_was_noted_are_tolerated() {
    let ghosts = Ghosts::default();
    ghosts.note_entries(100, 95);
    ghosts.fit();
    ghosts.known(&pin()).remember(hash(1), left(7));
    assert_eq!(take(&ghosts, hash(1)), Some(left(7)));
    ghosts.note_entries(0, 105);
    assert_eq!(ghosts.len(), 100);
}

#[test]
fn a_table_shrinks_with_the_entries_but_neither_grows_nor_begins() {
    let ghosts = Ghosts::default();
    let buckets = || ghosts.table.load(&pin()).map(Table::buckets);
    let shrink = |len| {
        ghosts.entries.store(len, Ordering::Relaxed);
        ghosts.shrink();
        buckets()
    };
    assert_eq!(shrink(4_000), None);
    fit(&ghosts, 4_000);
    assert_eq!([shrink(40_000), shrink(2_000), shrink(400)], [1_000, 1_000, 100].map(Some));
    let left = size_of::<Table>() + size_of::<Waste>() + 100 * WORDS * size_of::<u64>();
    assert_eq!(ghosts.footprint(), left, "the replaced table is no waste of this one");
}
