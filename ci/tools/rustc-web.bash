# For the scripts above: a compiler with the source of its library, so that the library can be built
# with a sanitizer (`-Zbuild-std`). It is nightly with rustup's rust-src if that is available;
# otherwise Debian's rustc-web, which is newer than Debian's other compilers and includes that
# source. Debian's packages are unpacked, not installed: a download of 140 MB, 1 GB on disk.
# Sourced, not run; requires ci/tools/cargo.bash.

rustc_web="${LOWWATER_RUSTC_WEB:-$tools/rustc-web}"

# rustc_web_get: provides the compiler if it is missing.
rustc_web_get() {
    rustup component add rust-src --toolchain nightly >/dev/null 2>&1 && return
    [ -x "$rustc_web/usr/bin/rustc" ] && return
    local downloads runtime
    downloads="$(mktemp -d)"
    (
        cd "$downloads"
        apt-get update -qq
        local library llvm
        library="$(apt-cache depends rustc-web | sed -n 's/.*Depends: \(libstd-rust-web-[0-9.]*\)$/\1/p')"
        llvm="$(apt-cache depends rustc-web | sed -n 's/.*Depends: libllvm\([0-9]*\)$/\1/p')"
        apt-get -o APT::Sandbox::User=root download -qq rustc-web rust-web-src libstd-rust-web-dev "$library" "libllvm$llvm" "llvm-$llvm"
        for package in *.deb; do dpkg-deb -x "$package" "$rustc_web"; done
    )
    rm -rf "$downloads"
    # Debian omits the runtimes of the sanitizers. Those of the nightly compiler fit if both
    # compilers have the same LLVM.
    runtime="$(rustc +nightly --print sysroot)/lib/rustlib/x86_64-unknown-linux-gnu/lib"
    for sanitizer in asan lsan msan tsan; do
        cp "$runtime/librustc-nightly_rt.$sanitizer.a" "$rustc_web/usr/lib/rustlib/x86_64-unknown-linux-gnu/lib/librustc-stable_rt.$sanitizer.a"
    done
}

# cargo_web ARGUMENT...: runs cargo with that compiler, which accepts unstable flags.
cargo_web() {
    if [ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]; then
        cargo +nightly "$@"
        return
    fi
    LD_LIBRARY_PATH="$rustc_web/usr/lib/x86_64-linux-gnu:$rustc_web/usr/lib" RUSTC_BOOTSTRAP=1 RUSTC="$rustc_web/usr/bin/rustc" cargo "$@"
}
