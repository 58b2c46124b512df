"""Runs the tests of programs for wasm32-wasip1 under wasmtime, each test in an instance of its own:
a panic ends an instance, so one failed test would end the others.

A test that starts a thread cannot pass there: it is counted apart, by the message of the standard
library. Any other failure is a failure, and so is a program of which no test passes.

A change must ensure that a test counts as "needs threads" by that message alone.

wasi.py PROGRAM.wasm...
"""
import os
import sys
import tempfile

import wasmtime

NO_THREADS = "failed to spawn thread: Os { code: 58, kind: Unsupported"


def run(engine, module, arguments, output):
    """Runs the program, and returns whether it exited with 0."""
    store = wasmtime.Store(engine)
    wasi = wasmtime.WasiConfig()
    wasi.argv = ["test", *arguments]
    wasi.stdout_file = wasi.stderr_file = output
    wasi.preopen_dir(os.path.dirname(output), "/tmp")
    store.set_wasi(wasi)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    start = linker.instantiate(store, module).exports(store)["_start"]
    try:
        start(store)
    except wasmtime.ExitTrap as end:
        return end.code == 0
    except (wasmtime.Trap, wasmtime.WasmtimeError):
        return False
    return True


def main(programs):
    engine = wasmtime.Engine()
    failed = False
    for program in programs:
        module = wasmtime.Module.from_file(engine, program)
        name = os.path.basename(program).rsplit("-", 1)[0]
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "output")

            def text(arguments):
                passed = run(engine, module, arguments, output)
                with open(output, encoding="utf-8", errors="replace") as file:
                    return passed, file.read()

            _, listed = text(["--list", "--format", "terse"])
            tests = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
            passed, ignored, threads, failures = 0, 0, 0, []
            for test in tests:
                success, said = text([test, "--exact", "--nocapture"])
                if success and "1 passed" in said:
                    passed += 1
                elif success and "1 ignored" in said:
                    ignored += 1
                elif NO_THREADS in said:
                    threads += 1
                else:
                    failures.append((test, said))
        print(f"{name}: {passed} tests passed, {threads} need threads, {ignored} are ignored, {len(failures)} failed")
        for test, said in failures:
            print(f"--- {test}\n{said.strip()}")
        failed = failed or bool(failures) or passed == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
