# Guests with several NUMA nodes in QEMU, for the scripts that boot them. Sourced, not run.

# boot NODES CPUS MIB SECONDS ARGUMENT...: boots $vmlinuz with $work/initrd in a guest with that many
# nodes, which share processors and memory equally. ARGUMENTs are the kernel's. The kernel's console is
# $work/console, the guest's second serial port $work/figures, and QEMU's own output $work/qemu. Fails
# if the guest still runs after SECONDS. An emulated processor is used unless $VM_ACCEL is "kvm".
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
        timeout "$seconds" qemu-system-x86_64 -M q35 -accel "${VM_ACCEL:-tcg,thread=multi}" -cpu max \
            -smp "$cpus,sockets=$nodes,cores=$((cpus / nodes)),threads=1" -m "${mib}M" "${numa[@]}" \
            -display none -nodefaults -no-reboot -serial "file:$work/console" -serial "file:$work/figures" \
            -kernel "$vmlinuz" -initrd "$work/initrd" \
            -append "console=ttyS0 loglevel=4 panic=-1 random.trust_cpu=on $*" </dev/null >"$work/qemu" 2>&1 ||
            return 1
        emulated_badly "$work/console" || break
    done
    tr -d '\r' <"$work/figures" >"$work/clean" && mv "$work/clean" "$work/figures"
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
