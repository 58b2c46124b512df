//! A progress bar on stderr, for runs that take seconds.
//!
//! A thread of its own draws the bar, so that it moves while a step takes long. A change must
//! ensure that no such thread runs if the bar is hidden.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The time between two drawings.
const TICK: Duration = Duration::from_millis(100);

/// Returns a bar of this many steps. Hidden if `is_quiet`, or if stderr is no terminal.
pub fn bar(steps: u64, is_quiet: bool) -> ProgressBar {
    let bar = if is_quiet { ProgressBar::hidden() } else { ProgressBar::new(steps) };
    bar.set_style(ProgressStyle::with_template("{bar:40} {elapsed} {msg}").expect("the template is valid"));
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}
