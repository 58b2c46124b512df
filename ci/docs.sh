#!/usr/bin/env bash
# Builds the documentation without a warning, and checks that each link in a text leads to an
# existing file.
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
exit "$dead"
