//! Watchers of evictions.
//!
//! An eviction happens on whatever thread needs memory, so telling of it must not wait: a watcher
//! has a queue, and misses what does not fit. While nobody watches it costs one load.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::protocol::item::SLAB_CLASS;
use crate::protocol::uri::uri_encoded;
use crate::value::Value;

/// Lines that wait for one watcher: with the longest keys, less than a megabyte.
const QUEUE_LINES: usize = 1024;

/// memcached's own bound on watchers.
const WATCHERS_MAX: usize = 20;

/// The queues of all watchers.
#[doc(alias = "logger_watcher")]
#[derive(Debug, Default)]
pub struct Watchers {
    queues: Mutex<Vec<mpsc::Sender<String>>>,
    count: AtomicUsize,
    /// Numbers the lines, so that a watcher sees what it missed.
    lines: AtomicU64,
}

impl Watchers {
    /// Subscribes one more watcher, unless there are `WATCHERS_MAX`.
    pub fn subscribe(&self) -> Option<mpsc::Receiver<String>> {
        let (queue, lines) = mpsc::channel(QUEUE_LINES);
        let mut queues = self.queues.lock();
        queues.retain(|queue| !queue.is_closed());
        if queues.len() >= WATCHERS_MAX {
            return None;
        }
        queues.push(queue);
        // Relaxed: an eviction at the same moment may or may not be seen.
        self.count.store(queues.len(), Ordering::Relaxed);
        Some(lines)
    }

    /// Sends memcached's line about an eviction to all watchers.
    pub fn publish_eviction(&self, key: &[u8], value: &Value, idle_seconds: u32) {
        // Relaxed: as in `join`.
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Relaxed: only that the numbers differ matters.
        let number = self.lines.fetch_add(1, Ordering::Relaxed) + 1;
        let line = format!(
            "ts={}.{} gid={number} type=eviction key={} fetch={} ttl=-1 la={idle_seconds} clsid={SLAB_CLASS} size={}\n",
            now.as_secs(),
            now.subsec_micros(),
            uri_encoded(key),
            if value.last_access.is_fetched() { "yes" } else { "no" },
            value.len(),
        );
        let mut queues = self.queues.lock();
        // One whose queue is full misses this line; one that has left goes.
        queues.retain(|queue| !matches!(queue.try_send(line.clone()), Err(mpsc::error::TrySendError::Closed(_))));
        // Relaxed: as in `join`.
        self.count.store(queues.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::value::data::Data;
    use crate::value::item_flags::ItemFlags;
    use crate::value::piece_pool::PiecePool;

    #[test]
    fn a_watcher_that_does_not_read_is_not_waited_for() {
        let watchers = Watchers::default();
        let data = Data::copy(b"abc", &Arc::new(PiecePool::new(0)));
        let value = Value::new(b"k", 0, ItemFlags::default(), 1, &data);
        watchers.publish_eviction(b"unseen", &value, 0);
        let mut slow = watchers.subscribe().unwrap();
        for _ in 0..QUEUE_LINES + 10 {
            watchers.publish_eviction(b"a b", &value, 7);
        }
        let line = slow.try_recv().unwrap();
        assert!(line.ends_with(" gid=1 type=eviction key=a%20b fetch=no ttl=-1 la=7 clsid=1 size=3\n"), "{line}");
        assert_eq!(std::iter::from_fn(|| slow.try_recv().ok()).count(), QUEUE_LINES - 1);
        drop(slow);
        watchers.publish_eviction(b"k", &value, 7);
        assert!(watchers.queues.lock().is_empty(), "who has left is forgotten");
    }

    #[test]
    fn watchers_are_bounded() {
        let watchers = Watchers::default();
        let mut watching: Vec<_> = (0..WATCHERS_MAX).map(|_| watchers.subscribe().unwrap()).collect();
        assert!(watchers.subscribe().is_none());
        watching.pop();
        assert!(watchers.subscribe().is_some(), "who has left makes room, whether something was seen since or not");
    }
}
