# For the scripts above: parts of the Rust toolchain. Sourced, not run.

# component NAME: installs the component if it is missing and rustup can get it. If not, the later
# command that needs it fails.
component() {
    cargo "${1/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$1"
}

# target NAME: installs the target if it is missing; succeeds if it is installed then.
target() {
    local library
    library="$(rustc --print sysroot)/lib/rustlib/$1/lib"
    [ -d "$library" ] && return 0
    command -v rustup >/dev/null && timeout 120 rustup target add "$1" && [ -d "$library" ]
}
