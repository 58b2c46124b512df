//! A program: its runtime, its steps, its end.
//!
//! Plain data, drawn by `strategy` and printed when the program fails.
//!
//! A failing program is run again by its seed and the numbers of its steps. A change must ensure
//! that `only` numbers steps in the same order in each run.

use crate::step::Step;

/// The runtime at the start of a program.
#[derive(Clone, Debug)]
pub struct RuntimeChoices {
    /// The budget; 0 is none.
    pub budget_kib: u32,
    /// The gaps of the reclaimer's watermarks below each limit, in 256ths of the budget. If they
    /// were larger than the budget, each insert would try to evict everything.
    pub watermarks: Option<(u8, u8)>,
    /// The longest direct reclaim of one charge, in microseconds.
    pub direct_us: Option<u16>,
    pub nodes: u8,
    /// Whether the deadlines of entries follow a clock that only steps advance.
    pub is_manual: bool,
    /// Whether the runtime outlives everything else. Only then its usage is checked at the end.
    pub keeps_runtime: bool,
}

/// A program: the steps of the first thread, and in `beside` those of each further thread.
#[derive(Clone, Debug)]
pub struct Program {
    pub shape: RuntimeChoices,
    pub steps: Vec<Step>,
    pub beside: Vec<Vec<Step>>,
    /// The order in which everything is dropped at the end: see `end_part` in `case.rs`.
    pub ending: [u8; 6],
}

impl Program {
    /// Returns the program with only the selected steps. Nested steps have numbers, too; those of a
    /// scope that is not selected take its place.
    pub fn only(&self, keeps: &dyn Fn(usize) -> bool) -> Self {
        fn only(steps: &[Step], at: &mut usize, keeps: &dyn Fn(usize) -> bool) -> Vec<Step> {
            let mut kept = Vec::new();
            for step in steps {
                let keeps_it = keeps(*at);
                *at += 1;
                match step {
                    Step::Within(scope, steps) => {
                        let inner = only(steps, at, keeps);
                        if keeps_it {
                            kept.push(Step::Within(*scope, inner));
                        } else {
                            kept.extend(inner);
                        }
                    }
                    step if keeps_it => kept.push(step.clone()),
                    _ => {}
                }
            }
            kept
        }
        let mut at = 0;
        let steps = only(&self.steps, &mut at, keeps);
        let beside = self.beside.iter().map(|steps| only(steps, &mut at, keeps)).collect();
        Self { steps, beside, ..self.clone() }
    }

    /// Returns the number of steps, nested ones included.
    pub fn len(&self) -> usize {
        let count = std::cell::Cell::new(0);
        self.only(&|at| {
            count.set(at + 1);
            true
        });
        count.get()
    }
}
