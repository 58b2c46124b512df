//! The drop of the old value after a reload: the caller of the reload may hold the last clone.
//!
//! A change must ensure that each row fails if the load ends after the drop of the old value.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

use super::*;
use crate::cache::tests::eventually;
use crate::cache::Entry;

thread_local! {
    /// Whether the next comparison of keys on this thread panics.
    static EQ_PANICS: Cell<bool> = const { Cell::new(false) };
}

/// A key. All keys have the same hash, so that a lookup compares a key with those of other entries.
#[derive(Clone, Eq)]
struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        assert!(!EQ_PANICS.take(), "the key's own fault");
        self.0 == other.0
    }
}

type Pages = Cache<Key, Arc<Page>>;

/// A value whose drop loads the key 1, and then sends a message.
struct Page(Option<(Pages, mpsc::Sender<()>)>);

impl Drop for Page {
    fn drop(&mut self) {
        let Some((pages, done)) = self.0.take() else { return };
        pages.get_or_insert_with(Key(1), || Arc::new(Page(None)));
        done.send(()).unwrap();
    }
}

/// Returns a cache with the keys 1 and 2, which are due, the key 1 in the group `tenant`. The value
/// of the key 1 sends the message.
fn pages(clock: &ManualClock, done: mpsc::Sender<()>) -> Pages {
    let runtime = runtime(clock);
    let pages = Pages::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(10 * SECOND)
        .refresh_ahead(3 * SECOND)
        .build()
        .unwrap();
    let tenant = runtime.group("tenant").unwrap();
    assert!(pages.insert(Key(2), Arc::new(Page(None))).is_ok());
    assert!(pages.entry(Key(1)).group(&tenant).insert(Arc::new(Page(Some((pages.clone(), done))))).is_ok());
    clock.advance(8 * SECOND);
    pages
}

/// Removes the entry of the key 1 without a call that stops its load, and waits until the caller of
/// the reload holds the only clone of its value.
fn leave_last_clone(pages: &Pages) {
    let value = Arc::downgrade(&pages.get(&Key(1)).unwrap());
    let runtime = pages.runtime();
    runtime.drop_group(&runtime.find_group("tenant").unwrap()).unwrap();
    eventually(PATIENCE, "the entry is removed and dropped", || {
        pages.collect();
        value.strong_count() == 1
    });
}

#[test]
fn the_old_value_is_dropped_after_the_load_has_ended() {
    type Reload = fn(Entry<'_, Key, Arc<Page>>, &Pages);
    let reloads: &[(&str, Reload)] = &[
        ("panic of the load", |entry, pages| {
            entry.or_insert_with(|| {
                leave_last_clone(pages);
                panic!("the load's own fault")
            });
        }),
        ("panic of `Eq` after an error", |entry, pages| {
            let loaded = entry.or_try_insert_with(|| {
                leave_last_clone(pages);
                EQ_PANICS.set(true);
                Err(())
            });
            unreachable!("returned {}", loaded.is_ok());
        }),
        #[cfg(feature = "async")]
        ("drop of a task", |entry, pages| {
            let load = async {
                leave_last_clone(pages);
                std::future::pending().await
            };
            let executor = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let limit =
                async { tokio::time::timeout(Duration::from_millis(1), entry.or_insert_with_async(load)).await };
            assert!(executor.block_on(limit).is_err());
        }),
        #[cfg(feature = "async")]
        ("drop of a task that returns the origin", |entry, pages| {
            let load = async {
                leave_last_clone(pages);
                std::future::pending::<Result<_, ()>>().await
            };
            let executor = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let limit =
                async { tokio::time::timeout(Duration::from_millis(1), entry.or_try_fill_with_async(load)).await };
            assert!(executor.block_on(limit).is_err());
        }),
    ];
    let ends: Vec<_> = reloads
        .iter()
        .map(|&(name, reload)| {
            let (done, is_done) = mpsc::channel();
            let pages = pages(&ManualClock::new(), done);
            // Not joined: a load that waits for itself never ends.
            std::thread::spawn(move || {
                catch_unwind(AssertUnwindSafe(|| reload(pages.entry(Key(1)).refresh(), &pages)))
            });
            (name, is_done)
        })
        .collect();
    for (name, is_done) in ends {
        assert_eq!(is_done.recv_timeout(PATIENCE), Ok(()), "{name}");
    }
}
