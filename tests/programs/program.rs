//! A program: its runtime, its steps, its end.

use crate::step::Step;

/// The runtime that a program begins with.
#[derive(Clone, Debug)]
pub struct RuntimeChoices {
    pub budget_kib: u32,
    pub nodes: u8,
    /// Is the runtime there until all else has gone?
    pub keeps_runtime: bool,
}

/// A program: steps of the first thread, and of those beside it.
#[derive(Clone, Debug)]
pub struct Program {
    pub shape: RuntimeChoices,
    pub steps: Vec<Step>,
    pub beside: Vec<Vec<Step>>,
    /// In which order everything is dropped at the end.
    pub ending: [u8; 6],
}

impl Program {
    /// The program with those of its steps alone, which are counted with all steps inside of
    /// others.
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

    /// How many steps there are, those inside of others included.
    pub fn len(&self) -> usize {
        let count = std::cell::Cell::new(0);
        self.only(&|at| {
            count.set(at + 1);
            true
        });
        count.get()
    }
}
