//! Watchers of evictions.
//!
//! A value is evicted by whichever thread needs memory, and that thread must not wait for a
//! watcher: each watcher has a queue, and misses the lines that do not fit. Without watchers, an
//! eviction costs one load.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::protocol::item::SLAB_CLASS;
use crate::protocol::uri::uri_encoded;
use crate::value::Value;

/// Maximum of queued lines per watcher: less than a megabyte even with the longest keys.
const QUEUE_LINES: usize = 1024;

/// memcached's bound on watchers.
const WATCHERS_MAX: usize = 20;

/// The queues of all watchers.
#[doc(alias = "logger_watcher")]
#[derive(Debug, Default)]
pub struct Watchers {
    queues: Mutex<Vec<mpsc::Sender<String>>>,
    count: AtomicUsize,
    /// The number of the last line: watchers detect missed lines by gaps.
    lines: AtomicU64,
}

impl Watchers {
    /// Subscribes one more watcher; `None` if there are `WATCHERS_MAX`.
    pub fn subscribe(&self) -> Option<mpsc::Receiver<String>> {
        let (queue, lines) = mpsc::channel(QUEUE_LINES);
        let mut queues = self.queues.lock();
        queues.retain(|queue| !queue.is_closed());
        if queues.len() >= WATCHERS_MAX {
            return None;
        }
        queues.push(queue);
        // Relaxed: an eviction at the same time may be reported or not.
        self.count.store(queues.len(), Ordering::Relaxed);
        Some(lines)
    }

    /// Sends memcached's line about an eviction to all watchers.
    pub fn publish_eviction(&self, key: &[u8], value: &Value, idle_seconds: u32) {
        // Relaxed: an eviction may miss a watcher that subscribes at the same time.
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Relaxed: it matters only that the numbers differ.
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
        // A watcher whose queue is full misses this line; a watcher that has disconnected is
        // removed.
        queues.retain(|queue| !matches!(queue.try_send(line.clone()), Err(mpsc::error::TrySendError::Closed(_))));
        // Relaxed: the count only saves the lock when there are no watchers.
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
        assert!(watchers.queues.lock().is_empty(), "a disconnected watcher is removed");
    }

    #[test]
    fn watchers_are_bounded() {
        let watchers = Watchers::default();
        let mut watching: Vec<_> = (0..WATCHERS_MAX).map(|_| watchers.subscribe().unwrap()).collect();
        assert!(watchers.subscribe().is_none());
        watching.pop();
        assert!(watchers.subscribe().is_some(), "a disconnected watcher makes room, even without an eviction since");
    }
}
