#!/usr/bin/env bash
# Rust modules in a Linux kernel that has Rust: builds Linux 6.12 with CONFIG_RUST=y and the modules
# of examples/kernel_module, boots guests with 1, 2 and 4 nodes, and loads each module; four tasks,
# each in a control group of its own, then use its cache while everything is dropped with
# `echo 2 > /proc/sys/vm/drop_caches`. The module is unloaded in the middle of both: an open file of
# /proc holds no reference on it. KFENCE searches for memory that is used after it was freed. At the
# end no entry may be left, and the kernel's log must be clean. Walks that return wrong verdicts must
# not compile (examples/kernel_module/refused). Then compares the instructions of an add and a del with
# those of the same cache in C.
#
# ci/rust-kernel.sh          a bounded run (1 load); skipped if the kernel is not built yet
# ci/rust-kernel.sh --build  builds the kernel first: about 15 minutes of processor time, once; prints the
#                            command that builds a module of your own for it
# ci/rust-kernel.sh --all    with --build: 20 loads, 10,000 groups with 1,000 caches, and each of
#                            the variants in ci/rust-kernel: lockdep with DEBUG_LIST
#                            (debug), PREEMPT_RT (rt), KASAN (kasan)
#
# The kernels, their source and the compiler stay in ~/.cache/lowwater (2.9 GB, and 0.4 GB for each
# variant; LOWWATER_CACHE names another folder), found again by a hash of the configuration and the
# patch. RUST_KERNEL_NODES, RUST_KERNEL_LOADS, RUST_KERNEL_OBJECTS, RUST_KERNEL_VARIANTS,
# RUST_KERNEL_MANY, RUST_KERNEL_JOBS change the parts, RUST_KERNEL_SECONDS the bound of a guest. Without `plain` in RUST_KERNEL_VARIANTS nothing
# is compared.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash
. ci/tools/guest.bash
. ci/tools/rust-kernel.bash

nodes_of_guests=(${RUST_KERNEL_NODES:-1 2 4}) loads=${RUST_KERNEL_LOADS:-1} objects=${RUST_KERNEL_OBJECTS:-2000}
variants=(${RUST_KERNEL_VARIANTS:-plain}) build=no rounds=2 pairs=10000 many=${RUST_KERNEL_MANY:-0} built_for=
seconds=${RUST_KERNEL_SECONDS:-400}
case "${1:-}" in
--build) build=yes ;;
--all)
    build=yes loads=${RUST_KERNEL_LOADS:-20} variants=(${RUST_KERNEL_VARIANTS:-plain debug rt kasan}) many=${RUST_KERNEL_MANY:-10000}
    seconds=${RUST_KERNEL_SECONDS:-3600}
    ;;
"") ;;
*)
    echo "usage: ci/rust-kernel.sh [--build | --all]" >&2
    exit 2
    ;;
esac

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
skip() {
    echo "skipped: Rust modules in a kernel need $*"
    exit 0
}
fail() {
    echo "failed: $*" >&2
    exit 1
}

[ "$(uname -m)" = x86_64 ] || skip "an x86-64 machine"
for variant in "${variants[@]}"; do
    [ "$build" = yes ] || [ -e "$(kernel_dir "$variant")/built" ] ||
        skip "the guest's kernel, which is not built yet; \`ci/rust-kernel.sh --build\` builds it, in about 15 minutes of processor time"
done
for tool in qemu-system-x86_64 busybox cpio make gcc-12; do
    command -v "$tool" >/dev/null || packages qemu-system-x86 busybox-static cpio make gcc-12 || true
    command -v "$tool" >/dev/null || skip "$tool (Debian: qemu-system-x86 busybox-static cpio make gcc-12), which cannot be installed"
done

# No unsafe code in the cache and the template, and no more lines than a reader copies.
if grep -n '\bunsafe\b' examples/kernel_module/{one_cache/cache,one_cache/load,modules/on_list_lru,template/template}.rs; then
    fail "unsafe code in a cache"
fi
lines="$(wc -l <examples/kernel_module/template/template.rs)"
[ "$lines" -le 100 ] || fail "the template has $lines lines"
echo "ok: no unsafe code in the caches; the template has $lines lines"

