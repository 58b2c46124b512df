#!/usr/bin/env bash
# Real pressure: a QEMU guest with 1, 2 and 4 NUMA nodes and cgroup v2 runs a program that puts 1 GB
# through a cache in a group with memory.max=96M. The program must never be killed, must shrink its
# cache when it needs memory for other data, and must keep serving meanwhile. The first guest does
# not watch its group and is killed, which shows that the limit is real. Two guests, with and without
# PSI, are given no budget and take the group's limit. The last two have memory.high instead, for which the kernel reports an event when it is met; one of them receives
# only PSI events.
#
# Real nodes: guests with 1, 2 and 4 nodes run the tests of crates/shrinker/tests/numa.rs, which
# have only one node on most machines: memory is allocated on its node and returned to it; a full
# node evicts nothing on other nodes; reclaimers run on their processors.
#
# ci/vm.sh [pressure|numa]: only that part.
#
# Needs QEMU, busybox and cpio, which it installs where possible, and a kernel: the file in
# $VM_KERNEL, or Debian's cloud kernel, which is downloaded and unpacked, not installed. Without
# them it is skipped, and prints that. Guests are emulated unless $VM_ACCEL is "kvm" (which crashes
# some machines that offer it); an emulated guest takes about 15 s. Each has a limit of 900 s, so that
# one that hangs ends, and one on a busy machine does not.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash
. ci/tools/guest.bash

seconds_max=900
parts="${1:-pressure numa}"
target="${CARGO_TARGET_DIR:-target}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

skip() {
    echo "skipped: the tests under real pressure need $*"
    exit 0
}
fail() {
    echo "failed: $*" >&2
    exit 1
}

[ "$(uname -m)" = x86_64 ] || skip "an x86-64 machine"
for tool in qemu-system-x86_64 busybox cpio; do
    command -v "$tool" >/dev/null || packages qemu-system-x86 busybox-static cpio || true
    command -v "$tool" >/dev/null || skip "$tool (Debian: qemu-system-x86 busybox-static cpio), which cannot be installed"
done

# kernel: prints the path of the guest's kernel, which is downloaded once.
kernel() {
    local kept="$target/vm/vmlinuz" package
    if [ -n "${VM_KERNEL:-}" ]; then
        echo "$VM_KERNEL"
    elif [ -s "$kept" ]; then
        echo "$kept"
    else
        # Prefers 6.12, with which all figures were measured; otherwise the newest available.
        package="$(apt-cache pkgnames linux-image- | grep -E '^linux-image-[0-9].*-cloud-amd64-unsigned$' |
            awk '{ print ($0 ~ /-6\.12/ ? 1 : 0), $0 }' | sort -V | tail -1 | cut -d' ' -f2)"
        [ -n "$package" ] || return 1
        (cd "$work" && apt-get download "$package" >download.log 2>&1 && dpkg-deb -x "$package"_*.deb kernel) || return 1
        mkdir -p "$target/vm"
        cp "$work"/kernel/boot/vmlinuz-* "$kept"
        echo "$kept"
    fi
}
vmlinuz="$(kernel)" || skip "a kernel for the guest (no Debian cloud kernel can be downloaded; set VM_KERNEL to a bzImage)"

# Builds only the requested parts: the example has many more dependencies than the tests.
programs=()
if [[ $parts == *pressure* ]]; then
    cargo build --quiet --release --example pressure_probe
    cp "$target/release/examples/pressure_probe" "$work/probe"
    programs+=("$work/probe")
fi
if [[ $parts == *numa* ]]; then
    # executable ARGUMENT...: prints the path of a test's executable.
    executable() { cargo test --quiet --no-run --message-format=json "$@" | grep -o '"executable":"[^"]*"' | cut -d'"' -f4; }
    cp "$(executable -p lowwater-shrinker --test numa)" "$work/numa"
    cp "$(executable -p lowwater-lru-core --lib)" "$work/core"
    bench="$(cargo bench --quiet --no-run --message-format=json -p lowwater-lru-core --bench remote_node |
        grep -o '"executable":"[^"]*"' | cut -d'"' -f4)"
    cp "$bench" "$work/remote_node"
    programs+=("$work/numa" "$work/core" "$work/remote_node")
fi

# The files of the guest: busybox, the program and its libraries.
root="$work/root"
mkdir -p "$root"/{bin,proc,sys,dev}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "${programs[@]}" "$root/"
for program in "${programs[@]}"; do ldd "$program"; done | grep -oE '/[^ ]+' | sort -u | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin RUST_BACKTRACE=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
# The limit of the outer group applies to the inner one, which has none of its own.
outer=/sys/fs/cgroup/outer
mkdir $outer
echo +memory >$outer/cgroup.subtree_control
mkdir $outer/inner
# From the kernel's command line: the outer group's limits, and the program's arguments.
for word in $(cat /proc/cmdline); do
    case $word in
    probe.max=*) echo ${word#*=} >$outer/memory.max ;;
    probe.high=*) echo ${word#*=} >$outer/memory.high ;;
    probe.arg=*) args="$args ${word#*=}" ;;
    tests) tests=yes ;;
    esac
