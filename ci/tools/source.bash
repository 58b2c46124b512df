# For the scripts above: a Rust compiler whose library can be built from source, for targets without
# a compiled library. Sourced, not run.

# rust_from_source DIR: sets the environment so that `cargo` can build the library as well
# (-Zbuild-std): from rustup's source if that is installed, otherwise from Debian's rustc-web, which
# is downloaded to DIR and unpacked, not installed. Fails if neither is available.
rust_from_source() {
    local dir="$1" root="$1/root"
    export RUSTC_BOOTSTRAP=1
    [ ! -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library/core" ] || return 0
    if [ ! -x "$root/usr/bin/rustc" ]; then
        local version packages
        command -v apt-get >/dev/null || return 1
        version="$(apt-cache pkgnames libstd-rust-web-1. | sort -V | tail -1)"
        [ -n "$version" ] || return 1
        packages=(rustc-web rust-web-src libstd-rust-web-dev "$version")
        packages+=("$(apt-cache depends "$version" rustc-web | grep -oE 'libllvm[0-9]+' | head -1)")
        mkdir -p "$dir"
        (cd "$dir" && apt-get -o APT::Sandbox::User=root download -qq "${packages[@]}") >"$dir/download.log" 2>&1 || return 1
        rm -rf "$root.new"
        for package in "$dir"/*.deb; do
            dpkg-deb -x "$package" "$root.new" || return 1
        done
        rm -f "$dir"/*.deb
        mv "$root.new" "$root"
    fi
    export LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu:$root/usr/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export RUSTC="$root/usr/bin/rustc"
    "$RUSTC" --version >/dev/null 2>&1
}
