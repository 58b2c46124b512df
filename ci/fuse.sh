#!/usr/bin/env bash
# Mounts a tree through the dentry cache by examples/fuse_mirror.rs. Checks that the mounted tree
# equals its source; that a flood of missing names through the kernel stays within the policy's
# bound, with correct answers; and that changes of the source become visible when the example says.
# Needs /dev/fuse and the right to mount: otherwise it prints that it is skipped, and succeeds.
#
# FUSE_FLOOD: the number of names in the flood, 200,000 by default.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash

flood=${FUSE_FLOOD:-200000}
binary="${CARGO_TARGET_DIR:-target}/release/examples/fuse_mirror"
scratch="$(mktemp -d)"
source="$scratch/source" mirror="$scratch/mirror" output="$scratch/output" complaints="$scratch/complaints"
server=
mkdir "$source" "$mirror"

clean_up() {
    if [ -n "$server" ]; then
        kill -9 "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    umount -l "$mirror" 2>/dev/null || true
    umount -l "$scratch/source/mounted" 2>/dev/null || true
    umount -l "$scratch/coarse" 2>/dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT

fail() {
    echo "FAILED: $*" >&2
    [ ! -s "$complaints" ] || cat "$complaints" >&2
    exit 1
}

skip() {
    echo "skipped: $*"
    exit 0
}

[ -c /dev/fuse ] || skip "there is no /dev/fuse here"
command -v fusermount3 >/dev/null || packages fuse3
cargo build --release --quiet --features fuse --example fuse_mirror

# start FLAG...: mounts $source at $mirror; false if the system does not allow it.
start() {
    : >"$output"
    : >"$complaints"
    "$binary" "$source" "$mirror" --statistics "$@" >"$output" 2>"$complaints" &
    server=$!
    for _ in $(seq 1200); do
        grep -q '^serving ' "$output" && return
        if ! kill -0 "$server" 2>/dev/null; then
            server=
            return 1
        fi
        sleep 0.05
    done
    fail "it did not mount in 60 s"
}

# stop SIGNAL: stops the example, which must unmount, print its counters and exit with 0.
stop() {
    local code=0
    kill -s "$1" "$server"
    wait "$server" || code=$?
    server=
    [ "$code" -eq 0 ] || fail "SIG$1: exit status $code"
    [ ! -s "$complaints" ] || fail "SIG$1: it complains"
    ! mountpoint -q "$mirror" || fail "SIG$1: it is still mounted"
    grep -q '^negatives ' "$output" || fail "SIG$1: no counters"
    echo "ok: SIG$1 unmounts, exit status 0"
}

# figure NAME: prints its value as last reported.
figure() { awk -v name="$1" '$1 == name { value = $2 } END { print value }' "$output"; }

# report: makes the example report its counters again.
report() {
    local before
    before=$(grep -c '^known_to_kernel ' "$output" || true)
    kill -s USR1 "$server"
    for _ in $(seq 1200); do
        [ "$(grep -c '^known_to_kernel ' "$output" || true)" -eq "$before" ] || return 0
        sleep 0.05
    done
    fail "SIGUSR1: no counters"
}

# within_bound [MORE]: checks the number of negatives.
within_bound() {
    report
    local negatives bound
    negatives=$(figure negatives) bound=$(figure bound)
    [ "$bound" = none ] || [ "$negatives" -le $((bound + ${1:-0})) ] || fail "$negatives negatives, more than the bound of $bound"
    echo "ok: $negatives negatives, bound $bound, after $(figure missing) missing names"
}

# refused TEXT ARGUMENT...: the example must print TEXT and exit with an error.
refused() {
    local text=$1 said
    shift
    if said=$("$binary" "$@" 2>&1); then fail "$*: accepted"; fi
    case $said in
    *panicked*) fail "$*: $said" ;;
    *"$text"*) echo "ok: ${said%%$'\n'*}" ;;
    *) fail "$*: it does not say '$text': $said" ;;
    esac
}

echo "== arguments"
mkdir "$scratch/full" "$source/below"
touch "$scratch/full/file"
refused "does not exist" "$scratch/nowhere" "$mirror"
refused "is not a directory" "$scratch/full/file" "$mirror"
refused "does not exist" "$source" "$scratch/nowhere"
refused "not empty" "$source" "$scratch/full"
refused "look into itself" "$source" "$source/below"
refused "look into itself" "$source/below" "$source"
refused "is not a number of seconds" "$source" "$mirror" --check-after soon
refused "is not a number of threads" "$source" "$mirror" --threads 0

echo "== the tree"
python3 - "$source" <<'PYTHON'
import os, random, sys
os.chdir(sys.argv[1])
random.seed(1)
for d in range(40):
    os.makedirs(f"d{d}/sub/deep")
    for f in range(20):
        with open(f"d{d}/sub/f{f}", "wb") as out:
            out.write(random.randbytes(random.choice((0, 1, 100, 4096, 70000))))