done
if [ "$tests" ]; then
    {
        echo "nodes $(ls -d /sys/devices/system/node/node[0-9]* | wc -l)"
        /numa --nocapture --test-threads=1
        echo "numa_exit $?"
        /core --test-threads=1 topology
        echo "topology_exit $?"
        /remote_node --bench
        echo "remote_node_exit $?"
        echo "end 1"
    } >/dev/ttyS1 2>&1
    poweroff -f
fi
(echo 0 >$outer/inner/cgroup.procs && exec /probe $args) </dev/null >/dev/ttyS1 2>&1
{
    echo "exit $?"
    awk '{ print "outer_" $1, $2 }' $outer/memory.events
    awk '{ print "inner_" $1, $2 }' $outer/inner/memory.events
    echo "outer_peak_bytes $(cat $outer/memory.peak)"
    grep some $outer/memory.pressure | sed 's/.*total=/outer_stalled_us /'
    echo "end 1"
} >/dev/ttyS1
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"

# guest NODES ARGUMENT...: runs the program in a guest with that many nodes. Its figures are in
# $work/figures afterwards.
guest() {
    local nodes="$1" began=$SECONDS
    shift
    boot "$nodes" 4 1024 "$seconds_max" psi=1 "$@" ||
        { tail -n 20 "$work/qemu" "$work/console" "$work/figures" >&2; fail "the guest was not done after $seconds_max s"; }
    sed "s/^/    /" "$work/figures"
    grep -q '^end 1$' "$work/figures" || { tail -n 20 "$work/console" >&2; fail "the guest stopped early"; }
    echo "    guest_seconds $((SECONDS - began))"
}

# went_well NODES: the checks for each guest whose runtime watches its group.
went_well() {
    expect nodes '==' "$1"
    expect exit '==' 0
    expect finished '==' 1
    expect outer_oom_kill '==' 0
    expect inner_oom_kill '==' 0
    # The cache shrinks by itself.
    expect ceiling_min_bytes '<' "$(figure ceiling_before_bytes)"
    expect lowered '>=' 1
    expect errors '==' 0
    # It keeps serving: at most one write in a hundred was refused, or was gone when it was read at
    # once.
    for phase in fill squeeze hold after; do
        expect "${phase}_refused" '<=' "$(figure "${phase}_values") / 100"
        expect "${phase}_lost" '<=' "$(figure "${phase}_values") / 100"
    done
}

if [[ $parts == *numa* ]]; then
    for nodes in 1 2 4; do
        echo "== $nodes nodes, their memory and their processors"
        guest "$nodes" tests
        expect nodes '==' "$nodes"
        expect numa_exit '==' 0
        expect topology_exit '==' 0
        expect remote_node_exit '==' 0
        ran="$(grep -c "numa: .* on $nodes nodes$" "$work/figures")" || true
        [ "$ran" -ge $((nodes > 1 ? 3 : 2)) ] || fail "the tests did not see $nodes nodes"
    done
fi
[[ $parts == *pressure* ]] || exit 0

echo "== 1 node, memory.max=96M, not looking"
guest 1 probe.max=96M probe.arg=--plain probe.arg=--megabytes probe.arg=300
expect outer_oom '>=' 1
expect inner_oom_kill '>=' 1

for nodes in 1 2 4; do
    echo "== $nodes nodes, memory.max=96M"
    guest "$nodes" probe.max=96M
    went_well "$nodes"
    expect squeeze_values '>' 0
    # The memory that the cache gave up is returned when the program has released its own.
    expect given_back '==' 1
    expect hold_values '>' 0
    expect limit_bytes '==' "$((96 << 20))"
done

# No budget is given: the group's limit is the budget, and PSI is watched only where the kernel has it.
for psi in 1 0; do
    echo "== 1 node, memory.max=96M, no budget, psi=$psi"
    guest 1 psi=$psi probe.max=96M probe.arg=--auto probe.arg=--megabytes probe.arg=150 probe.arg=--squeeze probe.arg=24 \
        probe.arg=--hold-seconds probe.arg=1
    went_well 1
    expect budget_bytes '==' "$((68 << 20))"
    expect limit_bytes '==' "$((96 << 20))"
    # No service manager names a file; without PSI, the group's and the system's are missing, too.
    expect missing '==' "$((psi ? 1 : 3))"
done

echo "== 1 node, memory.high=96M, no margin"
guest 1 probe.high=96M probe.arg=--margin probe.arg=1 probe.arg=--megabytes probe.arg=150 probe.arg=--squeeze probe.arg=8 \
    probe.arg=--hold-seconds probe.arg=1
went_well 1
# The kernel reports that the limit was met, once for each time.
expect outer_high '>=' 1
expect events_memory_events_local '>=' 1
expect events_memory_events_local '<=' "$(figure outer_high) + 1"

echo "== 2 nodes, memory.high=96M, hearing PSI only"
guest 2 probe.high=96M probe.arg=--psi-only probe.arg=--megabytes probe.arg=200 probe.arg=--squeeze probe.arg=0
went_well 2
expect hold_values '>' 0
expect events_memory_pressure '>=' 1
expect outer_high '>=' 1
