//! Runs programs in processes of their own, so that a program that aborts or hangs is found, too.
//!
//! The parent starts children with ranges of seeds. If a child fails, the parent runs the failing
//! seed again with fewer and fewer steps, and prints the smallest failing program that it finds
//! within [`SHRINK`].
//!
//! A change must ensure that a child which hangs is ended, and that the smallest program is
//! printed.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::case;
use crate::feature::Features;
use crate::program::Program;
use crate::step::Step;
use crate::token;

/// The variables of the environment: the first seed, the number of programs, optionally the numbers
/// of the steps that run; the seconds after which no more programs start, and the seconds after
/// which a program counts as hanging. The first four may be set by hand; `ci/programs.sh` sets the
/// first and the fourth.
const SEED: &str = "LOWWATER_PROGRAMS_SEED";
const COUNT: &str = "LOWWATER_PROGRAMS_COUNT";
const ONLY: &str = "LOWWATER_PROGRAMS_ONLY";
const UNTIL: &str = "LOWWATER_PROGRAMS_SECONDS";
const DEADLINE: &str = "LOWWATER_PROGRAMS_DEADLINE";
const ALL: &str = "all";
/// Set in children only: [`child`] does nothing without it.
const CHILD: &str = "LOWWATER_PROGRAMS_CHILD";

/// The seconds after which a program counts as hanging.
const DEADLINE_DEFAULT: u64 = 300;
/// The same for a program that is being reduced: short, as each try may hang.
const DEADLINE_SIMPLER: u64 = 6;
/// The time for reducing a failing program.
const SHRINK: Duration = Duration::from_secs(60);
/// Printed lines of a failure, at most.
const GIST: usize = 40;
/// Seeds per child.
const BATCH: u64 = 100;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Runs programs of some seeds, as the environment selects.
pub fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let (begin, on) = (Instant::now(), Features::from_env());
    let (first, count) = (number(SEED).expect("a seed"), number(COUNT).unwrap_or(1));
    let only = std::env::var(ONLY).unwrap_or_else(|_| ALL.into());
    let deadline = Duration::from_secs(number(DEADLINE).unwrap_or(DEADLINE_DEFAULT));
    let until = number(UNTIL).map_or(Duration::MAX, Duration::from_secs);
    for seed in first..first + count {
        println!("program {seed}");
        let program = kept(case::draw(seed, on), &only);
        let is_clean = case::run(program, on, deadline);
        println!("done {seed}");
        if !is_clean || !token::has_room() || begin.elapsed() > until {
            break;
        }
    }
    // Exits at once: objects and threads that programs have left may still exist.
    std::process::exit(0);
}

/// The exit of a child, and its output.
struct Ended {
    status: Option<ExitStatus>,
    output: String,
}

impl Ended {
    fn is_ok(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// The number in the last line that begins with this word.
    fn last(&self, word: &str) -> Option<u64> {
        self.output.lines().rev().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.parse().ok())
    }
}

struct Driver {
    log: PathBuf,
}

impl Driver {
    fn new() -> Self {
        let log = std::env::temp_dir().join(format!("lowwater-programs-{}", std::process::id()));
        Self { log }
    }

