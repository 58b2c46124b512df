#!/usr/bin/env bash
# The documentation builds without a warning, and no link in a text leads to a file that is not there.
set -euo pipefail
cd "$(dirname "$0")/.."

RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

dead=0
for text in $(git ls-files '*.md'); do
    # Links to elsewhere and to headings are not looked at.
    while read -r link; do
        [ -e "$(dirname "$text")/$link" ] || { echo "$text: no file $link"; dead=1; }
    done < <(grep -o '](\([^)#]*\)' "$text" | sed 's/^](//' | grep -v '^[a-z]*:' | grep . || true)
done
exit "$dead"
