//! Watchers: clients that `watch` events of the server, one line each.
//!
//! An event happens on a thread that serves clients, or that needs memory, and that thread must not
//! wait for a watcher: each watcher has a queue, and misses the lines that do not fit: the next
//! line that fits tells it how many. A kind of events that no client watches costs one load.
//!
//! A change must ensure that publishing waits for no watcher, and that each line of any kind has a
//! number of its own.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::protocol::event::{Event, EventSet};
use crate::protocol::item::SLAB_CLASS;
use crate::protocol::uri::uri_encoded;
use crate::value::Value;

/// Maximum of queued lines per watcher: mostly some 100 KiB, and less than 2 MiB with the
/// longest keys, of which each byte may be written as `%XX`.
const QUEUE_LINES: usize = 1024;

/// memcached's bound on watchers.
const WATCHERS_MAX: usize = 20;

/// The queues of all watchers.
#[doc(alias = "logger_watcher")]
#[derive(Debug, Default)]
pub struct Watchers {
    queues: Mutex<Vec<Queue>>,
    /// The bits of the [`EventSet`] that some client watches.
    watched: AtomicU8,
    /// The number of the last line, of any kind (memcached's `gid`). A gap shows missed lines only
    /// to a watcher of all kinds.
    lines: AtomicU64,
    sent: AtomicU64,
    skipped: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    events: EventSet,
    lines: mpsc::Sender<String>,
    /// Lines that the watcher has missed since it was told last.
    missed: u64,
}

impl Queue {
    /// Sends a line; before it memcached's `skipped=`, if the watcher has missed lines.
    fn send(&mut self, line: String) -> Result<(), TrySendError<String>> {
        let told = match self.missed {
            0 => Ok(()),
            missed => self.lines.try_send(format!("skipped={missed}\n")),
        };
        if told.is_ok() {
            self.missed = 0;
        }
        told.and_then(|()| self.lines.try_send(line)).inspect_err(|_| self.missed += 1)
    }
}

/// The counts that `stats` shows.
#[derive(Debug, PartialEq, Eq)]
pub struct WatcherCounts {
    pub watchers: u64,
    /// Lines put into a queue.
    pub sent: u64,
    /// Lines that a queue did not take: it was full, or its watcher had disconnected.
    pub skipped: u64,
}

impl Watchers {
    /// Subscribes one more watcher to `events`; `None` if there are `WATCHERS_MAX`.
    pub fn subscribe(&self, events: EventSet) -> Option<mpsc::Receiver<String>> {
        let (sender, lines) = mpsc::channel(QUEUE_LINES);
        let mut queues = self.queues.lock();
        queues.retain(|queue| !queue.lines.is_closed());
        if queues.len() >= WATCHERS_MAX {
            return None;
        }
        queues.push(Queue { events, lines: sender, missed: 0 });
        self.update_watched(&queues);
        Some(lines)
    }

    /// Returns whether some client watches events of this kind.
    pub fn want(&self, event: Event) -> bool {
        // Relaxed: an event may miss a watcher that subscribes at the same time.
        EventSet::of_bits(self.watched.load(Ordering::Relaxed)).has(event)
    }