os.makedirs("many")
for f in range(3000):
    open(f"many/{f}", "w").close()
with open("large", "wb") as out:
    out.write(random.randbytes(5_000_001))
for name in ("with space", "with\nnewline", b"\xff\xfe not text", "x" * 255, "-dash", "\N{SNOWMAN}"):
    open(name, "w").close()
os.link("large", "large's other name")
os.symlink("large", "link")
os.symlink("/nowhere/at all", "dangling")
os.symlink("d0/sub", "link to a directory")
os.mkfifo("pipe")
os.chmod("large", 0o640)
os.utime("large", ns=(1, 1_234_567_890_123_456_789))
os.utime("-dash", (-86400, -86400))
os.makedirs("/".join(["n" * 100] * 30))
PYTHON
# Another file system mounted below, where that is allowed: it must not be entered.
mkdir "$source/mounted"
mount -t tmpfs none "$source/mounted" 2>/dev/null && touch "$source/mounted/inside" && echo "with another mount below"

if ! start; then
    case $(cat "$complaints") in
    *"cannot mount"*) skip "mounting is refused here: $(cat "$complaints")" ;;
    *) fail "it did not start" ;;
    esac
fi

# tree DIRECTORY: lists everything that a program can see of it, except the intended differences and
# the root's inode number.
tree() {
    (cd "$1" && find . -mindepth 1 -path ./mounted -prune -o -printf '%p|%y|%m|%U:%G|%n|%s|%i|%T@|%l\0' | sort -z)
}
tree "$source" >"$scratch/expected"
for round in first second; do
    tree "$mirror" >"$scratch/found"
    cmp "$scratch/expected" "$scratch/found" || fail "$round: find tells another tree: $(diff <(tr '\0' '\n' <"$scratch/expected") <(tr '\0' '\n' <"$scratch/found") | head -5)"
done
[ "$(tr -cd '\0' <"$scratch/found" | wc -c)" -gt 3900 ] || fail "find found too little to compare"
(cd "$source" && find . -path ./mounted -prune -o -type f -print0 | sort -z | xargs -0 cat -- | sha256sum) >"$scratch/expected"
(cd "$mirror" && find . -type f -print0 | sort -z | xargs -0 cat -- | sha256sum) >"$scratch/found"
cmp "$scratch/expected" "$scratch/found" || fail "cat tells other contents"
cmp <(tail -c +3000001 "$source/large") <(tail -c +3000001 "$mirror/large") || fail "reading from the middle"
[ "$(stat -c %i "$mirror/large")" = "$(stat -c %i "$mirror/large's other name")" ] || fail "two names of one file are two files"
if mountpoint -q "$source/mounted"; then
    ! stat "$mirror/mounted" 2>"$scratch/said" || fail "another mount is entered"
    grep -q 'cross-device' "$scratch/said" || fail "another mount: $(cat "$scratch/said")"
    ! ls "$mirror" | grep -qx mounted || fail "another mount is listed"
fi
! touch "$mirror/new" 2>/dev/null || fail "it can be written to"
echo "ok: find, stat, cat, readlink: the same, twice"

echo "== a flood of $flood missing names"
cat >"$scratch/flood.py" <<'PYTHON'
"""flood.py DIRECTORY NAMES TIMES [few]: stats of names that are not there, in the root and, but for `few`, in 40 other directories;
and of some that are."""
import os, random, sys, time
root, names, times, few = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), len(sys.argv) > 4
directories = [root] + [f"{root}/d{d}/sub" for d in range(0 if few else 40)]
there = [f"{root}/large"] + [f"{root}/d{d}/sub/f{f}" for d in range(0 if few else 8) for f in range(20)]
wrong, begin = 0, time.monotonic()
for n in range(names):
    name = f"{random.choice(directories)}/{random.getrandbits(64):016x}"
    for _ in range(times):
        try:
            os.stat(name)
            wrong += 1
        except FileNotFoundError:
            pass
    if n % 64 == 0 and not os.path.exists(random.choice(there)):
        wrong += 1
print(f"{names * times / (time.monotonic() - begin):.0f} lookups a second")
sys.exit(f"{wrong} wrong answers" if wrong else 0)
PYTHON
# flood ARGUMENT...: looks up missing names; the bound is checked during the flood as well. Each
# working thread may add one negative.
flood() {
    local flooding
    python3 "$scratch/flood.py" "$mirror" "$@" &
    flooding=$!
    while kill -0 "$flooding" 2>/dev/null; do
        within_bound 2 >/dev/null
        sleep 0.2
    done
    wait "$flooding" || fail "a wrong answer in the flood"
}
flood "$flood" 1
within_bound
flood $((flood / 10)) 2
within_bound
tree "$mirror" >"$scratch/found"
tree "$source" | cmp - "$scratch/found" || fail "after the flood find tells another tree"