# build_modules VARIANT: builds all modules for that kernel, to $work/modules.
build_modules() {
    local dir folder command
    dir="$(kernel_dir "$1")"
    kernel_environment "$1"
    rm -rf "$work/modules"
    # Without what `make` left in the checkout.
    git ls-files -z -co --exclude-standard examples/kernel_module | xargs -0 cp --parents -t "$work"
    mv "$work/examples/kernel_module" "$work/modules"
    mkdir "$work/modules/peer"
    cp examples/kernel_module/{peer.c,load.h} "$work/modules/peer/"
    printf 'obj-m := lowwater_peer.o\nlowwater_peer-y := peer.o\n' >"$work/modules/peer/Kbuild"
    for folder in template modules peer; do
        command=("${kernel_make[@]}" -C "$dir/build" "M=$work/modules/$folder" "LOWWATER=$PWD/examples/kernel_module" modules)
        # As its README says, in the environment of a user.
        [ $folder != template ] || command=(env -u LD_LIBRARY_PATH "PATH=$own_path" "${module_make[@]}" -C "$work/modules/template")
        "${command[@]}" >"$work/make" 2>&1 ||
            { cat "$work/make" >&2; fail "the modules of $folder do not build"; }
        # Of an older compiler, objtool knows by name the functions that do not return; after a call of
        # one of this compiler's it sees no end of the caller.
        if grep -iE 'warning|undefined' "$work/make" | grep -v 'objtool: .* falls through to next function'; then
            cat "$work/make" >&2
            fail "the modules of $folder build with warnings"
        fi
    done
    [ -e "$work/modules/modules/cache_in_tree.ko" ] || fail "the kernel's headers do not have in-tree.patch"
    # The others load into a kernel without the patch.
    for folder in "$work"/modules/*/*.ko; do
        [[ $folder != */cache_in_tree.ko ]] || continue
        ! nm -u "$folder" | grep -E 'memcg_offline_notifier|set_shrinker_bit' || fail "$(basename "$folder") needs in-tree.patch"
    done
    local root="$work/root"
    rm -rf "$root"
    mkdir -p "$root"/{bin,proc,sys,dev}
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp "$work"/modules/*/*.ko "$root/"
    cp examples/kernel_module/modules/guest.sh "$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"
    built_for="$1"
    [ "$build" = no ] || echo "a module of your own, in its folder: ${module_make[*]}"
    (cd "$root" && stat -c 'built %n, %s bytes' ./*.ko)
}

# check_sources VARIANT: compiles the example of kernel_lru's documentation; and each of the walks in
# refused/, of which each must fail with the one error that it names.
check_sources() {
    local build file message
    build="$(kernel_dir "$1")/build"
    mkdir "$work/modules/example"
    {
        echo 'use kernel::{c_str, prelude::*, sync::Arc};'
        echo '#[path = "../kernel_lru/mod.rs"]'
        echo 'mod kernel_lru;'
        echo 'pub(crate) fn example() -> Result<(), Error> {'
        sed -n '/^\/\/! ```$/,/^\/\/! ```$/ { s,^//! \{0\,1\}\(# \)\{0\,1\},,; /^```$/d; p }' examples/kernel_module/kernel_lru/mod.rs
        echo '}'
    } >"$work/modules/example/example.rs"
    grep -q 'impl Shrinker for' "$work/modules/example/example.rs" || fail "no example in kernel_lru/mod.rs"
    echo 'obj-m := example.o' >"$work/modules/example/Kbuild"
    "${kernel_make[@]}" -C "$build" "M=$work/modules/example" example.o >"$work/make" 2>&1 ||
        { cat "$work/make" >&2; fail "the example of kernel_lru does not compile"; }
    echo "ok: the example of kernel_lru compiles"
    for file in "$work"/modules/refused/*.rs; do
        message="$(sed -n 's,^// error,error,p' "$file")"
        file="$(basename "$file" .rs)"
        [ -n "$message" ] || fail "refused/$file.rs names no error"
        ! "${kernel_make[@]}" -C "$build" "M=$work/modules/refused" "$file.o" >"$work/make" 2>&1 || fail "refused/$file.rs compiles"
        # Without such a line the test below fails, and prints the output.
        grep '^error' "$work/make" | grep -v '^error: aborting' >"$work/errors" || true
        [ "$(wc -l <"$work/errors")" -eq 1 ] && grep -qF "$message" "$work/errors" ||
            { cat "$work/make" >&2; fail "refused/$file.rs fails with another error than \"$message\""; }
        echo "ok: refused/$file.rs does not compile, $message"
    done
}

# guest VARIANT NODES PROCESSORS OPTION...: boots a guest. Its figures are in $work/figures
# afterwards, the kernel's log in $work/console.
guest() {
    local vmlinuz nodes="$2" cpus="$3"
    vmlinuz="$(kernel_dir "$1")/build/arch/x86/boot/bzImage"
    shift 3
    boot_modules "$nodes" "$cpus" "${guest_mib:-2048}" "$seconds" "$@"
}

modules="cache_on_list_lru cache_on_lowwater cache_in_tree"
for variant in "${variants[@]}"; do
    kernel_build "$variant" || fail "the kernel \"$variant\" does not build; see $(kernel_dir "$variant")/log"
    SECONDS=0
    build_modules "$variant"
    echo "modules for \"$variant\": $SECONDS s"
    [ "$variant" != "${variants[0]}" ] || check_sources "$variant"
    for nodes in "${nodes_of_guests[@]}"; do
        echo "== $variant kernel, $nodes nodes, $loads loads, $objects objects"
        guest "$variant" "$nodes" 4 kfence.sample_interval=1 "lw.loads=$loads" "lw.objects=$objects" "lw.modules=${modules// /,}"
        # KFENCE was on.
        expect checks_freed '>=' 1
        # The variant's check was on; lockdep ends with the first fault that it finds.
        case $variant in
        debug) expect checks_locks '==' 1 ;;
        kasan) expect checks_addresses '>=' 1 ;;
        rt) expect is_rt '==' 1 ;;
        esac
        for module in $modules; do
            file="${module#cache_}"
            expect "$file.loads" '==' "$loads"
            expect "$file.full_at_least" '==' "$((objects / 4 * 4))"
            expect "$file.dropped" '>=' "$loads"
            expect "$file.promoted" '>=' 1
            # Tasks used it when the unload began.
            expect "$file.commands_at_unload" '>=' 1
            # Counts are exact, and nothing is left.
            expect "$file.counts_right" '==' "$loads"
            expect "$file.entries_left" '==' 0
        done
        for file in on_lowwater in_tree; do
            expect "$file.allocations_left" '==' 0
            # The same with failing allocations: each of the start, and then one in several.
            expect "$file.scarce_starts_refused" '>=' 5
            # busybox tries a start that failed once more, by another system call.
            expect "$file.scarce_starts_ended" '>' "$(figure "$file.scarce_starts_refused")"
            expect "$file.scarce_starts_allocations_left" '==' 0
            expect "$file.scarce_loads" '==' 3
            expect "$file.scarce_made" '>=' 1
            expect "$file.scarce_allocations_refused" '>=' 3
            expect "$file.scarce_allocations_left" '==' 0
            expect "$file.scarce_entries_left" '==' 0
            expect "$file.scarce_counts_right" '==' 3
        done
        for file in on_list_lru in_tree; do
            # The entries are charged to their groups: more than the limit that is set then.
            expect "$file.groups_charged" '>' 2097152
            expect "$file.groups_other_charged" '>=' 1000000
            # The limit of one group took entries of that group, and only of that.
            expect "$file.groups_charged_at_max" '<=' 2097152
            expect "$file.groups_listed" '==' 60000
            expect "$file.groups_listed_at_max" '>=' 20000
            expect "$file.groups_listed_at_max" '<' 60000
            # Entries of a removed group stay until they are reclaimed from its parent.
            expect "$file.groups_listed_after_rmdir" '==' "$(figure "$file.groups_listed_at_max")"
            expect "$file.groups_listed_after_drop" '<=' 100
            # Each entry was added, at the limit of a group that has no memory for all of them.
            expect "$file.limit_filled" '==' 60000
            expect "$file.limit_oom_kills" '==' 0
            expect "$file.limit_charged" '<=' 4194304
            expect "$file.limit_listed" '<' 60000
            # The entries of a removed group are reclaimed by its parent's limit.
            expect "$file.nested_listed" '==' 40000
            expect "$file.nested_charged" '>' 1048576
            expect "$file.nested_charged_at_max" '<=' 1048576
            expect "$file.nested_listed_at_max" '<' 40000
        done
        # A shrinker of two lists reclaims from both.
        expect two_lists.objects '==' 5000
        expect two_lists.objects_left '==' 0
        # Walks that keep all objects visit each once, and `clear` removes more than one batch.
        for walk in rotate skip; do
            expect "walks.$walk" '==' 2500
            expect "walks.${walk}_at_most" '==' 1
        done
        expect walks.after_clear '==' 0
        expect template.first '==' 10000
        expect template.after_drop '<' 100
    done
done

# Instructions and bytes are those of the plain kernel: the variants' checks cost both.
[[ " ${variants[*]} " == *" plain "* ]] || exit 0

# Here the guest's clock advances by one nanosecond per instruction, regardless of other load on the
# machine.
echo "== instructions of an add and a del"
[ "$built_for" = plain ] || build_modules plain
accelerator=(-accel tcg,thread=single -icount shift=0,sleep=off)
guest plain 1 1 lw.loads=0 "lw.compared=lowwater_peer,lowwater_peer:known=1,cache_on_list_lru,cache_on_lowwater" "lw.rounds=$rounds" "lw.pairs=$pairs"
for span in 16 1000 20000; do
    c="$(figure "lowwater_peer.pair_$span")"
    expect "on_list_lru.pair_$span" '<=' "1.05 * $c"
    # Its entries know their group, so it is compared with the list_lru that is told the group.
    expect "on_lowwater.pair_$span" '<=' "$(figure "lowwater_peer_known.pair_$span")"
done

[ "$many" -gt 0 ] || exit 0
echo "== $many groups and 1,000 caches, of which three hold an object"
guest_mib=4096 guest plain 2 2 lw.loads=0 "lw.many=$many"
for module in many_on_list_lru many_on_lowwater; do
    expect "$module.left" '==' 0
done
