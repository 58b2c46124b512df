# Known faults of QEMU's emulated processors, for the scripts that boot guests. Sourced, not run.

# emulated_badly CONSOLE: succeeds if the guest stopped because of a fault of the emulator, so that
# the script boots it again. When a kernel patches one of its instructions, as at the creation of
# the first memory group, it puts a breakpoint in its place for a moment. An emulated processor,
# which is a thread of QEMU, may trap at the breakpoint after the kernel has removed it; the kernel
# then finds no breakpoint at that address and stops. The code under test has no breakpoints of its
# own.
emulated_badly() {
    grep -q 'int3: 0000 \[#1\]' "$1" && echo "an emulated processor stopped at a breakpoint that was gone: once more"
}