    /// Sends a line to all watchers of this kind of events: memcached's time stamp and number, then
    /// `text`.
    #[cold]
    pub fn publish(&self, event: Event, text: impl Display) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Relaxed, as below: it matters only that the numbers differ.
        let number = self.lines.fetch_add(1, Ordering::Relaxed) + 1;
        let line = format!("ts={}.{} gid={number} {text}\n", now.as_secs(), now.subsec_micros());
        let mut queues = self.queues.lock();
        // A watcher of this kind misses the line if its queue is full, and is removed if it has
        // disconnected.
        queues.retain_mut(|queue| {
            if !queue.events.has(event) {
                return true;
            }
            let sent = queue.send(line.clone());
            let count = if sent.is_ok() { &self.sent } else { &self.skipped };
            count.fetch_add(1, Ordering::Relaxed);
            !matches!(sent, Err(TrySendError::Closed(_)))
        });
        self.update_watched(&queues);
    }

    /// Sends a line about an eviction, if a client watches them.
    pub fn publish_eviction(&self, key: &[u8], value: &Value, idle_seconds: u32) {
        if self.want(Event::Eviction) {
            let fetched = if value.last_access.is_fetched() { "yes" } else { "no" };
            let (key, size) = (uri_encoded(key), value.len());
            // `ttl` is always -1, as of a value without an expiry: the listener gets no deadline.
            self.publish(
                Event::Eviction,
                format_args!(
                    "type=eviction key={key} fetch={fetched} ttl=-1 la={idle_seconds} clsid={SLAB_CLASS} size={size}"
                ),
            );
        }
    }

    /// Returns the counts.
    pub fn counts(&self) -> WatcherCounts {
        let watchers = self.queues.lock().iter().filter(|queue| !queue.lines.is_closed()).count() as u64;
        // Relaxed: statistics that guard no other memory.
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WatcherCounts { watchers, sent: count(&self.sent), skipped: count(&self.skipped) }
    }

    /// Sets the counts of sent and missed lines to 0.
    pub fn reset(&self) {
        for counter in [&self.sent, &self.skipped] {
            // Relaxed: a statistic that guards no other memory.
            counter.store(0, Ordering::Relaxed);
        }
    }

    fn update_watched(&self, queues: &[Queue]) {
        let watched = queues.iter().fold(EventSet::default(), |all, queue| all.union(queue.events));
        // Relaxed: the set only saves the lock when an event has no watchers.
        self.watched.store(watched.bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::value::data::Data;
    use crate::value::item_flags::ItemFlags;
    use crate::value::piece_pool::PiecePool;

    fn evictions() -> EventSet {
        EventSet::default().with(Event::Eviction)
    }

    #[test]
    fn a_watcher_that_does_not_read_is_not_waited_for() {
        let watchers = Watchers::default();
        let data = Data::copy(b"abc", &Arc::new(PiecePool::new(0)));
        let value = Value::new(b"k", 0, ItemFlags::default(), 1, &data);
        watchers.publish_eviction(b"unseen", &value, 0);
        let mut slow = watchers.subscribe(evictions()).unwrap();
        for _ in 0..QUEUE_LINES + 10 {
            watchers.publish_eviction(b"a b", &value, 7);
        }
        let line = slow.try_recv().unwrap();
        assert!(line.ends_with(" gid=1 type=eviction key=a%20b fetch=no ttl=-1 la=7 clsid=1 size=3\n"), "{line}");
        assert_eq!(std::iter::from_fn(|| slow.try_recv().ok()).count(), QUEUE_LINES - 1);
        watchers.publish(Event::Eviction, "next");
        assert_eq!(slow.try_recv().as_deref(), Ok("skipped=10\n"));
        assert!(slow.try_recv().unwrap().ends_with(" next\n"));
        watchers.publish(Event::Eviction, "another");
        assert!(slow.try_recv().unwrap().ends_with(" another\n"), "told once");
        assert_eq!(watchers.counts(), WatcherCounts { watchers: 1, sent: QUEUE_LINES as u64 + 2, skipped: 10 });
        watchers.reset();
        assert_eq!(watchers.counts(), WatcherCounts { watchers: 1, sent: 0, skipped: 0 });
        drop(slow);
        watchers.publish_eviction(b"k", &value, 7);
        assert!(watchers.queues.lock().is_empty(), "a disconnected watcher is removed");
        assert!(!watchers.want(Event::Eviction), "and costs no lines any more");
    }

    #[test]
    fn a_watcher_gets_the_events_that_it_watches() {
        let watchers = Watchers::default();
        let both = evictions().with(Event::Fetch);
        let (mut one, mut two) = (watchers.subscribe(evictions()).unwrap(), watchers.subscribe(both).unwrap());
        let wanted = [Event::Eviction, Event::Fetch, Event::Mutation].map(|event| watchers.want(event));
        assert_eq!(wanted, [true, true, false]);
        watchers.publish(Event::Fetch, "a");
        watchers.publish(Event::Eviction, "b");
        let lines = |one: &mut mpsc::Receiver<String>| {
            std::iter::from_fn(|| one.try_recv().ok()).map(|line| line[line.len() - 2..].to_owned()).collect::<String>()
        };
        assert_eq!((lines(&mut one).as_str(), lines(&mut two).as_str()), ("b\n", "a\nb\n"));
        drop(two);
        watchers.publish(Event::Fetch, "c");
        assert!(!watchers.want(Event::Fetch) && watchers.want(Event::Eviction));
    }

    #[test]
    fn watchers_are_bounded() {
        let watchers = Watchers::default();
        let mut watching: Vec<_> = (0..WATCHERS_MAX).map(|_| watchers.subscribe(evictions()).unwrap()).collect();
        assert!(watchers.subscribe(evictions()).is_none());
        watching.pop();
        assert!(
            watchers.subscribe(evictions()).is_some(),
            "a disconnected watcher makes room, even without an eviction since"
        );
    }
}
