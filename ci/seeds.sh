#!/usr/bin/env bash
# Measures the reports that lowwater answers, for docs/SEEDS.md: on the newest kernel of Debian, in
# QEMU guests, and with lowwater's examples.
#
# ci/seeds.sh linux [LOAD...]   boots a guest for each load (all by default): ci/seeds/results/linux.json
# ci/seeds.sh lowwater          runs the examples: ci/seeds/results/lowwater.json
# ci/seeds.sh --render          writes docs/SEEDS.md from the results
# ci/seeds.sh --check           fails if docs/SEEDS.md differs from the results, or if a number of a
#                               report is not in its document (only where the documents are in
#                               $LOWWATER_SEEDS)
#
# The kernel is downloaded from Debian's unstable distribution and unpacked, not installed; or it is
# the file in $SEEDS_KERNEL, with its module loop.ko in $SEEDS_LOOP. Guests are emulated: their
# seconds are not those of a real machine. $SEEDS_SECONDS is the limit of one guest. The load
# "deferred" is a module; its kernel is the one of ci/kmod.sh, which has headers to build it with.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash
. ci/tools/guest.bash
. ci/tools/headers.bash

target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
kept="$target/seeds"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

fail() {
    echo "failed: $*" >&2
    exit 1
}

# The guests: load, nodes, MiB of memory, and the arguments of ci/seeds/guest.c; for "deferred", the
# parameters of the module ci/seeds/deferred.c.
guests=(
    "drops 1 2048 drops 4000"
    "negatives 1 2048 negatives 1000000 /disk"
    "containers 2 3072 containers 1000 7"
    "lists 2 6144 lists 10000 10000"
    "deferred 1 512 objects=1800000 deferred=1000000"
)

# unstable TOOL ARGUMENT...: apt with the package lists of Debian's unstable distribution alone.
unstable() {
    local tool="$1"
    shift
    "$tool" -o Dir::Etc::sourcelist="$kept/apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$kept/apt/lists" \
        -o Dir::Cache="$kept/apt/cache" -o APT::Sandbox::User=root "$@"
}

# kernel: sets vmlinuz and loop, which are downloaded once.
kernel() {
    local mirror image packages
    if [ -n "${SEEDS_KERNEL:-}" ]; then
        vmlinuz="$SEEDS_KERNEL" loop="${SEEDS_LOOP:?the module loop.ko of that kernel}"
        return
    fi
    if [ ! -s "$kept/vmlinuz" ]; then
        mkdir -p "$kept/apt/lists/partial" "$kept/apt/cache/archives/partial"
        apt-get update -qq
        mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)"
        [ -n "$mirror" ] || fail "apt has no package lists of Debian"
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$kept/apt/sources.list"
        unstable apt-get update -qq
        image="$(unstable apt-cache pkgnames linux-image- | grep -E '^linux-image-[0-9].*-cloud-amd64$' | sort -V | tail -1)"
        [ -n "$image" ] || fail "Debian has no cloud kernel"
        # Newer packages are divided: the image depends on those of the binary and of the modules.
        packages=("$image" $(unstable apt-cache depends "$image" | sed -nE 's/^ *Depends: (linux-(binary|modules)-.*)/\1/p'))
        (cd "$work" && unstable apt-get download -qq "${packages[@]}" && for package in *.deb; do dpkg-deb -x "$package" kernel; done)
        find "$work/kernel" -name 'loop.ko*' -exec cp {} "$work/" \;
        [ ! -e "$work/loop.ko.xz" ] || xz -d "$work/loop.ko.xz"
        mv "$work/loop.ko" "$kept/loop.ko"
        cp "$(find "$work/kernel" -name 'vmlinuz*' -type f | head -1)" "$kept/vmlinuz"
    fi
    vmlinuz="$kept/vmlinuz" loop="$kept/loop.ko"
}

# module: builds ci/seeds/deferred.c into the files of the guest, and sets vmlinuz.
module() {
    local headers="$target/kmod" build="$work/module"
    headers+="/$(kernel_with_headers "$headers")" || fail "no kernel with headers"
    mkdir -p "$build" "$work/root"
    cp ci/seeds/deferred.c "$build/"
    echo 'obj-m := deferred.o' >"$build/Kbuild"
    build_modules "$headers" "$build"
    cp "$build/deferred.ko" "$work/root/"
    vmlinuz="$(echo "$headers"/boot/vmlinuz-*)"
}

# initrd: the files of a guest. Names that do not exist are looked up on a small ext4.
initrd() {
    local root="$work/root"
    mkdir -p "$root"/{bin,proc,sys,dev,disk}
    cp "$(command -v busybox)" "$root/bin/busybox"
    [ -e "$root/deferred.ko" ] || cp "$loop" "$root/loop.ko"
    gcc -O2 -Wall -Wextra -static ci/seeds/guest.c -o "$root/guest"
    truncate -s 8M "$root/disk.image"
    mke2fs -q -t ext4 "$root/disk.image"
    cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
for word in $(cat /proc/cmdline); do
    case $word in
    guest.arg=*) arguments="$arguments ${word#*=}" ;;
    esac
done
if [ -e /deferred.ko ]; then
    insmod /deferred.ko $arguments 2>/errors
    dmesg | sed -n 's/.*deferred: {/{/p' >/figures
else
    insmod /loop.ko
    losetup /dev/loop0 /disk.image && mount -t ext4 /dev/loop0 /disk
    /guest $arguments >/figures 2>/errors
fi
{
    cat /errors
    echo "kernel $(uname -r)"
    cat /figures
    echo "end 1"
} >/dev/ttyS1
poweroff -f
INIT
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"
}

# guest LOAD NODES MIB ARGUMENT...: its figures are one line of $work/figures afterwards.
guest() {
    local load="$1" nodes="$2" mib="$3"
    shift 3
    echo "== $load: $nodes nodes, $mib MiB"
    boot "$nodes" 2 "$mib" "${SEEDS_SECONDS:-3600}" no_timer_check $(printf ' guest.arg=%s' "$@") || true
    cat "$work/figures"
    grep -q '^end 1$' "$work/figures" && grep -q "\"load\":\"$load\"" "$work/figures" ||
        { tail -n 20 "$work/qemu" "$work/console" >&2; fail "the guest for $load was not done"; }
}

linux() {
    local line load
    for tool in qemu-system-x86_64 busybox cpio gcc mke2fs xz; do
        command -v "$tool" >/dev/null || packages qemu-system-x86 busybox-static cpio gcc libc6-dev e2fsprogs xz-utils
    done
    for line in "${guests[@]}"; do
        load="${line%% *}"
        [ $# -eq 0 ] || [[ " $* " == *" $load "* ]] || continue
        rm -rf "$work/root"
        if [ "$load" = deferred ]; then
            packages make gcc-12 libelf-dev
            module
        else
            kernel
        fi
        initrd
        # shellcheck disable=SC2086 # The words of the line are the arguments.
        guest $line
        python3 -B ci/seeds/page.py add linux "$load" "$(grep '^kernel ' "$work/figures" | cut -d' ' -f2)" <<<"$(grep '^{' "$work/figures")"
    done
}

case "${1:-}" in
linux) shift && linux "$@" ;;
lowwater) shift && python3 -B ci/seeds/page.py lowwater "$@" ;;
--render | --check) python3 -B ci/seeds/page.py "$1" ;;
*) fail "ci/seeds.sh linux [LOAD...] | lowwater | --render | --check" ;;
esac
