#!/usr/bin/env python3
"""Draws a random sample of mutants, builds all of them into one set of test programs, and runs
these programs for each mutant.

run.py COUNT SEED TOOL WORK: TOOL is the built program of this folder, WORK a folder for the copy of
the workspace and its build, and for the report, WORK/report.md. Called by ci/mutants.sh, in the root
of the workspace.

run.py --check: each mutant of explained.toml is one of those that cargo-mutants lists.

A mutant is caught when a test program fails or exceeds its time limit, does so again in each
repetition, and passes without the mutant: a failure of a busy machine does not count. The programs
are run in this order: the unit tests of the mutant's module, all unit tests of its package, the
other tests of that package, and the tests of the packages that use it. A mutant that no test can
notice has its reason in explained.toml.
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

# For each package, the packages with tests that may catch its mutants, in the order of their runs.
USERS = {
    "lowwater-base": ["lowwater-base", "lowwater-rcu", "lowwater-lru-core", "lowwater-store", "lowwater", "lowwater-shrinker", "lowwater-pressure", "lowwater-dcache-model"],
    "lowwater-rcu": ["lowwater-rcu", "lowwater-lru-core", "lowwater-store", "lowwater", "lowwater-dcache-model"],
    "lowwater-store": ["lowwater-store", "lowwater", "lowwater-dcache-model"],
    "lowwater-lru-core": ["lowwater-lru-core", "lowwater", "lowwater-shrinker", "lowwater-pressure", "lowwater-dcache-model"],
    "lowwater-shrinker": ["lowwater-shrinker", "lowwater", "lowwater-pressure", "lowwater-dcache-model"],
    "lowwater-pressure": ["lowwater-pressure", "lowwater"],
    "lowwater-dcache-model": ["lowwater-dcache-model", "lowwater"],
    "lowwater": ["lowwater", "lowwater-adapters"],
    "lowwater-adapters": ["lowwater-adapters"],
}
SWITCH = '''//! Which mutant is on; made by ci/mutants.
use core::sync::atomic::{AtomicU32, Ordering};

static ON: AtomicU32 = AtomicU32::new(u32::MAX);

/// Is it this one?
#[inline(never)]
pub fn is_on(number: u32) -> bool {
    let on = ON.load(Ordering::Relaxed);
    if on != u32::MAX {
        return on == number;
    }
    // The environment is read without allocating: some tests count allocations, or are an allocator's.
    unsafe extern "C" { fn getenv(name: *const core::ffi::c_char) -> *const core::ffi::c_char; }
    // SAFETY: the name ends with a zero; no thread changes the environment in between.
    let text = unsafe { getenv(c"LOWWATER_MUTANT".as_ptr()) };
    let mut value = 0;
    if !text.is_null() {
        // SAFETY: `getenv` returns a text that ends with a zero.
        for byte in unsafe { core::ffi::CStr::from_ptr(text) }.to_bytes() {
            value = value * 10 + u32::from(byte - b'0');
        }
    }
    ON.store(value, Ordering::Relaxed);
    value == number
}
'''


CAUGHT_PERCENT_MIN = 95
REPETITIONS = 2
# The features whose code is in the build, beside the default ones. `hwloc` needs a C library.
FEATURES = "lowwater/async,lowwater/metrics,lowwater-shrinker/metrics"
EXPLAINED = Path(__file__).parent / "explained.toml"


def passes(caught, counted):
    """Whether a sample shows enough: with no mutant tried, nothing is shown."""
    return counted > 0 and caught * 100 >= CAUGHT_PERCENT_MIN * counted


assert passes(95, 100) and not passes(94, 100) and not passes(0, 0), "the bound of a sample"


# An item for tests alone. cargo-mutants leaves out `cfg(test)`, but not what needs something else as well.
FOR_TESTS = re.compile(r"( *)#\[cfg\(all\(test\b.*\)\]$")


def for_tests(path):
    """The ranges of lines, from 1, of a file's items that only tests have; as rustfmt lays them out."""
    lines, found = Path(path).read_text().splitlines(), []
    for start, line in enumerate(lines):
        if attribute := FOR_TESTS.match(line):
            indent = attribute[1]
            of_item = (n for n in range(start + 1, len(lines)) if re.match(rf"{indent}[^ #/]", lines[n]))
            # The first line of the item ends it, or one with a bracket does.
            end = next(n for n in of_item if lines[n].endswith((";", "}")))
            found.append(range(start + 1, end + 2))
    return found