    fn child(&self, seed: u64, count: u64, only: &str, deadline: u64, seconds: u64) -> Ended {
        let out = File::create(&self.log).expect("a file for output");
        let mut command = Command::new(std::env::current_exe().expect("our own path"));
        command.args(["child", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(CHILD, "1").env(SEED, seed.to_string()).env(COUNT, count.to_string()).env(ONLY, only);
        command.env(DEADLINE, deadline.to_string()).env(UNTIL, seconds.to_string());
        command.stdout(out.try_clone().expect("a handle")).stderr(out);
        let mut child = command.spawn().expect("a child");
        // A child aborts when a program hangs; this is for a child that cannot abort.
        let (begin, most) = (Instant::now(), Duration::from_secs(2 * deadline + 2 * seconds + 60));
        let status = loop {
            match child.try_wait().expect("the process is a child") {
                Some(status) => break Some(status),
                None if begin.elapsed() > most => {
                    let _ = (child.kill(), child.wait());
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let output = fs::read(&self.log).unwrap_or_default();
        Ended { status, output: String::from_utf8_lossy(&output).into_owned() }
    }

    /// Removes steps as long as the program fails without them and [`SHRINK`] is not over. Returns
    /// the remaining steps and their failure.
    fn simplest(&self, seed: u64, program: &Program, first: Ended) -> (Vec<usize>, Ended) {
        let (begin, mut kept, mut failed) = (Instant::now(), (0..program.len()).collect::<Vec<_>>(), first);
        // With several threads a failing program may succeed in some runs.
        let tries = if program.beside.is_empty() { 1 } else { 4 };
        let fails = |kept: &[usize]| {
            let again = |_| self.child(seed, 1, &list(kept), DEADLINE_SIMPLER, 1);
            (0..tries).map(again).find(|ended| !ended.is_ok())
        };
        let mut part = kept.len().div_ceil(2);
        while part > 0 && begin.elapsed() < SHRINK {
            let (mut at, before) = (0, kept.len());
            while at < kept.len() && begin.elapsed() < SHRINK {
                let mut fewer = kept.clone();
                fewer.drain(at..kept.len().min(at + part));
                match fails(&fewer) {
                    Some(ended) => (kept, failed) = (fewer, ended),
                    None => at += part,
                }
            }
            // Passes with single steps repeat until none can be removed.
            part = if part > 1 || kept.len() < before { part.div_ceil(2) } else { 0 };
        }
        (kept, failed)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _removed = fs::remove_file(&self.log);
    }
}

/// Runs programs: for the time or up to the number that the environment sets, otherwise 150, which
/// is what `cargo test` runs.
pub fn parent() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let (driver, on, begin) = (Driver::new(), Features::from_env(), Instant::now());
    let most = number(UNTIL).map(Duration::from_secs);
    let mut seed = number(SEED).unwrap_or(1);
    let count = number(COUNT).unwrap_or(if most.is_some() { u64::MAX } else { 150 });
    let (first, last) = (seed, seed.saturating_add(count));
    let only = std::env::var(ONLY).unwrap_or_else(|_| ALL.into());
    while seed < last && most.is_none_or(|most| begin.elapsed() < most) {
        let rest = most.map_or(60, |most| most.saturating_sub(begin.elapsed()).as_secs().clamp(1, 60));
        let ended = driver.child(seed, BATCH.min(last - seed), &only, DEADLINE_DEFAULT, rest);
        if ended.is_ok() {
            seed = ended.last("done").expect("the child ran at least one program") + 1;
            continue;
        }
        let failed = ended.last("program").unwrap_or(seed);
        // The simpler programs may fail for another reason: they have less time.
        println!("program {failed} fails after {:?}: {:?}\n{}", begin.elapsed(), ended.status, gist(&ended.output));
        let program = case::draw(failed, on);
        let (steps, ended) = driver.simplest(failed, &program, ended);
        let only = list(&steps);
        println!("the fewest steps that fail:\n{}\n{}", print(&kept(program, &only)), gist(&ended.output));
        let status = ended.status;
        panic!(
            "program {failed} fails ({status:?}); again: {SEED}={failed} {COUNT}=1 {ONLY}={only} and the same features"
        );
    }
    println!("{} programs from {first} on, {:?}", seed - first, begin.elapsed());
}

/// Formats step numbers for [`ONLY`].
fn list(steps: &[usize]) -> String {
    steps.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the steps of a program that a list selects, or all.
fn kept(program: Program, only: &str) -> Program {
    if only == ALL {
        return program;
    }
    let steps: Vec<usize> =
        only.split(',').filter(|step| !step.is_empty()).map(|step| step.parse().expect("a step's number")).collect();
    program.only(&|at| steps.contains(&at))
}

/// Formats a program, one step per line.
fn print(program: &Program) -> String {
    let Program { shape, steps, beside, ending } = program;
    let lines = |steps: &[Step]| steps.iter().map(|step| format!("\n    {step:?}")).collect::<String>();
    let beside: String = beside.iter().map(|steps| format!("\n  beside:{}", lines(steps))).collect();
    format!("  {shape:?}, ending {ending:?}{beside}\n  first:{}", lines(steps))
}

/// Returns the output of a child from the beginning of its failure, and a sanitizer's summary.
fn gist(output: &str) -> String {
    let begins =
        |line: &str| ["FAILED:", "ERROR:", "panicked", "fatal", "overflowed"].iter().any(|word| line.contains(word));
    let all: Vec<_> = output.lines().collect();
    let from = all.iter().position(|line| begins(line)).unwrap_or(all.len().saturating_sub(GIST));
    let lines = all[from..].iter().take(GIST).chain(all.iter().filter(|line| line.starts_with("SUMMARY")));
    lines.map(|line| line.chars().take(160).collect::<String>() + "\n").collect()
}
