#!/usr/bin/env bash
# Measures, and writes docs/MEASURED.md: the tables between its markers are made from the last run's
# figures in ci/measured/results; the text around them is written by hand.
#
# ci/measured.sh SECTION...: runs the commands of these sections or groups, keeps their figures, and
# writes the page. Timed sections need an idle machine.
# ci/measured.sh comparison:PART: measures one part of the comparison again (throughput, latency,
# memory, stalls, tenants, hit-ratio).
# ci/measured.sh --list: the sections, each with its duration, its last run and its commands.
# ci/measured.sh --render: only writes the page.
# ci/measured.sh --check: fails if the page is not the one that --render writes, if a section has no
# figures or no place in the page, if its commands do not give a row of its figures (where it tells
# that), or if a table is malformed.
#
# LOWWATER_TRACES names the folder of the traces (*.u64), which are not part of the project.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 -B ci/measured/main.py "$@"
