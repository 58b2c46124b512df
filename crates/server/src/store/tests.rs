//! The store below the protocol: flushes, memory in outputs, colliding hashes.
//!
//! The tests need states that a client cannot produce on purpose, such as two keys with one hash.
//!
//! A change must ensure that a test belongs here only if a client cannot produce its state.

use std::time::{Duration, Instant};

use super::update::{ROOM_PAUSE, ROOM_PAUSES_MAX};
use super::*;
use crate::tests::refusals::Refusals;

#[test]
fn flushed_values_are_absent_before_they_are_dropped() {
    let settings = crate::settings::args::parse(["lowwater-server", "-m8"]).unwrap().unwrap();
    let pool = Arc::new(PiecePool::new(0));
    let store = Store::new(&settings, &pool).unwrap();
    let put = |expected: Option<&'static [u8]>, bytes: &'static [u8]| {
        let data = Data::copy(bytes, &pool);
        let edit = |there: Option<Existing<'_>>| {
            assert_eq!(there.map(|there| there.value.only_piece().unwrap().to_vec()).as_deref(), expected);
            (Edit::Put(store.new_value(b"k", 0, ItemFlags::default(), None, &data)), ())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(store.update(b"k", Expiry::Never, edit)).unwrap();
    };
    let keys = || store.keys(&mut Visit::new());
    let is_gone = || {
        store.read(b"k", |_| ()).is_none()
            && store.find(b"k").is_none()
            && store.peek(b"k").is_none()
            && store.inspect(b"k", |_| ()).is_none()
            && !store.touch(b"k", Expiry::Never)
            && keys().is_empty()
    };
    put(None, b"1");
    put(Some(b"1"), b"2");
    assert_eq!(keys().len(), 1);
    store.flush();
    assert!(is_gone());
    put(None, b"3");
    store.drop_flushed();
    assert!(store.find(b"k").is_some(), "values stored after the flush stay");
    store.flush();
    assert_eq!((is_gone(), store.totals().items), (true, 1));
    assert!(!store.remove(b"k"));
    put(None, b"4");
    store.flush();
    store.drop_flushed();
    assert_eq!(store.totals().items, 0);
}

#[test]
fn no_update_carries_a_value_over_a_flush() {
    let settings = crate::settings::args::parse(["lowwater-server", "-m8"]).unwrap().unwrap();
    let store = Store::new(&settings, &Arc::new(PiecePool::new(0))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let update = |edit: &mut dyn FnMut(Option<Existing<'_>>) -> Edit| {
        runtime.block_on(store.update(b"k", Expiry::Never, |there| (edit(there), ()))).unwrap();
    };
    assert!(store.try_set(b"k", Expiry::Never, 0, b"1"));
    let mut seen = Vec::new();
    update(&mut |there| {
        seen.push(there.is_some());
        // As by another client.
        store.flush();
        there.map_or(Edit::Keep, |there| Edit::Change(store.new_value_of(b"k", 0, there.value.only_piece().unwrap())))
    });
    assert_eq!((seen, store.find(b"k").is_some()), (vec![true, false], false));

    const UPDATES: u32 = 50_000;
    let stored = AtomicU32::new(0);
    let number = || store.read(b"k", |value| u32::from_le_bytes(value.only_piece().unwrap().try_into().unwrap()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while stored.load(Ordering::SeqCst) < UPDATES {
                // Some updates run between two flushes.
                (0..200).for_each(|_| std::hint::spin_loop());
                let before = stored.load(Ordering::SeqCst);
                store.flush();
                let there = number();
                assert!(there.is_none_or(|there| there > before), "{there:?} was stored before the flush, as {before}");
            }
        });
        // Also if an update panics, or the other thread would not end.
        let _end = SetsAtEnd(&stored, UPDATES);
        for next in 1..=UPDATES {
            let mut kept = false;
            update(&mut |there| {
                kept = there.is_some();
                let bytes =
                    there.map_or(next.to_le_bytes().to_vec(), |there| there.value.only_piece().unwrap().to_vec());
                let value = store.new_value_of(b"k", 0, &bytes);
                if kept {
                    Edit::Change(value)
                } else {
                    Edit::Put(value)
                }
            });
            // A value that was kept has an older number.
            if !kept {
                stored.store(next, Ordering::SeqCst);
            }
        }
    });
}

/// Sets a number when it is dropped.
struct SetsAtEnd<'a>(&'a AtomicU32, u32);

impl Drop for SetsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::SeqCst);
    }
}