class Explained:
    """The mutants that tests miss for a known reason."""

    def __init__(self):
        kinds = tomllib.loads(EXPLAINED.read_text())
        self.mutants = [dict(mutant, kind=kind) for kind, mutants in kinds.items() for mutant in mutants]

    @staticmethod
    def is_it(known, mutant):
        at = mutant["span"]["start"]
        before = Path(mutant["file"]).read_text().splitlines()[at["line"] - 1][: at["column"] - 1]
        change = re.sub(r"^.*?:\d+:\d+: ", "", mutant["name"])
        return (known["file"], known["change"]) == (mutant["file"], change) and before.endswith(known["before"])

    def of(self, mutant):
        """Returns "equivalent", "untested" or "missed", and the reason."""
        known = next((known for known in self.mutants if self.is_it(known, mutant)), None)
        return (known["kind"], known["reason"]) if known else ("missed", "")

    def check(self):
        """Exits with the mutants that cargo-mutants does not list, or lists more than once."""
        listed = listed_mutants()
        counts = [(known, sum(self.is_it(known, mutant) for mutant in listed)) for known in self.mutants]
        wrong = [f"{known['file']}: {known['change']}: {count} mutants" for known, count in counts if count != 1]
        sys.exit("\n".join(wrong) or 0)


def listed_mutants():
    listed = sh("cargo", "mutants", "--workspace", "--list", "--json", stderr=subprocess.DEVNULL)
    # cargo-mutants 27.1 lists deleted fields even if they are excluded; these cannot be switched.
    return sorted((m for m in json.loads(listed) if m["genre"] != "StructField"), key=lambda m: m["name"])


class Report:
    """The results so far, in a file that is written after each mutant: an interrupted sample is a
    random one as well."""

    def __init__(self, path, title, sample, programs, out):
        self.path, self.title, self.sample, self.programs, self.out = path, title, sample, programs, out
        self.caught, self.slow, self.missed = 0, 0, []

    def rate(self):
        """Returns the caught mutants and the tried ones, without those that no test can notice."""
        counted = [kind for _, kind, _ in self.missed if kind != "equivalent"]
        return self.caught, self.caught + len(counted)

    def summary(self):
        sample, (caught, tried) = self.sample, self.rate()
        percent = f" ({100 * caught / tried:.0f} %)" if tried else ""
        return (f"caught {caught} of {tried}{percent}, {self.slow} of them by time; {len(self.missed) + self.caught - tried} equivalent; "
                f"{len(sample.unviable)} do not build, {len(sample.cannot)} cannot be switched, {len(sample.not_built)} are not in this build")

    def add(self, mutant, how):
        """Counts one result: `how` is empty for a mutant that no program noticed."""
        if how:
            self.caught += 1
            self.slow += how == "too slow"
        else:
            self.missed.append((mutant["name"], *self.sample.explained.of(mutant)))
        self.write()

    def write(self):
        rows = [f"| `{name}` | {kind} | {reason} |".replace("||", r"\|\|") for name, kind, reason in sorted(self.missed)]
        left_out = [f"* left out: `{name}`, which fails without a mutant" for name in self.out]
        tried, there = self.caught + len(self.missed), len(self.sample.mutants) - len(self.sample.not_built)
        lines = [f"# {self.title}", "", f"* {self.summary()}", f"* tried {tried} of {there} with {self.programs} test programs", *left_out, "",
                 "| not caught | kind | reason |", "|---|---|---|", *rows]
        self.path.write_text("\n".join(lines) + "\n")


def sh(*words, **more):
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, **more).stdout


