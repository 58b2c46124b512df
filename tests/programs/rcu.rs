//! A cell of a value under RCU, and grace periods.
//!
//! A reader that has loaded a value keeps its guard while a callback runs, which may replace the
//! value, so a value that is freed too early is found by its token.
//!
//! A change must ensure that a cookie is only polled under a guard for the answer "not yet".

use std::sync::Mutex;

use lowwater_rcu::{flush, pin, start_poll, GracePeriod, RcuCell};

use crate::callback::{enter, is_inside, Callback};
use crate::token::{fail, Tag, Token};

/// Two cells, and the cookies of grace periods, each with whether it was once seen to be over.
#[derive(Default)]
pub struct Rcu {
    cell: RcuCell<Token>,
    /// The cell of callbacks, which library threads call at any time.
    cell_of_callbacks: RcuCell<Token>,
    periods: Mutex<Vec<(GracePeriod, bool)>>,
}

impl Rcu {
    /// Runs one operation; `how` selects it: 0 loads, 1 replaces, 2 replaces by an outdated
    /// expectation, 3 clears, 4 flushes, 5 starts a grace period, else polls. `is_alone` is whether
    /// no other thread runs steps.
    pub fn step(&self, how: u8, is_alone: bool) {
        let is_alone = is_alone && !is_inside();
        let cell = if is_inside() { &self.cell_of_callbacks } else { &self.cell };
        let new = || Token::new(Tag::new(0, how.into()), Callback::ObjectDrop);
        match how {
            0 => {
                let guard = pin();
                let Some(loaded) = cell.load(&guard) else { return };
                loaded.check("loaded from a cell");
                enter(Callback::Done);
                loaded.check("loaded from a cell before");
            }
            1 => {
                let guard = pin();
                let there = cell.load(&guard);
                let new = new();
                let tag = new.tag();
                let is_replaced = cell.replace(there, new, &guard);
                if is_alone && (!is_replaced || cell.load(&guard).map(Token::tag) != Some(tag)) {
                    fail("a cell that no other thread changes was not replaced");
                }
                there.inspect(|there| there.check("replaced in a cell"));
            }
            2 => {
                let guard = pin();
                let Some(there) = cell.load(&guard) else { return };
                let tag = there.tag();
                if cell.replace(None, new(), &guard) && is_alone {
                    fail("a cell with a value was replaced as if it were empty");
                }
                if is_alone && cell.load(&guard).map(Token::tag) != Some(tag) {
                    fail("a refused value is in the cell");
                }
            }
            3 => {
                let guard = pin();
                let there = cell.load(&guard);
                cell.clear(&guard);
                if is_alone && cell.load(&guard).is_some() {
                    fail("a cell has a value after it was cleared");
                }
                there.inspect(|there| there.check("cleared from a cell"));
            }
            4 => flush(),
            5 => {
                let guard = pin();
                let period = start_poll();
                enter(Callback::Done);
                if period.poll() {
                    fail("a grace period is over while its reader is inside");
                }
                drop(guard);
                self.periods.lock().unwrap().push((period, false));
            }
            _ => {
                // Taken out, as a poll may run destructors, whose callbacks may come here.
                let mut periods = std::mem::take(&mut *self.periods.lock().unwrap());
                for (period, was_over) in periods.iter_mut() {
                    let is_over = period.poll();
                    let _ = period.is_fenced();
                    // A later reader may delay the answer in some builds, but on this thread no
                    // guard is older than one that has passed.
                    *was_over |= is_over;
                }
                periods.retain(|(_, was_over)| !was_over);
                self.periods.lock().unwrap().append(&mut periods);
            }
        }
    }
}
