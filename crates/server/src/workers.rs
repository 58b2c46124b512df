//! Worker threads: each has an event loop, and connections that stay on it.
//!
//! A work-stealing pool of threads was slower, and less fair: each request woke a thread, and the
//! first thread to wake served it. Here an event loop collects all ready connections, runs each
//! once, and polls again.
//!
//! Benefits: low tail latency, fewer system calls. Costs: connections are assigned round robin,
//! whatever their load will be; a slow command delays the other connections of its thread, so
//! commands that visit all values run on other threads (the crawls of
//! [`Server`](crate::server::Server)), or in parts (`stats sizes`).
//!
//! A change must ensure that a connection stays on its thread, and that no command on it visits all
//! values at once.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use crate::timers;

/// The event loops: one for the calling thread, the others on threads of their own.
#[derive(Debug)]
pub struct Workers {
    /// The calling thread's event loop.
    own: Runtime,
    others: Vec<Worker>,
    /// Carries no message: disconnected when all other threads have ended.
    ended: mpsc::Receiver<()>,
}

/// An event loop on a thread of its own.
#[derive(Debug)]
struct Worker {
    handle: Handle,
    /// Dropping it stops the thread.
    _stop: oneshot::Sender<()>,
}

/// Assigns connections to the workers in turn.
#[derive(Debug)]
pub struct RoundRobin {
    handles: Vec<Handle>,
    /// The number of calls of [`pick`](Self::pick).
    picks: AtomicUsize,
}

impl Workers {
    /// Starts `count` workers, counting the calling thread; at least one.
    ///
    /// # Errors
    ///
    /// The system has no thread or file descriptor left.
    pub fn start(count: usize) -> io::Result<Self> {
        timers::start()?;
        let (alive, ended) = mpsc::channel();
        let others = (1..count).map(|number| Worker::start(number, alive.clone())).collect::<io::Result<_>>()?;
        Ok(Self { own: event_loop()?, others, ended })
    }

    /// Returns a round robin over all workers.
    pub fn round_robin(&self) -> RoundRobin {
        let others = self.others.iter().map(|other| &other.handle);
        let handles = std::iter::once(self.own.handle()).chain(others).cloned().collect();
        RoundRobin { handles, picks: AtomicUsize::new(0) }
    }

    /// Runs the calling thread's event loop until `main` completes.
    pub fn run<T>(&self, main: impl Future<Output = T>) -> T {
        self.own.block_on(main)
    }

    /// Stops all event loops, and drops their tasks. Waits up to `time_max` for the other threads,
    /// and then as long again for blocking tasks of the own loop; what still runs then is
    /// abandoned.
    pub fn end(self, time_max: Duration) {
        drop(self.others);
        // An error in either case: all threads have ended, or the time is over.
        let _ = self.ended.recv_timeout(time_max);
        self.own.shutdown_timeout(time_max);
    }
}

impl Worker {
    fn start(number: usize, alive: mpsc::Sender<()>) -> io::Result<Self> {
        let event_loop = event_loop()?;
        let handle = event_loop.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new().name(format!("serve-{number}")).spawn(move || {
            // Nothing is sent: `stopped` resolves to an error when the sender is dropped.
            let _ = event_loop.block_on(stopped);
            event_loop.shutdown_background();
            drop(alive);
        })?;
        Ok(Self { handle, _stop: stop })
    }
}

impl RoundRobin {
    /// Returns the event loop of the next worker.
    pub fn pick(&self) -> &Handle {
        // Relaxed: the counter guards no other memory.
        let turn = self.picks.fetch_add(1, Ordering::Relaxed);
        &self.handles[turn % self.handles.len()]
    }
}

fn event_loop() -> io::Result<Runtime> {
    // Without timers: see `timers`.
    Builder::new_current_thread().enable_io().build()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn connections_are_assigned_round_robin() {
        let workers = Workers::start(3).unwrap();
        let round_robin = workers.round_robin();
        let tasks: Vec<_> = (0..6).map(|_| round_robin.pick().spawn(async { thread::current().id() })).collect();
        let ids = workers.run(async {
            let mut ids = Vec::new();
            for task in tasks {
                ids.push(task.await.unwrap());
            }
            ids
        });
        assert_eq!(ids[0], thread::current().id());
        assert_eq!(ids[..3], ids[3..]);
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[2] != ids[0]);
        workers.end(Duration::from_secs(10));
    }

    #[test]
    fn shutdown_waits_for_ending_tasks_and_aborts_the_others() {
        let workers = Workers::start(2).unwrap();
        let round_robin = workers.round_robin();
        let (dropped, is_dropped) = mpsc::channel::<()>();
        round_robin.pick();
        round_robin.pick().spawn(async move {
            let _kept = dropped;
            std::future::pending::<()>().await;
        });
        workers.end(Duration::from_secs(10));
        assert_eq!(is_dropped.try_recv(), Err(mpsc::TryRecvError::Disconnected), "a pending task is dropped");

        let workers = Workers::start(2).unwrap();
        let round_robin = workers.round_robin();
        round_robin.pick();
        let (goes, has_gone) = mpsc::channel();
        round_robin.pick().spawn(async move {
            let _ = goes.send(());
            thread::sleep(Duration::from_secs(60));
        });
        has_gone.recv().unwrap();
        let started = Instant::now();
        workers.end(Duration::from_millis(100));
        assert!(started.elapsed() < Duration::from_secs(30), "a blocking task is abandoned");
    }
}
