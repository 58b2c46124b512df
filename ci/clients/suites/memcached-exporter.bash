# memcached_exporter of Prometheus: it reads stats, stats items, stats slabs and stats settings. Its
# acceptance tests look for many metrics: each is counted as a test of its own, and the metrics of
# slab classes without their labels and values. The tests name the exporter's port 9150.
. "$suites/github.sh"

prepare_suite() {
    need go golang-go
    prepare_clone prometheus/memcached_exporter v0.16.0 63f5c3fb86f5b79e345bc67fcd45d3c485b3eeca
}

run_suite() {
    local listen exporter
    listen="$(free_port)"
    rm -rf "${sources:?}/run"
    cp -r "$sources/source" "$sources/run"
    sed -i "s/localhost:9150/127.0.0.1:$listen/; s/\"--memcached.address\"/\"--web.listen-address=127.0.0.1:$listen\", &/" \
        "$sources/run/cmd/memcached_exporter/main_test.go"
    (cd "$sources/run" && go build -o exporter ./cmd/memcached_exporter)
    : >"$sources/run/pids"
    # The tests start this program. They do not wait for its end if they fail.
    printf '#!/bin/sh\necho $$ >>"%s"\nexec "%s" "$@"\n' "$sources/run/pids" "$sources/run/exporter" \
        >"$sources/run/memcached_exporter"
    chmod +x "$sources/run/memcached_exporter"
    (cd "$sources/run" && MEMCACHED_PORT="tcp://$1:$2" go test -v -count=1 -p 1 ./...) >"$scratch/exporter.go" 2>&1 || true
    cat "$scratch/exporter.go"
    while read -r exporter; do
        [ "$(readlink "/proc/$exporter/exe")" != "$sources/run/exporter" ] || kill -9 "$exporter" || true
    done <"$sources/run/pids"
    python3 - "$scratch/exporter.go" "$sources/run/cmd/memcached_exporter/main_test.go" >"$3" <<'RESULTS'
import re
import sys

output, source = (open(name, encoding="utf-8").read() for name in sys.argv[1:])


def name(metric):
    return re.sub(r"^(memcached_slab_\w+).*", r"\1", metric).strip()


for word, test in re.findall(r"^ *--- (PASS|FAIL): (\S+)", output, re.M):
    print(word.lower(), test)
quoted = re.findall(r'want metrics to include "((?:\\.|[^"\\])*)"', output)
missing = [name(metric.replace("\\", "")) for metric in quoted]
# The metrics were looked for if a test passed, or if it says which it lacks.
if missing or "--- PASS: TestAcceptanceSingleInstance" in output:
    for metric in {name(m) for m in re.findall(r"`(memcached_[^`]*)`", source) if "temporary" not in m}:
        print("fail" if metric in missing else "pass", metric)
RESULTS
}
