# What is known of QEMU's emulated processors, for the scripts that boot guests.

# emulated_badly CONSOLE: did the guest stop for a fault of the emulator's? Where a kernel changes one of its instructions, as it does when its first
# memory group is made, there is a breakpoint in its place for an instant. Of emulated processors, each a thread, one may stop at it when
# it is gone already, and the kernel, which knows of none there any more, gives up. A breakpoint of ours there is not.
emulated_badly() {
    grep -q 'int3: 0000 \[#1\]' "$1" && echo "an emulated processor stopped at a breakpoint that was gone: once more"
}
