//! Timers, on an event loop of their own.
//!
//! An event loop with timers reads the clock and searches its timers in each turn, whether there
//! are any or not: 420 instructions. Connections rarely wait for a time, so the
//! event loops of the workers have no timers. The thread of the timers sleeps until one of them
//! ends. The price is a second thread to be woken at that time, and a lock that all timers share,
//! so that a connection must not create a timer for each request.
//!
//! A change must ensure that no other file of the server creates a timer of tokio: on a worker, it
//! panics.

#![expect(clippy::disallowed_methods, reason = "this is the place for them")]

use std::future::{pending, Future};
use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{ready, Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::time::{self, Interval, Sleep, Timeout};

/// The event loop of the timers; the reason, if its thread cannot be started.
static TIMERS: LazyLock<Result<Handle, String>> = LazyLock::new(|| spawn().map_err(|why| why.to_string()));

/// Starts the thread of the timers, unless it runs already.
///
/// # Errors
///
/// The system has no thread left.
pub fn start() -> io::Result<()> {
    TIMERS.as_ref().map(drop).map_err(|why| io::Error::other(why.as_str()))
}

/// Resolves after `time`.
pub fn sleep(time: Duration) -> Sleep {
    let _timers = timers().enter();
    time::sleep(time)
}

/// Runs a future for `time` at most; then it resolves to an error.
pub fn timeout<F: Future>(time: Duration, future: F) -> Timeout<F> {
    let _timers = timers().enter();
    time::timeout(time, future)
}

/// Polls whether it is `end`, by a timer that was created for `end` or for an earlier time. So one
/// timer is enough for an `end` that is put off again and again.
pub fn poll_until(mut timer: Pin<&mut Sleep>, end: Instant, cx: &mut Context<'_>) -> Poll<()> {
    let end = end.into();
    while timer.deadline() < end {
        ready!(timer.as_mut().poll(cx));
        timer.as_mut().reset(end);
    }
    timer.poll(cx)
}

/// Ticks at once, and then each `period`.
pub fn interval(period: Duration) -> Interval {
    let _timers = timers().enter();
    time::interval(period)
}

fn timers() -> &'static Handle {
    TIMERS.as_ref().expect("`Workers::start` fails if the thread cannot be started")
}

fn spawn() -> io::Result<Handle> {
    let event_loop = Builder::new_current_thread().enable_time().build()?;
    let handle = event_loop.handle().clone();
    thread::Builder::new().name("timers".to_owned()).spawn(move || event_loop.block_on(pending::<()>()))?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use super::*;

    #[test]
    fn timers_run_without_those_of_the_callers_event_loop() {
        start().unwrap();
        let event_loop = Builder::new_current_thread().build().unwrap();
        event_loop.block_on(async {
            let (started, time) = (Instant::now(), Duration::from_millis(20));
            sleep(time).await;
            assert!(timeout(time, pending::<()>()).await.is_err());
            let mut ticks = interval(time);
            ticks.tick().await;
            ticks.tick().await;
            assert!(started.elapsed() >= 3 * time);
            let mut timer = pin!(sleep(time));
            poll_fn(|cx| poll_until(timer.as_mut(), started + 5 * time, cx)).await;
            assert!(started.elapsed() >= 5 * time);
            assert_eq!(timeout(Duration::from_secs(60), async { 7 }).await, Ok(7));
        });
    }
}