#[test]
fn evicted_values_in_client_outputs_are_bounded() {
    let settings = crate::settings::args::parse(["lowwater-server", "-m8"]).unwrap().unwrap();
    let pool = Arc::new(PiecePool::new(0));
    let store = Store::new(&settings, &pool).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let set = |n: u32, bytes: &[u8]| {
        let (key, data) = (n.to_be_bytes(), Data::copy(bytes, &pool));
        let edit =
            |_: Option<Existing<'_>>| (Edit::Put(store.new_value(&key, 0, ItemFlags::default(), None, &data)), ());
        runtime.block_on(store.update(&key, Expiry::Never, edit))
    };
    // Readers of any test of this process may keep the memory of evicted values for longer than a
    // store waits.
    let mut refusals = Refusals::default();
    let mut set_with_patience = |n: u32, bytes: &[u8]| {
        refusals.count_store();
        let (begun, mut sent, mut was_refused) = (Instant::now(), Instant::now(), false);
        while set(n, bytes).is_err() {
            assert!(sent.elapsed() >= ROOM_PAUSE * ROOM_PAUSES_MAX, "{n}: refused without all pauses");
            assert!(begun.elapsed() < Duration::from_secs(60), "{n}: no value is held");
            if !was_refused {
                refusals.count_refused();
            }
            (sent, was_refused) = (Instant::now(), true);
        }
    };
    let is_refused = |n: u32, bytes: &[u8]| {
        (0..3).all(|_| {
            store.cache.collect();
            set(n, bytes).is_err()
        })
    };
    let large = vec![7; 1_000_000];
    (0..50).for_each(|n| set_with_patience(n, &large));
    // All pieces may take 150 % of the budget (`PIECES_PERCENT_MAX`): twelve values, held ones
    // included.
    let mut held = Vec::new();
    let mut stored = 50;
    while !is_refused(stored, &large) {
        held.extend(store.find(&stored.to_be_bytes()));
        stored += 1;
        assert!(stored < 100);
    }
    assert!((10..=12).contains(&held.len()), "{} values are held", held.len());
    assert_eq!(set(0, b"short"), Ok(()));
    held.clear();
    set_with_patience(0, &large);
}

#[test]
fn a_new_expiry_is_that_of_the_value_that_was_shown() {
    let settings = crate::settings::args::parse(["lowwater-server", "-m8"]).unwrap().unwrap();
    let store = Store::new(&settings, &Arc::new(PiecePool::new(0))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let hour = Expiry::In(Duration::from_secs(3_600));
    let update = |expiry| {
        let mut values = [b"1", b"2"].into_iter();
        let edit = |there: Option<Existing<'_>>| {
            // As by another client.
            values.next().inspect(|value| assert!(store.try_set(b"k", Expiry::Never, 0, *value)));
            (Edit::Touch(expiry), there.map(|there| there.value.only_piece().unwrap().to_vec()))
        };
        runtime.block_on(store.update(b"k", Expiry::Never, edit)).unwrap()
    };
    let left = || store.inspect(b"k", |there| there.left.is_some());
    for expiry in [hour, Expiry::Past] {
        store.remove(b"k");
        assert!(store.try_set(b"k", Expiry::Never, 0, b"0"));
        let mut values = [b"1", b"2"].into_iter();
        let seen = store.touch_and_look(b"k", expiry, |value| {
            // As by another client.
            values.next().inspect(|value| assert!(store.try_set(b"k", Expiry::Never, 0, *value)));
            value.only_piece().unwrap().to_vec()
        });
        assert_eq!((seen.ok().as_deref(), left()), (Some(&b"2"[..]), (expiry == hour).then_some(true)));
        assert!(store.try_set(b"k", Expiry::Never, 0, b"0"));
        assert_eq!(update(expiry).as_deref(), Some(&b"2"[..]));
        assert_eq!(left(), (expiry == hour).then_some(true));
    }
}

