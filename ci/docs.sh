#!/usr/bin/env bash
# Builds the documentation without a warning, and checks that each link in a text leads to an
# existing file, and that each test named in docs/promises exists.
set -euo pipefail
cd "$(dirname "$0")/.."

RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

dead=0
# Assigned first: a failure of git would end a `for` with an empty list, and no error.
texts="$(git ls-files '*.md')"
for text in $texts; do
    # External links and links to headings are not checked.
    while read -r link; do
        [ -e "$(dirname "$text")/$link" ] || { echo "$text: no file $link"; dead=1; }
    done < <(grep -o '](\([^)#]*\)' "$text" | sed 's/^](//' | grep -v '^[a-z]*:' | grep . || true)
done
# Each test that the first column of a table in docs/promises names exists.
promised="$(sed -nE 's/^\| ([^|]*) \|.*/\1/p' docs/promises/*.md | grep -oE '`[a-z_0-9]+`' | tr -d '`')"
for test in $promised; do
    git grep -qE "fn $test\b" -- '*.rs' || { echo "docs/promises: no test $test"; dead=1; }
done
exit "$dead"
