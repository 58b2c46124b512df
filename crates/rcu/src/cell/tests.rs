//! Tests of `RcuCell`: with real threads, and as model checks under loom. A `fails_with_` test
//! repeats a model check with one ordering weakened or without the grace period, and must fail.

use super::*;
use crate::pin;

#[cfg(not(lowwater_loom))]
mod unit {
    use super::*;
    use crate::sync::atomic::AtomicUsize;
    use crate::sync::Arc;

    /// A value that counts the drops of its kind.
    struct Counted(u32, Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_replaced_value_is_dropped_after_its_readers_have_left() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let value = |n| Counted(n, dropped.clone());
        let cell = RcuCell::default();
        let guard = pin();
        assert!(cell.replace(None, value(1), &guard));
        let first = cell.load(&guard);
        assert!(cell.replace(first, value(2), &guard));
        crate::flush();
        assert_eq!((first.unwrap().0, cell.load(&guard).unwrap().0), (1, 2));
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        drop(guard);
        // Readers of other tests come and go, and no thread retires a full batch.
        let begin = std::time::Instant::now();
        while dropped.load(Ordering::Relaxed) != 1 {
            assert!(begin.elapsed().as_secs() < 60, "the replaced value is not dropped");
            crate::flush();
        }
        drop(cell);
        assert_eq!(dropped.load(Ordering::Relaxed), 2, "at once, as no reader can be inside");
    }

    #[test]
    fn a_replace_with_an_outdated_value_changes_nothing() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let value = |n| Counted(n, dropped.clone());
        let (cell, guard) = (RcuCell::new(), pin());
        assert!(cell.replace(None, value(1), &guard));
        let first = cell.load(&guard);
        assert!(!cell.replace(None, value(2), &guard), "there is one");
        assert!(cell.replace(first, value(3), &guard));
        assert!(!cell.replace(first, value(4), &guard), "that one is not there any more");
        assert_eq!((cell.load(&guard).unwrap().0, dropped.load(Ordering::Relaxed)), (3, 2));
        cell.clear(&guard);
        cell.clear(&guard);
        assert!(cell.load(&guard).is_none());
        assert!(cell.replace(None, value(5), &guard));
    }

    #[test]
    fn concurrent_readers_and_writers_see_whole_values() {
        let cell = RcuCell::new();
        assert!(cell.replace(None, [1_u64; 8], &pin()));
        std::thread::scope(|s| {
            for n in 0..2 {
                let cell = &cell;
                s.spawn(move || {
                    for i in 0..if cfg!(miri) { 50 } else { 5_000 } {
                        let guard = pin();
                        let _faster = cell.replace(cell.load(&guard), [i << 1 | n; 8], &guard);
                    }
                });
            }
            for _ in 0..if cfg!(miri) { 50 } else { 20_000 } {
                let guard = pin();
                let words = cell.load(&guard).expect("the cell is never empty");
                assert!(words.iter().all(|word| *word == words[0]), "one, and not parts of two");
            }
        });
    }
}

#[cfg(lowwater_loom)]
mod stories {
    use super::*;
    use crate::sync::{model, thread, with_mutant, Arc};

    /// A reader concurrent with a replacement: it finds the old or the new value, complete, for as
    /// long as it is inside.
    fn a_reader_beside_a_replacement() {
        let cell = Arc::new(RcuCell::new());
        assert!(cell.replace(None, 1, &pin()));
        let reader = {
            let cell = cell.clone();
            thread::spawn(move || {
                let guard = pin();
                let found = cell.load(&guard);
                assert!(matches!(found, Some(1 | 2)));
            })
        };
        let guard = pin();
        assert!(cell.replace(cell.load(&guard), 2, &guard));
        drop(guard);
        reader.join().unwrap();
    }

    /// Two threads replace the value. If both have loaded the same one, only one replacement
    /// succeeds; a thread that has loaded the other thread's value succeeds as well.
    fn two_writers() {
        let cell = Arc::new(RcuCell::new());
        assert!(cell.replace(None, 0, &pin()));
        let replace = |cell: &RcuCell<u32>, by| {
            let guard = pin();
            let there = cell.load(&guard);
            let was = there.copied();
            cell.replace(there, by, &guard).then_some(was)
        };
        let other = {
            let cell = cell.clone();
            thread::spawn(move || replace(&cell, 1))
        };
        let (ours, theirs) = (replace(&cell, 2), other.join().unwrap());
        let last = *cell.load(&pin()).unwrap();
        match (ours, theirs) {
            (Some(Some(0)), None) | (Some(Some(1)), Some(Some(0))) => assert_eq!(last, 2),
            (None, Some(Some(0))) | (Some(Some(0)), Some(Some(2))) => assert_eq!(last, 1),
            other => panic!("{other:?}"),
        }
    }

    /// A clear concurrent with the first value: the value stays, or is removed and freed.
    fn a_clear_beside_the_first_value() {
        let cell = Arc::new(RcuCell::new());
        let other = {
            let cell = cell.clone();
            thread::spawn(move || cell.clear(&pin()))
        };
        assert!(cell.replace(None, 1, &pin()));
        other.join().unwrap();
        assert!(matches!(cell.load(&pin()), None | Some(1)));
    }

    #[test]
    fn a_cleared_value_is_freed_fully_initialized() {
        model(a_clear_beside_the_first_value);
    }

    #[test]
    #[should_panic]
    fn fails_with_clear_relaxed() {
        with_mutant("clear_relaxed", || model(a_clear_beside_the_first_value));
    }

    #[test]
    fn a_reader_finds_the_old_or_the_new_value_whole() {
        model(a_reader_beside_a_replacement);
    }

    #[test]
    #[should_panic]
    fn fails_with_cell_relaxed() {
        with_mutant("cell_relaxed", || model(a_reader_beside_a_replacement));
    }

    #[test]
    #[should_panic]
    fn fails_with_free_without_waiting() {
        with_mutant("free_without_waiting", || model(a_reader_beside_a_replacement));
    }

    #[test]
    fn two_concurrent_replacements_succeed_once_or_in_turn() {
        model(two_writers);
    }
}
