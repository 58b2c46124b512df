//! A thread that reads while something is retired, so that it is freed later.
//!
//! A change must ensure that the thread is inside during the whole call, and has left after it.

use std::sync::mpsc::channel;
use std::thread;

use lowwater_rcu::pin;

/// Calls `retire` while another thread is pinned. The retired values are not freed by its own
/// guards, but by a later collection, on any thread.
pub fn beside_a_reader(retire: impl FnOnce()) {
    let ((enter, entered), (leave, left)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        scope.spawn(move || {
            let _guard = pin();
            enter.send(()).unwrap();
            let _closed = left.recv();
        });
        entered.recv().unwrap();
        retire();
        drop(leave);
    });
}