class Sample:
    def __init__(self, count, seed, tool, work):
        everything, self.explained = listed_mutants(), Explained()
        tests = {path: for_tests(path) for path in {m["file"] for m in everything}}
        everything = [m for m in everything if not any(m["span"]["start"]["line"] in r for r in tests[m["file"]])]
        chosen = random.Random(seed).sample(everything, min(count, len(everything)))
        self.mutants = sorted(chosen, key=lambda m: m["name"])
        self.tool, self.tree, self.target = tool, work / "tree", work / "target"
        self.unviable, self.cannot, self.not_built = [], [], []
        commit = sh("git", "rev-parse", "--short", "HEAD").strip()
        self.title = f"{len(chosen)} of {len(everything)} mutants, seed {seed}, {time.strftime('%Y-%m-%d')}, commit {commit}"
        print(self.title, flush=True)

    def write(self):
        """Writes the copy of the workspace again, with all remaining mutants."""
        # Unchanged files keep their modification time, so that cargo does not build them again.
        mutated = {self.tree / m["file"] for m in self.mutants} | {self.tree / f"crates/base/src/{name}.rs" for name in ("mutant", "lib")}
        before = {path: (path.read_bytes(), path.stat()) for path in mutated if path.exists()}
        for name in sh("git", "ls-files", "-z").split("\0")[:-1]:
            to = self.tree / name
            to.parent.mkdir(parents=True, exist_ok=True)
            if not to.exists() or to.read_bytes() != Path(name).read_bytes():
                shutil.copyfile(name, to)
        core = self.tree / "crates/base/src"
        (core / "mutant.rs").write_text(SWITCH)
        with open(core / "lib.rs", "a") as lib:
            lib.write("\n#[allow(missing_docs, unsafe_code)]\npub mod mutant;\n")
        table = sh(str(self.tool), str(self.tree), input=json.dumps(self.mutants))
        for path, (text, stat) in before.items():
            if path.read_bytes() == text:
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        cannot = {int(n) for n, became, _ in (line.split("\t", 2) for line in table.splitlines()) if became == "cannot"}
        return cannot

    def build(self):
        """Builds the tests without the mutants that do not build. Returns the test programs, each
        as (package, is_lib, path, folder)."""
        # The results of an interrupted run. A mutant's name has its line, so the results are valid
        # for the same commit only.
        cache = self.target.parent / f"left-out-{sh('git', 'rev-parse', 'HEAD').strip()}.json"
        if cache.exists():
            known = json.loads(cache.read_text())
            self.unviable += self.leave_out(set(known["unviable"]), by_name=True)
            self.cannot += self.leave_out(set(known["constant"]), by_name=True)
        # Most mutants that do not build are found by checking, which is quicker.
        is_checked = False
        while True:
            left_out = self.write()
            if left_out:
                self.cannot += self.leave_out(left_out)
                continue
            words = ["check", "--lib", "--keep-going"] if not is_checked else ["test", "--lib", "--tests", "--no-run"]
            words = ["cargo", *words, "--workspace", "--exclude", "lowwater-server", "--features", FEATURES, "--message-format", "json"]
            env = dict(os.environ, CARGO_TARGET_DIR=str(self.target), RUSTFLAGS="--cap-lints=warn", CARGO_PROFILE_TEST_DEBUG="0", CARGO_PROFILE_DEV_DEBUG="0")
            done = subprocess.run(words, cwd=self.tree, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            if done.returncode == 0:
                if not is_checked:
                    is_checked = True
                    continue
                built = self.files()
                self.not_built = [m for m in self.mutants if m["file"] not in built]
                return self.programs(messages)
            unviable, constant = self.blame(messages)
            if not unviable and not constant:
                errors = [m["message"]["rendered"] for m in messages if m["reason"] == "compiler-message" and m["message"]["level"] == "error"]
                sys.exit("the tests do not build, and no mutant is to blame:\n" + "\n".join(errors or [done.stderr]))
            self.cannot += self.leave_out(constant, by_name=True)
            self.unviable += self.leave_out(unviable, by_name=True)
            print(f"does not build: {len(self.unviable)}; cannot be switched: {len(self.cannot)}", flush=True)
            cache.write_text(json.dumps({"unviable": [m["name"] for m in self.unviable], "constant": [m["name"] for m in self.cannot]}))

    def files(self):
        """Returns the source files of this build, from cargo's dep-info. All other files are for
        other features or systems."""
        names = set()
        for info in (self.target / "debug/deps").glob("lowwater*.d"):
            names.update(info.read_text().replace(":", " ").split())
        return {name.removeprefix(f"{self.tree}/") for name in names}

    def leave_out(self, which, by_name=False):
        out = [m for n, m in enumerate(self.mutants, 1) if (m["name"] if by_name else n) in which]
        self.mutants = [m for m in self.mutants if m not in out]
        return out

    def blame(self, messages):
        unviable, constant = set(), set()
        for m in messages:
            if m["reason"] != "compiler-message" or m["message"]["level"] != "error":
                continue
            code = (m["message"]["code"] or {}).get("code")
            spans = [s for s in m["message"]["spans"] if s["is_primary"]]
            for s in spans:
                there = [x for x in self.mutants if s["file_name"].endswith(x["file"])]
                # The error of a function with an opaque type is at the end of the original body.
                near = [x for x in there if self.covers(x, s)] or [x for x in there if self.is_within(x, s)]
                (constant if code in ("E0015", "E0658") else unviable).update(x["name"] for x in near)
        return unviable, constant - unviable

    @staticmethod
    def is_within(mutant, span):
        at = mutant["span"]
        return mutant["genre"] == "FnValue" and at["start"]["line"] <= span["line_start"] <= at["end"]["line"]

    @staticmethod
    def covers(mutant, span):
        lines = mutant["span"]["start"]["line"], mutant["span"]["end"]["line"]
        if mutant["genre"] == "FnValue":
            lines = lines[0], lines[0]
        return lines[0] <= span["line_end"] and span["line_start"] <= lines[1]

    def programs(self, messages):
        found = []
        for m in messages:
            if m["reason"] == "compiler-artifact" and m["executable"] and m["profile"]["test"]:
                folder = Path(m["manifest_path"]).parent
                package = next(l.split('"')[1] for l in (folder / "Cargo.toml").read_text().splitlines() if l.startswith("name ="))
                found.append((package, "lib" in m["target"]["kind"], m["executable"], folder))
        return found


def run(program, number, limit, *arguments):
    """Runs the program with this mutant active. Returns "" if it passes, else "failed" or "too
    slow", the seconds that it took, and the name of the failed test, if there is one."""
    _, _, path, folder = program
    env = dict(os.environ, LOWWATER_MUTANT=str(number), PROPTEST_MAX_SHRINK_ITERS="0", RUST_BACKTRACE="0", CARGO_MANIFEST_DIR=str(folder))
    first_failure = Path(__file__).parent.parent / "tools/first-failure.bash"
    start = time.monotonic()
    words = ["timeout", "-k", "1", str(limit), str(first_failure), path, *arguments]
    # A mutant may allocate without bound.
    done = subprocess.run(["prlimit", f"--as={16 << 30}", *words], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    how = {0: "", 124: "too slow", 137: "too slow"}.get(done.returncode, "failed")
    failed = re.search(r"^test (\S+)(?: - should panic)? \.\.\. FAILED$", done.stdout.decode(errors="replace"), re.MULTILINE)
    return how, time.monotonic() - start, failed and failed[1]


def repeats(program, number, limit, *arguments):
    """Returns whether the program fails with the mutant and passes without, REPETITIONS times in
    turn: a test that fails at random is not taken for one that notices the mutant."""
    return all(
        bool(run(program, number, limit, *arguments)[0]) and not run(program, 0, limit, *arguments)[0]
        for _ in range(REPETITIONS)
    )


def is_from_mutant(program, number, limit, how, test, arguments):
    """Returns whether a failure comes from the mutant: it happens again, and not without the mutant.
    The limit of time is widened by the time of the program without the mutant on the machine as it is now."""
    if how == "failed" and test and run(program, number, limit, "--exact", test)[0]:
        return repeats(program, number, limit, "--exact", test)
    without, took, _ = run(program, 0, 4 * limit, *arguments)
    if without:
        return False
    limit = max(limit, 20 + 4 * took)
    # A repetition of a hang costs the whole limit of time.
    return bool(run(program, number, limit, *arguments)[0]) if how == "too slow" else repeats(program, number, limit, *arguments)


def module(mutant):
    """The path of the module that has this mutant, for a filter of unit tests; empty for a crate's root."""
    path = mutant["file"].split("src/", 1)[1].removesuffix(".rs").removesuffix("/mod").replace("/", "::")
    return "" if path == "lib" else path


class Usual:
    """The time that each program takes without a mutant, measured before its first run with one."""

    def __init__(self):
        self.times, self.failed, self.locks = {}, [], defaultdict(Lock)

    def known(self, program):
        return self.times.get((program[2],)) or 0

    def seconds(self, program, *arguments):
        """Returns `None` for a program that fails twice without a mutant: it catches none."""
        path = program[2]
        key = (path, *arguments)
        with self.locks[key]:
            if key not in self.times:
                how, took, test = run(program, 0, 3600, *arguments)
                if how:
                    print(f"runs again: {path} failed with no mutant on: {test or how}", flush=True)
                    how, took, test = run(program, 0, 3600, *arguments)
                self.times[key] = None if how else took
                if how:
                    self.failed.append(" ".join((Path(path).name.rsplit("-", 1)[0], *arguments)))
                    print(f"left out: {path} {' '.join(arguments)} fails with no mutant on: {test or how}", flush=True)
            return self.times[key]


def main():
    if sys.argv[1] == "--check":
        Explained().check()
    # Absolute: cargo runs in the copy of the workspace, and names files by whole paths.
    count, seed, tool, work = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]).resolve(), Path(sys.argv[4]).resolve()
    sample = Sample(count, seed, tool, work)
    programs = sample.build()
    usual = Usual()
    print(f"{len(sample.mutants)} mutants in one build of {len(programs)} test programs", flush=True)

    tried = [pair for pair in enumerate(sample.mutants, 1) if pair[1] not in sample.not_built]
    # Shuffled, so that the mutants that an interrupted run has tried are a random sample as well.
    random.Random(seed).shuffle(tried)
    report = Report(work / "report.md", sample.title, sample, len(programs), usual.failed)
    report.write()

    def catch(pair):
        number, mutant = pair
        order = USERS[mutant["package"]]
        mine = [p for p in programs if p[0] in order]
        mine.sort(key=lambda p: (order.index(p[0]), not p[1], usual.known(p)))
        # First the unit tests of the mutant's module, which catch most, in a few seconds.
        near = [(p, (f"{module(mutant)}::",)) for p in mine if p[0] == mutant["package"] and p[1] and module(mutant)]
        for program, arguments in near + [(p, ()) for p in mine]:
            took = usual.seconds(program, *arguments)
            if took is None:
                continue
            limit = 20 + 4 * took
            how, _, test = run(program, number, limit, *arguments)
            by = f"{mutant['name']} by {Path(program[2]).name.rsplit('-', 1)[0]}, {test or how}"
            if how and is_from_mutant(program, number, limit, how, test, arguments):
                print(f"caught {by}", flush=True)
                return mutant, how
            if how:
                print(f"not counted, as it was not repeated: {by}", flush=True)
        kind, reason = sample.explained.of(mutant)
        print(f"{kind.upper()} {mutant['name']}{reason and ': '}{reason}", flush=True)
        return mutant, ""

    with ThreadPoolExecutor(int(os.environ.get("LOWWATER_MUTANTS_AT_ONCE", "1"))) as pool:
        for mutant, how in pool.map(catch, tried):
            report.add(mutant, how)
    for name, what in (("does not build", sample.unviable), ("cannot be switched", sample.cannot), ("not in this build", sample.not_built)):
        for mutant in what:
            print(f"{name}: {mutant['name']}")
    print(report.summary())
    print(f"report: {report.path}")
    caught, counted = report.rate()
    if not counted:
        print("no mutant was tried", file=sys.stderr)
    sys.exit(0 if passes(caught, counted) else 1)


if __name__ == "__main__":
    main()
