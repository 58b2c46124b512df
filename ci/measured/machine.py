"""The machine of a run: its name, its control figure, and the output of commands on it."""
import json
import os
import platform
import re
import subprocess
import sys
import time
from multiprocessing import Process
from pathlib import Path


def target():
    return Path(os.environ.get("CARGO_TARGET_DIR", "target"))


def name():
    """Returns "A" for the machine that docs/MEASURED.md describes, else a description."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    model, processors = model[1] if model else platform.machine(), os.cpu_count()
    gb = round(int(re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())[1]) / (1 << 20))
    if model.startswith("AMD EPYC") and processors == 2 and 22 <= gb <= 26:
        return "A"
    return f"with {processors} processors ({model}), {gb} GB, Linux {platform.release()}"


def spin():
    x = 1
    for _ in range(3_000_000):
        x = x * 0x9E37 & 0xFFFF


def control():
    """Returns the time of two spinning processes divided by that of one."""

    def timed(count):
        begin, running = time.monotonic(), [Process(target=spin) for _ in range(count)]
        for process in running:
            process.start()
        for process in running:
            process.join()
        return time.monotonic() - begin

    return round(min(timed(2) for _ in range(3)) / min(timed(1) for _ in range(3)), 2)


def commit():
    git = lambda *words: subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!ci/measured")
    return git("rev-parse", "--short", "HEAD") + (" and changes" if changed else "")


def output(command):
    """Runs a shell command in the root of the workspace. Shows its output, and returns that of stdout."""
    print(f"$ {command}", flush=True)
    running = subprocess.Popen(["bash", "-euo", "pipefail", "-c", command], stdout=subprocess.PIPE, text=True)
    lines = []
    for line in running.stdout:
        sys.stdout.write(line)
        lines.append(line)
    if running.wait():
        sys.exit(f"exit status {running.returncode}: {command}")
    return "".join(lines)


def criterion(group):
    """Returns the medians of the last run of a criterion group in ns, by function and parameter."""
    found = {}
    for path in target().glob("criterion/*/*/*/new/benchmark.json"):
        names = json.loads(path.read_text())
        estimates = path.with_name("estimates.json")
        if names["group_id"] == group and estimates.exists():
            median = json.loads(estimates.read_text())["median"]["point_estimate"]
            found.setdefault(names["function_id"], {})[names["value_str"]] = median
    return found
