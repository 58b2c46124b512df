//! Policies for negative dentries (cached names that do not exist) that panic, return wrong values,
//! or call every operation.
//!
//! A policy is the user's code. It runs on the thread that looks up, unlinks or renames a name. No
//! `d_lock` and no list lock is held; the `rwsem` of the directory may be.
//!
//! A new method that runs during an operation needs a case for a panic, a wrong result, and
//! re-entry. docs/HAZARDS.md quotes names of these tests.

use crate::hazard::within;
use crate::{builder, fixture};
use lowwater_dcache_model::negative::{BoundInputs, NewNegative, PerDirectory, Probation, ThreeInARow, Unbounded};
use lowwater_dcache_model::NegativePolicy;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::Arc;

#[derive(Debug, Default)]
struct PolicyCalls {
    calls: AtomicU32,
    panics: AtomicBool,
}

/// Calls every operation on a negative. The results of `has_own_lists` and `can_keep_removed`
/// depend on the number of calls so far, even or odd.
#[derive(Debug)]
struct Busy(Arc<PolicyCalls>);

impl NegativePolicy for Busy {
    fn name(&self) -> &'static str {
        "busy"
    }

    fn has_own_lists(&self) -> bool {
        self.0.calls.fetch_add(1, Relaxed) % 2 == 0
    }

    fn negative_added(&self, negative: &NewNegative<'_>) {
        let call = self.0.calls.fetch_add(1, Relaxed);
        assert!(!self.0.panics.load(Relaxed) || call % 3 != 0, "the policy's own fault");
        let ends = [0, 1, u64::MAX];
        for (n, a) in ends.into_iter().enumerate() {
            for b in ends {
                negative.trim_group(a, b, ends[(n + call as usize) % 3]);
            }
            negative.take_ghost(a);
            negative.trim_directory(a as usize);
            negative.trim_chain(a as usize);
        }
        let _ = (negative.on_probation(), negative.positives(), format!("{negative:?}"));
    }

    /// Does not trim: the directory's `rwsem` is held, and the trait forbids it.
    fn can_keep_removed(&self, removed: &NewNegative<'_>) -> bool {
        let _ = (removed.on_probation(), removed.positives());
        let call = self.0.calls.fetch_add(1, Relaxed);
        assert!(!self.0.panics.load(Relaxed) || call % 3 != 0, "the policy's own fault");
        call % 2 == 0
    }

    fn bound(&self, _: BoundInputs) -> Option<u64> {
        Some(u64::MAX)
    }
}

/// Panics in `has_own_lists`, which is called when the cache is built.
#[derive(Debug)]
struct PanicsAtOnce(Arc<PolicyCalls>);

impl NegativePolicy for PanicsAtOnce {
    fn name(&self) -> &'static str {
        "panics at once"
    }
    fn has_own_lists(&self) -> bool {
        // Another cache may be built inside of the call.
        fixture(builder()).ends_well();
        self.0.calls.fetch_add(1, Relaxed);
        panic!("the policy's own fault");
    }
    fn negative_added(&self, _: &NewNegative<'_>) {}
    fn bound(&self, _: BoundInputs) -> Option<u64> {
        None
    }
}

#[test]
fn a_policy_that_panics_in_build_is_dropped() {
    within("a build", || {
        let shared = Arc::new(PolicyCalls::default());
        let builder = builder().policy(PanicsAtOnce(shared.clone()));
        assert!(catch_unwind(AssertUnwindSafe(|| builder.build())).is_err());
        assert_eq!((shared.calls.load(Relaxed), Arc::strong_count(&shared)), (1, 1));
    });
}

fn busy() -> (Arc<PolicyCalls>, crate::Fixture) {
    let shared = Arc::new(PolicyCalls::default());
    let fixture = fixture(builder().policy(Busy(shared.clone())));
    (shared, fixture)
}

#[test]
fn a_policy_may_do_anything_with_a_negative() {
    within("a policy", || {
        let (shared, fixture) = busy();
        fixture.fill();
        for n in 0..100 {
            let path = format!("/d/no{}", n % 30);
            assert!(fixture.mount.lookup(path.as_bytes()).unwrap().is_none());
            if n % 3 == 0 {
                drop(fixture.mount.create(path.as_bytes()).unwrap());
                fixture.mount.unlink(path.as_bytes()).unwrap();
            }
        }
        assert!(shared.calls.load(Relaxed) > 100);
        fixture.ends_well();
    });
}

