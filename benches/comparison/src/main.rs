//! Compares lowwater's cache with alternatives, in one run: see README.md.
//!
//! ```text
//!   main      the command line: which sections, in which form
//!   contender the trait of a measured cache; the list of all
//!   contenders/ one file each
//!   sections/ one file for each kind of measurement
//!   threads   threads bound to processors, and the control for free processors
//!   references/ plain policies, for hit ratios
//!   recorder  latencies of single calls, and whether the thread was preempted in them
//!   child     measurements in a child process, for resident memory
//!   keys      the sequences of requested keys
//!   report    tables, JSON, plots
//! ```
//!
//! A change must ensure that every section can be run alone, and that all contenders of a section
//! get the same requests.

#[path = "../../../examples/at_end/mod.rs"]
mod at_end;
mod child;
mod contender;
mod contenders;
mod keys;
mod recorder;
mod references;
mod report;
mod sections;
mod threads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use contender::Plan;
use report::{Record, Report};

/// Compares lowwater's cache with its contenders. The machine should be idle.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// The section to measure
    #[arg(value_enum, default_value = "all")]
    section: Section,
    /// Only these contenders
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Numbers of threads for throughput
    #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_name = "N")]
    threads: Vec<usize>,
    /// Times that each contender is measured; the median counts
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Entries for the memory section [default: 10,000,000]
    #[arg(long, value_name = "N")]
    entries: Option<usize>,
    /// Folder of traces for hit ratios: files *.u64 of little-endian 64-bit keys
    #[arg(long, env = "LOWWATER_TRACES", value_name = "FOLDER")]
    traces: Option<PathBuf>,
    /// Small numbers, to check that all sections work: the figures are not meaningful
    #[arg(long)]
    quick: bool,
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Write a plot of each table into this folder
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Replace the tables in this Markdown file, and write plots into plots/ beside it
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The measurement of a child process: section, contender, and a number
    #[arg(long, hide = true, num_args = 3)]
    child: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    Throughput,
    Latency,
    Memory,
    Stalls,
    HitRatio,
    Tenants,
    All,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("contenders: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns an argument without directories, so that the report does not show paths of this machine.
fn shown(word: &str) -> String {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    word.split_once('=').map_or_else(|| name(word), |(option, path)| format!("{option}={}", name(path)))
}

/// Measures the sections that the arguments select, and writes the report in the requested form.
fn run(args: &Args) -> Result<(), String> {
    if let Some(what) = &args.child {
        return child::answer(what);
    }
    let plan = Plan {
        only: args.only.clone(),
        threads: args.threads.clone(),
        rounds: args.rounds.unwrap_or(if args.quick { 1 } else { 5 }).max(1),
        entries: args.entries.unwrap_or(if args.quick { 200_000 } else { 10_000_000 }).max(1),
        quick: args.quick,
    };
    plan.check()?;
    let record = args.record.clone().map(Record::new).transpose()?;
    let mut report = Report::new(args.json, args.plot.clone(), record);
    let threads_max = plan.threads.iter().copied().max().unwrap_or(1);
    report.control(threads::control(threads_max));
    let wanted = |section| args.section == section || args.section == Section::All;
    if wanted(Section::Throughput) {
        sections::throughput::measure(&plan, &mut report)?;
    }
    if wanted(Section::Latency) {
        sections::latency::measure(&plan, &mut report)?;
    }
    if wanted(Section::Memory) {
        sections::memory::measure(&plan, &mut report)?;
    }
    if wanted(Section::Stalls) {
        sections::stalls::measure(&plan, &mut report)?;
    }
    if wanted(Section::Tenants) {
        sections::tenants::measure(&plan, &mut report)?;
    }
    if wanted(Section::HitRatio) {
        match &args.traces {
            Some(folder) => sections::hit_ratio::measure(&plan, folder, &mut report)?,
            None => eprintln!("no hit ratios: give the folder of traces with --traces, or in LOWWATER_TRACES"),
        }
    }
    let arguments: Vec<_> = std::env::args_os().skip(1).map(|word| shown(&word.to_string_lossy())).collect();
    report.end(&format!("lowwater-comparison {}", arguments.join(" ")))
}
