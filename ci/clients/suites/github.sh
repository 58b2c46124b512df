# For the suites whose sources are on GitHub, and whole in no package registry. Sourced, not run.
# ci/suites.sh runs these suites only by name. Where GitHub cannot be reached, git's option
# url.BASE.insteadOf names a copy of the repository.

# prepare_clone OWNER/NAME TAG COMMIT: brings the sources of the tag into $sources/source; fails if
# the tag is another commit.
prepare_clone() {
    [ "$(cat "$sources/pinned" 2>/dev/null)" = "$3" ] && return
    need git git
    rm -rf "${sources:?}"/*
    git -c advice.detachedHead=false clone --quiet --branch "$2" "https://github.com/$1" "$sources/source"
    [ "$(git -C "$sources/source" rev-parse HEAD)" = "$3" ] || fail "$1: the tag $2 is not the commit $3"
    echo "$3" >"$sources/pinned"
}
