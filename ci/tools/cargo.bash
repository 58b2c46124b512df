# For the scripts above: programs that cargo builds, kept in one folder, `$LOWWATER_TOOLS` or
# target/tools. Sourced, not run.

tools="${LOWWATER_TOOLS:-${CARGO_TARGET_DIR:-$PWD/target}/tools}"
PATH="$tools/bin:$PATH"

# tool NAME: builds and installs the program if it is missing. A large one takes a quarter of an
# hour on two processors.
tool() {
    command -v "$1" >/dev/null && return
    echo "installing $1 into $tools"
    CARGO_TARGET_DIR="$tools/build" RUSTFLAGS='' cargo install --locked --quiet --root "$tools" "$1"
    rm -rf "$tools/build"
}