#[test]
fn a_policy_that_panics_keeps_no_lock() {
    within("a policy that panics", || {
        let (shared, fixture) = busy();
        fixture.fill();
        shared.panics.store(true, Relaxed);
        let mut died = 0;
        for n in 0..60 {
            let [there, missing] = ["there", "missing"].map(|name| format!("/d/{name}{}", n % 7));
            let ways: [&dyn Fn(); 4] = [
                &|| drop(fixture.mount.lookup(missing.as_bytes()).unwrap()),
                &|| drop(fixture.mount.create(there.as_bytes())),
                &|| drop(fixture.mount.unlink(there.as_bytes())),
                &|| drop(fixture.mount.rename(b"/d/1", there.as_bytes())),
            ];
            died += ways.iter().filter(|way| catch_unwind(AssertUnwindSafe(way)).is_err()).count();
        }
        assert!(died > 10, "{died}");
        shared.panics.store(false, Relaxed);
        for n in 0..7 {
            for name in ["there", "missing"] {
                let path = format!("/d/{name}{n}");
                // These calls return: no lock was left locked. The results depend on the calls that
                // panicked.
                let _ = (fixture.mount.lookup(path.as_bytes()).unwrap(), fixture.mount.unlink(path.as_bytes()));
                drop(fixture.mount.create(path.as_bytes()).unwrap());
                fixture.mount.unlink(path.as_bytes()).unwrap();
            }
        }
        fixture.ends_well();
    });
}

#[test]
fn policies_at_the_ends_of_their_numbers_leave_the_cache_valid() {
    within("policies", || {
        let ends = [0, 1, u64::MAX];
        let mut policies: Vec<Box<dyn NegativePolicy>> = vec![Box::new(Unbounded), Box::new(ThreeInARow)];
        policies.extend(ends.map(|n| Box::new(PerDirectory(n as usize)) as Box<dyn NegativePolicy>));
        for floor in ends {
            for per in ends {
                policies.push(Box::new(Probation {
                    probation_floor: floor,
                    protected_floor: floor,
                    positives_per_probation: per,
                    positives_per_protected: per,
                    probation_per_directory: per,
                }));
            }
        }
        for policy in policies {
            for n in ends {
                let _ = policy.bound(BoundInputs { buckets: n, positives: n, directories: n });
            }
            let fixture = fixture(builder().boxed_policy(policy));
            fixture.fill();
            for n in 0..300 {
                let _ = fixture.mount.lookup(format!("/d/no{}", n % 100).as_bytes()).unwrap();
            }
            fixture.mount.assert_valid();
            fixture.ends_well();
        }
    });
}

/// Counts the calls of its bound, which is any number or panics. It never trims.
#[derive(Debug)]
struct WrongBound(Arc<PolicyCalls>, Option<u64>);

impl NegativePolicy for WrongBound {
    fn name(&self) -> &'static str {
        "wrong bound"
    }
    fn has_own_lists(&self) -> bool {
        true
    }
    fn negative_added(&self, _: &NewNegative<'_>) {}
    fn bound(&self, inputs: BoundInputs) -> Option<u64> {
        self.0.calls.fetch_add(1, Relaxed);
        assert!(!self.0.panics.load(Relaxed), "the policy's own fault");
        assert!((1..=20).contains(&inputs.directories), "at most one for each negative");
        self.1
    }
}

/// Reclaim calls the bound.
#[test]
fn a_bound_that_is_wrong_or_panics_leaves_the_cache_valid() {
    within("reclaim", || {
        for (bound, panics) in
            [(Some(0), false), (Some(1), false), (Some(u64::MAX), false), (None, false), (None, true)]
        {
            let shared = Arc::new(PolicyCalls::default());
            shared.panics.store(panics, Relaxed);
            let fixture = fixture(builder().policy(WrongBound(shared.clone(), bound)));
            fixture.fill();
            // Used negatives survive the first scan of a pass.
            for n in 0..20 {
                assert!(fixture.mount.lookup(format!("/d/no{n}").as_bytes()).unwrap().is_none());
            }
            fixture.registry.drop_caches();
            assert!(shared.calls.load(Relaxed) > 0, "{bound:?}");
            let left = fixture.mount.assert_valid().unused;
            assert!(panics || left == 0, "{left} of {bound:?}");
            fixture.ends_well();
        }
    });
}
