#!/usr/bin/env bash
# Runs lru-core and the shrinker's step inside a real kernel: builds examples/kernel_module for
# Debian's 6.12 kernel and loads it repeatedly in QEMU guests. Four tasks, each in a control group
# of its own, fill it and then add and delete, while everything is dropped with `echo 2 >
# /proc/sys/vm/drop_caches`. At the end no object may be left, and the kernel's log must be clean.
# Then measures an add and a del next to the kernel's own list_lru (peer.c), in the same guest.
#
# ci/kmod.sh [--all]: a bounded run (2 nodes, 3 loads, 100,000 objects), or 1, 2 and 4 nodes, 20
# loads, 1,000,000 objects. KMOD_NODES, KMOD_LOADS, KMOD_OBJECTS change the parts, KMOD_SECONDS the
# maximum time of a guest.
#
# Needs QEMU, busybox, cpio, make, gcc, the source of the Rust library, and Debian's kernel with its
# headers; installs or downloads what is missing where possible (kernel and headers are unpacked,
# not installed). Without them it is skipped, and prints that.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash
. ci/tools/source.bash
. ci/tools/guest.bash
. ci/tools/headers.bash

nodes_of_guests=(${KMOD_NODES:-2}) loads=${KMOD_LOADS:-3} objects=${KMOD_OBJECTS:-100000} seconds_max=${KMOD_SECONDS:-600}
rounds=${KMOD_ROUNDS:-3} pairs=${KMOD_PAIRS:-100000}
if [ "${1:-}" = --all ]; then
    nodes_of_guests=(${KMOD_NODES:-1 2 4}) loads=${KMOD_LOADS:-20} objects=${KMOD_OBJECTS:-1000000}
    seconds_max=${KMOD_SECONDS:-3600} rounds=${KMOD_ROUNDS:-10}
fi

target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
kept="$target/kmod"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

skip() {
    echo "skipped: lru-core inside a kernel needs $*"
    exit 0
}
fail() {
    echo "failed: $*" >&2
    exit 1
}

[ "$(uname -m)" = x86_64 ] || skip "an x86-64 machine"
for tool in qemu-system-x86_64 busybox cpio make gcc-12 python3; do
    command -v "$tool" >/dev/null || packages qemu-system-x86 busybox-static cpio make gcc-12 python3 || true
    command -v "$tool" >/dev/null || skip "$tool (Debian: qemu-system-x86 busybox-static cpio make gcc-12), which cannot be installed"
done
[ -e /usr/include/libelf.h ] || packages libelf-dev || true

version="$(kernel_with_headers "$kept")" || skip "Debian's 6.12 kernel and its headers, which cannot be downloaded"
vmlinuz="$(echo "$kept/$version"/boot/vmlinuz-*)"
echo "kernel $version"

# The Rust side, one object file, with the library built for a kernel target, too.
rust() {
    rust_from_source "$target/rust-source" || skip "Rust's library in source (Debian: rustc-web rust-web-src), which cannot be downloaded"
    local flags=(-Crelocation-model=static -Ccode-model=kernel -Cforce-unwind-tables=no -Cjump-tables=no)
    flags+=(-Zcf-protection=branch -Zfunction-return=thunk-extern -Zretpoline-external-thunk -Zplt=yes)
    flags+=(-Zdirect-access-external-data=yes -Zfunction-sections=no)
    # With the library built from source, an Arc can report that there is no memory.
    flags+=(--cfg=lowwater_try_arc)
    (cd examples/kernel_module/rust && RUSTFLAGS="${flags[*]}" CARGO_TARGET_DIR="$kept/rust" \
        cargo build --locked --quiet --release --target x86_64-unknown-none -Zbuild-std=core,alloc) || return 1
    local archive="$kept/rust/x86_64-unknown-none/release/liblowwater_kernel.a"
    # Only our own objects: the kernel has better versions of the functions in compiler_builtins.
    ar t "$archive" | grep '^lowwater_kernel' >"$work/members"
    [ "$(wc -l <"$work/members")" = 1 ] || fail "the Rust side is not one object file"
    ar p "$archive" "$(cat "$work/members")" >"$kept/rust.o"
}
rm -f "$kept/rust.o" # Of an earlier run.
(rust) || exit 1
[ -s "$kept/rust.o" ] || exit 0 # skipped

# Each call that could panic must be listed, with the reason why it does not.
python3 ci/tools/panics.py "$kept/rust.o" "$PWD" >"$work/panics"
if grep -vxFf <(grep -v '^#' examples/kernel_module/panics.txt | grep .) "$work/panics"; then
    fail "the above could panic, and examples/kernel_module/panics.txt does not say why not"
fi
echo "ok: $(wc -l <"$work/panics") places that could panic, all with a reason"

# The modules.
build="$kept/build"
mkdir -p "$build"
cp examples/kernel_module/{Kbuild,*.c,*.h} "$build/"
if ! cmp -s "$kept/rust.o" "$build/rust.o"; then
    cp "$kept/rust.o" "$build/rust.o"
fi
: >"$build/.rust.o.cmd"
build_modules "$kept/$version" "$build"
for module in lowwater lowwater_peer; do
    echo "built $module.ko, $(stat -c %s "$build/$module.ko") bytes"
done

# The files of the guest.
root="$work/root"
mkdir -p "$root"/{bin,proc,sys,dev}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$build"/*.ko "$root/"
cp examples/kernel_module/guest.sh "$root/init"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"

# guest NODES LOADS ROUNDS: boots a guest with that many nodes. Its figures are in $work/figures
# afterwards, the kernel's log in $work/console.
guest() {
    boot_modules "$1" "$cpus" 2048 "$seconds_max" \
        "kmod.loads=$2" "kmod.objects=$objects" "kmod.rounds=$3" "kmod.pairs=$pairs" ${KMOD_APPEND:-}
}

cpus=4
for nodes in "${nodes_of_guests[@]}"; do
    echo "== $nodes nodes, $loads loads, $objects objects; ns are of an emulated processor"
    guest "$nodes" "$loads" "$rounds"
    expect loads '==' "$loads"
    expect full_at_least '==' "$((objects / 4 * 4))"
    expect dropped '>=' "$loads"
    # Counts are exact, and nothing is left: no object, and no memory of the Rust side.
    expect counts_right '==' "$loads"
    expect objects_left '==' 0
    expect allocations_left '==' 0
    expect adds_refused '==' 0
    # The same with a fraction of the allocations failing.
    expect scarce_starts_refused '>=' 10
    expect scarce_loads '==' 3
    expect scarce_allocations_refused '>=' 3
    expect scarce_objects_left '==' 0
    expect scarce_allocations_left '==' 0
    expect scarce_counts_right '==' 3
done

# Here the guest's clock advances by one nanosecond per instruction, regardless of other load on the
# machine.
echo "== instructions of an add and a del"
pairs=10000 cpus=1 accelerator=(-accel tcg,thread=single -icount shift=0,sleep=off)
guest 1 0 2
for span in 16 1000 20000; do
    expect "pair_ratio_$span" '<=' 1.2
done