#[test]
fn of_two_keys_with_one_hash_the_later_stays() {
    let settings = crate::settings::args::parse(["lowwater-server", "-m8"]).unwrap().unwrap();
    let pool = Arc::new(PiecePool::new(0));
    let mut store = Store::new(&settings, &pool).unwrap();
    store.hasher.bits = 0;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let edit = |key: &'static [u8], edit: Edit| {
        let see = |there: Option<Existing<'_>>| (edit.clone(), there.map(|there| there.value.key().to_vec()));
        runtime.block_on(store.update(key, Expiry::Never, see)).unwrap()
    };
    let value = |key: &[u8]| store.new_value(key, 0, ItemFlags::default(), None, &Data::copy(key, &pool));
    assert_eq!(edit(b"a", Edit::Put(value(b"a"))), None);
    for edit in [|_| Edit::Keep, |_| Edit::Remove].map(|make: fn(()) -> Edit| make(())) {
        let see = |there: Option<Existing<'_>>| (edit.clone(), there.is_some());
        assert_eq!(runtime.block_on(store.update(b"b", Expiry::Past, see)), Ok(false));
    }
    let is_live = |key: &[u8]| {
        let read = store.read(key, |value| value.key() == key);
        let found = [store.find(key), store.peek(key)].map(|value| value.map(|value| value.key() == key));
        let seen = [store.inspect(key, |there| there.value.key() == key), store.mark_fetched(key).then_some(true)];
        let all = [read, found[0], found[1], seen[0], seen[1]];
        assert!(all == [Some(true); 5] || all == [None; 5], "{all:?}");
        all[0].is_some()
    };
    assert!(is_live(b"a") && !is_live(b"b"));
    assert!(!store.touch(b"b", Expiry::Past) && is_live(b"a"));
    assert!(!store.remove(b"b") && is_live(b"a"), "a removal removes no value of another key");
    assert_eq!(edit(b"new:b", Edit::Touch(Expiry::Past)), None);
    assert!(is_live(b"a") && store.reports().len() == 1, "an update that stores nothing creates no tenant");
    let put = |_: Option<Existing<'_>>| (Edit::Put(value(b"b")), ());
    runtime.block_on(store.update(b"b", Expiry::Past, put)).unwrap();
    assert!(is_live(b"a"), "a value that expires at once replaces none of another key");
    assert_eq!(edit(b"b", Edit::Put(value(b"b"))), None, "the existing value belongs to another key");
    assert!(is_live(b"b") && !is_live(b"a"));
    assert_eq!(edit(b"b", Edit::Remove).as_deref(), Some(&b"b"[..]));
    assert!(!is_live(b"b") && !is_live(b"a"));
}

/// The second change begins while the first one runs, and must wait for its end.
#[test]
fn concurrent_changes_of_one_tenant_keep_each_others_limits() {
    let settings = crate::settings::args::parse(["lowwater-server", "-m8"]).unwrap().unwrap();
    let store = Store::new(&settings, &Arc::new(PiecePool::new(0))).unwrap();
    let (low, high) = (ByteSize::kib(1), ByteSize::kib(2));
    let (store, (sender, changed)) = (&store, std::sync::mpsc::channel());
    std::thread::scope(|scope| {
        let change = |limits| {
            let (begins, has_begun) = std::sync::mpsc::channel();
            scope.spawn(move || {
                begins.send(()).unwrap();
                store.change_limits("shop", 10, |limits| Ok(Limits { high, ..limits })).unwrap();
                let _ = sender.send(());
            });
            has_begun.recv().unwrap();
            // A change that does not wait would end in this time, and be lost.
            let _ = changed.recv_timeout(Duration::from_millis(100));
            Ok(Limits { low, ..limits })
        };
        store.change_limits("shop", 10, change).unwrap();
    });
    assert_eq!(store.limits("shop"), Some(Limits { low, high, ..Limits::default() }));
}

/// Clients that may use all tenants may change limits again and again.
#[test]
fn a_change_of_limits_does_not_visit_all_tenants() {
    let settings = crate::settings::args::parse(["lowwater-server", "-m1024"]).unwrap().unwrap();
    let store = Store::new(&settings, &Arc::new(PiecePool::new(0))).unwrap();
    let names: Vec<_> = (0..20_000).map(|n| format!("t{n}")).collect();
    store.create_tenants(names.iter().map(String::as_str)).unwrap();
    let least = |what: &dyn Fn()| {
        let time = |_| {
            let begun = Instant::now();
            what();
            begun.elapsed()
        };
        (0..10).map(time).min().unwrap()
    };
    let visit = least(&|| assert_eq!(store.tenants_after(None, usize::MAX).len(), 20_001));
    let limits = Limits { min: ByteSize::mib(1), ..Limits::default() };
    let set = least(&|| store.set_limits(&[("t77".to_owned(), limits)], 10).unwrap());
    let resize = least(&|| store.set_budget(ByteSize::gib(1)).unwrap());
    assert!(set < visit / 2 && resize < visit / 2, "{set:?} and {resize:?}, all tenants {visit:?}");
}
