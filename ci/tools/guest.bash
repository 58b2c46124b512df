# Guests with several NUMA nodes in QEMU, and the figures that they print, for the scripts that boot
# them. Sourced, not run.

# QEMU's arguments for the processor. It is emulated unless $VM_ACCEL is "kvm".
accelerator=(-accel "${VM_ACCEL:-tcg,thread=multi}")

# boot NODES CPUS MIB SECONDS ARGUMENT...: boots $vmlinuz with $work/initrd in a guest with that many
# nodes, which share processors and memory equally. ARGUMENTs are the kernel's; of two for one
# parameter the last counts. The kernel's console is $work/console, the guest's second serial port
# $work/figures, and QEMU's own output $work/qemu. Fails if the guest still runs after SECONDS.
boot() {
    local nodes="$1" cpus="$2" mib="$3" seconds="$4" numa=() n
    shift 4
    for ((n = 0; n < nodes; n++)); do
        numa+=(-object "memory-backend-ram,id=m$n,size=$((mib / nodes))M")
        numa+=(-numa "node,nodeid=$n,cpus=$((n * cpus / nodes))-$(((n + 1) * cpus / nodes - 1)),memdev=m$n")
    done
    for n in 1 2 3; do
        : >"$work/console"
        : >"$work/figures"
        timeout "$seconds" qemu-system-x86_64 -M q35 "${accelerator[@]}" -cpu max \
            -smp "$cpus,sockets=$nodes,cores=$((cpus / nodes)),threads=1" -m "${mib}M" "${numa[@]}" \
            -display none -nodefaults -no-reboot -serial "file:$work/console" -serial "file:$work/figures" \
            -kernel "$vmlinuz" -initrd "$work/initrd" \
            -append "console=ttyS0 loglevel=4 panic=-1 random.trust_cpu=on $*" </dev/null >"$work/qemu" 2>&1 ||
            return 1
        emulated_badly "$work/console" || break
    done
    tr -d '\r' <"$work/figures" >"$work/clean" && mv "$work/clean" "$work/figures"
}

# boot_modules NODES CPUS MIB SECONDS ARGUMENT...: boots a guest that loads modules, and stops the
# script unless the guest was done, and its kernel's log has no unexpected line.
boot_modules() {
    local nodes="$1" began=$SECONDS
    boot "$@" loglevel=5 oops=panic log_buf_len=8M || { tail -n 60 "$work/qemu" "$work/console" "$work/figures" >&2; fail "the guest was not done in $4 s"; }
    sed 's/^/    /' "$work/figures"
    grep -q '^end 1$' "$work/figures" || { tail -n 60 "$work/console" >&2; fail "the guest stopped early"; }
    echo "    guest_seconds $((SECONDS - began))"
    expect nodes '==' "$nodes"
    expect log_lines_bad '==' 0
    ! grep '^failed' "$work/figures" || fail "something in the guest"
}

# figure NAME: prints its value.
figure() { awk -v name="$1" '$1 == name { print $2; found = 1 } END { exit !found }' "$work/figures"; }

# expect NAME OPERATOR VALUE: stops the script unless the figure compares like this.
expect() {
    local value
    value="$(figure "$1")" || fail "no figure $1"
    awk "BEGIN { exit !($value $2 $3) }" || { tail -n 40 "$work/console" >&2; fail "$1 is $value, which is not $2 $3"; }
    echo "ok: $1 $value $2 $3"
}

# emulated_badly CONSOLE: succeeds if the guest stopped because of a fault of the emulator, so that
# the script boots it again. When a kernel patches one of its instructions, as at the creation of
# the first memory group, it puts a breakpoint in its place for a moment. An emulated processor,
# which is a thread of QEMU, may trap at the breakpoint after the kernel has removed it; the kernel
# then finds no breakpoint at that address and stops. The code under test has no breakpoints of its
# own.
emulated_badly() {
    grep -q 'int3: 0000 \[#1\]' "$1" && echo "an emulated processor stopped at a breakpoint that was gone: once more"
}
