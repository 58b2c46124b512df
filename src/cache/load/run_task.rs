//! The load of a task, each poll of which runs as the load's code.
//!
//! A change must ensure that no code of the future, its drop included, runs outside of the load's
//! scope.

use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};

use super::wait_graph::LoadScope;

/// Polls a task's load inside of the scope that `run` returns, and drops it there: followers wait
/// until the load is done.
pub(crate) async fn run_task<F: Future>(run: impl FnMut() -> Option<LoadScope>, load: F) -> F::Output {
    /// Drops the future inside of the scope, also when the task is dropped.
    struct Load<'a, F, R: FnMut() -> Option<LoadScope>>(Pin<&'a mut Option<F>>, R);

    impl<F, R: FnMut() -> Option<LoadScope>> Drop for Load<'_, F, R> {
        fn drop(&mut self) {
            let _running = self.1();
            self.0.set(None);
        }
    }

    let load = pin!(Some(load));
    let mut load = Load(load, run);
    poll_fn(|context| {
        let _running = load.1();
        load.0.as_mut().as_pin_mut().expect("a future is not polled after it is ready").poll(context)
    })
    .await
}
