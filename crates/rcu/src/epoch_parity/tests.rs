//! Tests of `EpochParity`: the model checks have a set under a lock, as a segment of an index is. A
//! `fails_with_` test repeats one without a grace period, and must fail.

use super::*;

#[cfg(not(lowwater_loom))]
mod unit {
    use super::*;

    #[test]
    fn epochs_alternate() {
        let epoch = EpochParity::default();
        for is_odd in [false, true, false, true] {
            assert_eq!((epoch.current(&pin()), epoch.past()), (is_odd, None));
            let _grace = epoch.begin();
            assert_eq!((epoch.current(&pin()), epoch.past()), (!is_odd, Some(is_odd)));
            epoch.end();
        }
    }

    #[test]
    fn a_reader_that_is_inside_delays_the_grace_period() {
        let epoch = EpochParity::new();
        let (entered, has_entered) = std::sync::mpsc::channel();
        let (leave, may_leave) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _guard = pin();
                entered.send(()).unwrap();
                let _left = may_leave.recv();
            });
            has_entered.recv().unwrap();
            let grace = epoch.begin();
            assert!(!grace.poll());
            drop(leave);
            // Readers of other tests come and go.
            let begin = std::time::Instant::now();
            while !grace.poll() {
                assert!(begin.elapsed().as_secs() < 60);
            }
        });
    }
}

#[cfg(lowwater_loom)]
mod loom {
    use super::*;
    use crate::sync::{model, thread, with_mutant, Arc, Mutex};

    /// The parities of the objects in a set.
    struct Set {
        epoch: EpochParity,
        objects: Mutex<std::vec::Vec<bool>>,
    }

    impl Set {
        fn with(objects: &[bool]) -> Arc<Self> {
            Arc::new(Self { epoch: EpochParity::new(), objects: Mutex::new(objects.to_vec()) })
        }

        fn remove_past(&self) {
            let _guard = pin();
            let past = self.epoch.past();
            self.objects.lock().retain(|parity| Some(*parity) != past);
        }
    }

    fn wait(grace: &GracePeriod) {
        while !grace.poll() {
            thread::yield_now();
        }
    }

    /// An object enters beside a clear: after the clear none of the past parity is left.
    fn insert_beside_clear() {
        let set = Set::with(&[false]);
        let other = {
            let set = set.clone();
            thread::spawn(move || {
                let guard = pin();
                let parity = set.epoch.current(&guard);
                set.objects.lock().push(parity);
                drop(guard);
            })
        };
        let grace = set.epoch.begin();
        if !crate::mutated!("clear_without_grace") {
            wait(&grace);
        }
        set.remove_past();
        set.epoch.end();
        other.join().unwrap();
        assert!(set.objects.lock().iter().all(|parity| *parity), "an object of the past epoch is left");
    }

    #[test]
    fn no_past_object_enters_after_the_grace_period() {
        model(insert_beside_clear);
    }

    #[test]
    #[should_panic]
    fn fails_with_clear_without_grace() {
        with_mutant("clear_without_grace", || model(insert_beside_clear));
    }

    /// A reader that knows of the clear finds an object of the past epoch, while that is removed.
    fn read_beside_end() {
        let set = Set::with(&[false]);
        let _grace = set.epoch.begin();
        let other = {
            let set = set.clone();
            thread::spawn(move || {
                let guard = pin();
                let found = set.objects.lock().first().copied();
                // loom does not switch threads between an unlock and the load below.
                thread::yield_now();
                let is_live = found.is_some_and(|parity| set.epoch.past() != Some(parity));
                drop(guard);
                is_live
            })
        };
        set.remove_past();
        if !crate::mutated!("end_without_grace") {
            wait(&start_poll());
        }
        set.epoch.end();
        assert!(!other.join().unwrap(), "a past object is taken for a live one");
    }

    #[test]
    fn no_reader_takes_a_past_object_for_a_live_one() {
        model(read_beside_end);
    }

    #[test]
    #[should_panic]
    fn fails_with_end_without_grace() {
        with_mutant("end_without_grace", || model(read_beside_end));
    }
}
