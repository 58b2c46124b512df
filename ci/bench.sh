#!/usr/bin/env bash
# Runs the benches. The machine should be idle; benches/add_del.rs reports whether it has two free
# cores.
#
# ci/bench.sh [BENCH [CRITERION FLAG...]]: one of benches/; without arguments all of them, quickly.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -gt 0 ]; then
    bench="$1"
    shift
    exec cargo bench --bench "$bench" -- "$@"
fi
for bench in add_del skip_empty deferred_tail cache; do cargo bench --bench "$bench" -- --quick --noplot; done