echo "== one missing name, many times"
report
asked=$(figure backend_lookups) missing=$(figure missing)
python3 - "$mirror/d3/sub" <<'PYTHON'
import os, sys
assert not any(os.path.exists(f"{sys.argv[1]}/no-{n % 10}") for n in range(1000))
PYTHON
report
asked=$(($(figure backend_lookups) - asked)) missing=$(($(figure missing) - missing))
[ "$missing" -ge 1000 ] || fail "the kernel kept negatives for itself: $missing of 1000 reached the server"
# Ten, and a few more if the directory was checked for changes meanwhile.
[ "$asked" -le 100 ] || fail "$asked of 1000 lookups of ten missing names asked the directory"
echo "ok: $missing lookups of ten missing names, $asked of them asked the directory"

echo "== changes behind its back"
# seen COMMAND...: must succeed within 30 s; --check-after and --entry-timeout are 1 s, and this
# machine may be busy.
seen() {
    local begin=$SECONDS
    until "$@" 2>/dev/null; do
        [ $((SECONDS - begin)) -le 30 ] || fail "not seen: $*"
        sleep 0.1
    done
}
missing() { ! stat "$1" >/dev/null 2>&1; }
for name in late many/late d7/sub/deep/late; do
    missing "$mirror/$name" || fail "$name is there already"
    echo "$name" >"$source/$name"
    seen grep -qx "$name" "$mirror/$name"
    rm "$source/$name"
    seen missing "$mirror/$name"
done
echo one >"$source/replaced"
seen grep -qx one "$mirror/replaced"
echo two >"$source/replacing" && mv "$source/replacing" "$source/replaced"
seen grep -qx two "$mirror/replaced"
mv "$source/d9" "$source/moved"
seen test -e "$mirror/moved/sub/f3"
seen missing "$mirror/d9"
rm "$source/replaced" && mkdir "$source/replaced" && touch "$source/replaced/inside"
seen test -f "$mirror/replaced/inside"
tree "$source" >"$scratch/expected"
is_same_tree() { tree "$mirror" | cmp -s "$scratch/expected" -; }
seen is_same_tree
echo "ok: new, removed, replaced and moved names are seen"
stop TERM

echo "== a directory whose times are in whole seconds"
# Inodes of 128 bytes store whole seconds. A change in the same second as the previous one does not
# alter the times.
mkdir "$scratch/coarse"
truncate -s 8M "$scratch/image"
if mkfs.ext4 -q -I 128 "$scratch/image" >/dev/null 2>&1 && mount -o loop "$scratch/image" "$scratch/coarse" 2>/dev/null; then
    fine=$source source="$scratch/coarse"
    start || fail "it did not start"
    for round in 1 2 3; do
        # At the beginning of a second, so that the check of the directory falls into it, too.
        sleep "0.$(printf %09d $((999999999 - 10#$(date +%N))))"
        touch "$source/first$round"
        missing "$mirror/second$round" || fail "second$round is there already"
        touch "$source/second$round"
        seen test -e "$mirror/second$round"
        sleep 1.1
    done
    stop TERM
    source=$fine
else
    echo "skipped: no such file system can be mounted here"
fi

echo "== policies"
for policy in three-in-a-row per-directory unbounded; do
    start --policy "$policy" --buckets 1024 --threads 2 || fail "--policy $policy: it did not start"
    flood $((flood / 10)) 1 few
    within_bound
    if [ "$policy" = unbounded ]; then
        [ "$(figure negatives)" -gt $((flood / 20)) ] || fail "a flood that leaves only $(figure negatives) shows nothing"
    fi
    stop INT
done

echo "== an output that is full"
"$binary" "$source" "$mirror" --statistics >/dev/full 2>"$complaints" &
server=$!
seen test -e "$mirror/many"
kill -s USR1 "$server"
sleep 1
ls "$mirror/many" >"$scratch/found" || fail "it does not serve after a report that it could not print"
code=0
kill -s TERM "$server"
wait "$server" || code=$?
server=
[ "$code" -eq 0 ] || fail "a full output: exit status $code"
! mountpoint -q "$mirror" || fail "a full output: it is still mounted"
echo "ok: it serves and unmounts"

echo "== in use when it must end"
start || fail "it did not start"
exec 3<"$mirror/large"
code=0
kill -s TERM "$server"
wait "$server" || code=$?
server=
exec 3<&-
[ "$code" -eq 0 ] || fail "in use: exit status $code"
grep -q detaching "$complaints" || fail "in use: it does not say so"
! mountpoint -q "$mirror" || fail "in use: it is still mounted"
echo "ok: detached"
