//! Puts the mutants from `cargo mutants --list --json` into one build ("mutant schemata": Untch,
//! Offutt and Harrold 1993).
//!
//! Each mutated place becomes `if is_on(N) { mutated } else { original }`, so that one build of the
//! tests serves all mutants. `LOWWATER_MUTANT=N` activates mutant `N` in a run of the tests.
//!
//! ```text
//! lowwater-mutants FOLDER < JSON > TABLE
//! ```
//!
//! `FOLDER` is a copy of the workspace, which is edited in place. `TABLE` has a line for each
//! mutant: its number, the result (`switch` or `cannot`), and its name.
//!
//! A change must ensure that lines keep their numbers, by which `run.py` finds the mutants that do
//! not build, and that a run without `LOWWATER_MUTANT` behaves as the original. (The operands of a
//! binary operator are repeated; if they have several lines, the lines after them move.)

mod edit;
mod site;

use edit::Edits;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = env::args().nth(1).ok_or("usage: lowwater-mutants FOLDER < JSON")?;
    let mut json = String::new();
    io::stdin().read_to_string(&mut json)?;
    let mutants: Vec<Value> = serde_json::from_str(&json)?;
    let mut files: BTreeMap<&str, Vec<(usize, &Value)>> = BTreeMap::new();
    for (number, mutant) in mutants.iter().enumerate() {
        files.entry(text(mutant, "file")?).or_default().push((number + 1, mutant));
    }
    for (file, mutants) in files {
        let path = Path::new(&folder).join(file);
        let source = fs::read_to_string(&path)?;
        let tree = syn::parse_file(&source)?;
        let is_on = if file.starts_with("crates/base/") { "crate::mutant::is_on" } else { "lowwater_base::mutant::is_on" };
        let mut edits = Edits::new(&source);
        for (number, mutant) in mutants {
            let switched = site::find(&tree, &edits, mutant)
                .map(|site| site.edits(&format!("{is_on}({number})"), text(mutant, "replacement").unwrap_or_default(), &source));
            let is_switched = switched.is_some_and(|new| edits.try_add(new));
            println!("{number}\t{}\t{}", if is_switched { "switch" } else { "cannot" }, text(mutant, "name")?);
        }
        fs::write(&path, edits.apply())?;
    }
    Ok(())
}

fn text<'a>(mutant: &'a Value, field: &str) -> Result<&'a str, String> {
    mutant[field].as_str().ok_or_else(|| format!("a mutant without {field}: {mutant}"))
}
