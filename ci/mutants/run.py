#!/usr/bin/env python3
"""Draws a random sample of mutants, builds all of them into one set of test programs, and runs these for each mutant.

run.py COUNT SEED TOOL WORK: TOOL is the built program of this folder; WORK a folder for the copy and its build. Called by
ci/mutants.sh, in the workspace's folder.

A mutant is caught when a test program fails or does not end in time. Programs are tried from the mutant's own package upwards: the
tests beside the code, the package's others, then those of the packages that use it.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Packages whose tests may notice a mutant of this one, in the order in which they are tried.
USERS = {
    "lowwater-base": ["lowwater-base", "lowwater-rcu", "lowwater-lru-core", "lowwater-store", "lowwater", "lowwater-shrinker", "lowwater-pressure", "lowwater-dcache-model"],
    "lowwater-rcu": ["lowwater-rcu", "lowwater-lru-core", "lowwater-store", "lowwater", "lowwater-dcache-model"],
    "lowwater-store": ["lowwater-store", "lowwater", "lowwater-dcache-model"],
    "lowwater-lru-core": ["lowwater-lru-core", "lowwater", "lowwater-shrinker", "lowwater-pressure", "lowwater-dcache-model"],
    "lowwater-shrinker": ["lowwater-shrinker", "lowwater", "lowwater-pressure", "lowwater-dcache-model"],
    "lowwater-pressure": ["lowwater-pressure", "lowwater"],
    "lowwater-dcache-model": ["lowwater-dcache-model", "lowwater"],
    "lowwater": ["lowwater"],
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
    // SAFETY: the name ends with a zero; nobody changes the environment in between.
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


def sh(*words, **more):
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, **more).stdout


class Sample:
    def __init__(self, count, seed, tool, work):
        listed = sh("cargo", "mutants", "--workspace", "--list", "--json", stderr=subprocess.DEVNULL)
        # cargo-mutants 27.1 lists deleted fields whatever is excluded; they cannot be switched.
        everything = sorted((m for m in json.loads(listed) if m["genre"] != "StructField"), key=lambda m: m["name"])
        chosen = random.Random(seed).sample(everything, min(count, len(everything)))
        self.mutants = sorted(chosen, key=lambda m: m["name"])
        self.tool, self.tree, self.target = tool, work / "tree", work / "target"
        self.unviable, self.cannot, self.not_built = [], [], []
        print(f"{len(chosen)} of {len(everything)} mutants, seed {seed}", flush=True)

    def write(self):
        """Lays the tree anew with all mutants that are left."""
        # Files that stay the same keep their time, so that cargo does not build them again.
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
        cannot = {int(n) for n, became, _ in (line.split("\t", 2) for line in table.splitlines()) if became == "cannot"}
        return cannot

    def build(self):
        """Builds the tests; leaves out what does not build. Returns the test programs: (package, is_lib, path, folder)."""
        # What an interrupted run has found out already; names have lines, so it is of use for the same sources.
        cache = self.target.parent / f"left-out-{sh('git', 'rev-parse', 'HEAD').strip()}.json"
        if cache.exists():
            known = json.loads(cache.read_text())
            self.unviable += self.leave_out(set(known["unviable"]), by_name=True)
            self.cannot += self.leave_out(set(known["constant"]), by_name=True)
        while True:
            left_out = self.write()
            if left_out:
                self.cannot += self.leave_out(left_out)
                continue
            words = ["cargo", "test", "--workspace", "--lib", "--tests", "--no-run", "--message-format", "json"]
            env = dict(os.environ, CARGO_TARGET_DIR=str(self.target), RUSTFLAGS="--cap-lints=warn", CARGO_PROFILE_TEST_DEBUG="0", CARGO_PROFILE_DEV_DEBUG="0")
            done = subprocess.run(words, cwd=self.tree, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            if done.returncode == 0:
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
        """Source files of the tree that this build has, as cargo's dep-info tells; others are for other features or systems."""
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
                near = [x for x in self.mutants if s["file_name"].endswith(x["file"]) and self.covers(x, s)]
                (constant if code in ("E0015", "E0658") else unviable).update(x["name"] for x in near)
        return unviable, constant - unviable

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


def run(program, number, limit):
    """How the program ends with this mutant on: "" when it passes, "failed" or "too slow"; and the seconds it took."""
    _, _, path, folder = program
    env = dict(os.environ, LOWWATER_MUTANT=str(number), PROPTEST_MAX_SHRINK_ITERS="0", RUST_BACKTRACE="0", CARGO_MANIFEST_DIR=str(folder))
    first_failure = Path(__file__).parent.parent / "tools/first-failure.bash"
    start = time.monotonic()
    words = ["timeout", "-k", "1", str(limit), str(first_failure), path]
    # A mutant may allocate without end.
    done = subprocess.run(["prlimit", f"--as={16 << 30}", *words], cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    how = {0: "", 124: "too slow", 137: "too slow"}.get(done.returncode, "failed")
    return how, time.monotonic() - start


def main():
    count, seed, tool, work = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    sample = Sample(count, seed, tool, work)
    programs = sample.build()
    times = {}
    for program in programs:
        failed, took = run(program, 0, 900)
        if failed:
            print(f"left out: {program[2]} fails with no mutant on", flush=True)
        else:
            times[program[2]] = took
    programs = [program for program in programs if program[2] in times]
    print(f"{len(sample.mutants)} mutants in one build; all tests take {sum(times.values()):.0f} s without any", flush=True)

    tried = [pair for pair in enumerate(sample.mutants, 1) if pair[1] not in sample.not_built]
    # Not in the order of their files: an interrupted run is a sample as well.
    random.Random(seed).shuffle(tried)

    def catch(pair):
        number, mutant = pair
        order = USERS[mutant["package"]]
        mine = [p for p in programs if p[0] in order]
        mine.sort(key=lambda p: (order.index(p[0]), not p[1], times[p[2]]))
        for program in mine:
            failed, _ = run(program, number, 20 + 4 * times[program[2]])
            if failed:
                print(f"caught {mutant['name']} by {Path(program[2]).name.rsplit('-', 1)[0]}, {failed}", flush=True)
                return True
        print(f"MISSED {mutant['name']}", flush=True)
        return False

    with ThreadPoolExecutor(int(os.environ.get("LOWWATER_MUTANTS_AT_ONCE", "1"))) as pool:
        caught = sum(pool.map(catch, tried))
    for name, what in (("does not build", sample.unviable), ("cannot be switched", sample.cannot), ("not in this build", sample.not_built)):
        for mutant in what:
            print(f"{name}: {mutant['name']}")
    print(f"caught {caught} of {len(tried)}; {len(sample.unviable)} do not build, {len(sample.cannot)} cannot be switched, {len(sample.not_built)} are not in this build")
    sys.exit(0 if caught * 100 >= 95 * len(tried) else 1)


if __name__ == "__main__":
    main()
