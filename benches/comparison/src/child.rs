//! Measurements in a child process, so that memory left in the allocator does not affect the next
//! one.
//!
//! The parent starts itself with arguments that select one measurement; the child prints its
//! figures on one line.
//!
//! The line that a child prints is read by the parent: change both together.

use std::process::Command;

use crate::contender::Run;
use crate::sections::{memory, stalls};

/// The figures of a child, in the order of its table's columns.
pub type Figures = Vec<f64>;
/// The measurement that a child runs.
pub type Measure = fn(usize) -> Figures;

/// Runs a measurement in a child process: `section` names the list of measurements, `contender` one
/// of them, `number` is its size: entries, caches or tenants.
pub fn ask(section: &str, contender: &str, number: usize) -> Result<Figures, String> {
    let me = std::env::current_exe().map_err(|why| format!("cannot find the path of this program: {why}"))?;
    let output = Command::new(me)
        .args(["--child", section, contender, &number.to_string()])
        .output()
        .map_err(|why| format!("cannot start a process for {section} of {contender}: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Result<Figures, _> = text.split_whitespace().map(str::parse).collect();
    match figures {
        Ok(figures) if output.status.success() && !figures.is_empty() => Ok(figures),
        _ => Err(format!("{section} of {contender}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

/// Runs a measurement inside the child process. The arguments are section, contender and number.
pub fn answer(what: &[String]) -> Result<(), String> {
    let [section, contender, number] = what else { return Err("--child SECTION CONTENDER NUMBER".into()) };
    let number = number.parse().map_err(|_| format!("--child: {number:?} is no number"))?;
    let runs: Vec<Run<Measure>> = match section.as_str() {
        "fill" => memory::fills(),
        "empty" => memory::empties(),
        "tenants" => memory::tenants(),
        "shrink" => stalls::shrinks(),
        _ => return Err(format!("--child: no section {section:?}")),
    };
    let run = runs
        .into_iter()
        .find(|run| run.name == contender)
        .ok_or_else(|| format!("--child: no contender {contender:?}"))?;
    let figures: Vec<String> = (run.call)(number).iter().map(ToString::to_string).collect();
    println!("{}", figures.join(" "));
    Ok(())
}

/// Returns the resident bytes of this process.
pub fn resident_bytes() -> f64 {
    let kilobytes = |path: &str, field: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    // The first file is exact; the second may lag by some pages.
    let known = kilobytes("/proc/self/smaps_rollup", "Rss:").or_else(|| kilobytes("/proc/self/status", "VmRSS:"));
    known.unwrap_or(f64::NAN) * 1024.0
}
