# For ci/rust-kernel.sh: builds a Linux kernel with CONFIG_RUST=y from Debian's source, for a guest.
# Sourced, not run; requires ci/tools/apt.bash.
#
# Everything is kept in $cache, so that the next run finds it: the compiler (Debian's rustc-web,
# unpacked), bindgen, the patched source, and each kernel in a folder named by a hash of its
# configuration and patch. A module builds only against the tree and the compiler that built the
# kernel.

cache="${LOWWATER_CACHE:-$HOME/.cache/lowwater}"
jobs="${RUST_KERNEL_JOBS:-2}"
own_path="$PATH"

# kernel_dir VARIANT: prints the folder of that kernel. It is complete if it has the file `built`.
kernel_dir() {
    local parts=(ci/rust-kernel/plain.config)
    [ "$1" = plain ] || parts+=("ci/rust-kernel/$1.config")
    echo "$cache/rust-kernel/$1-$(cat "${parts[@]}" examples/kernel_module/in-tree.patch | sha256sum | cut -c1-12)"
}

# kernel_compiler VARIANT: prints the C compiler of that kernel. gcc cannot check addresses in Rust and C together (KASAN), so
# that kernel is clang's.
kernel_compiler() {
    ! grep -qs '^CONFIG_KASAN=y' "ci/rust-kernel/$1.config" || { echo clang-14; return; }
    echo gcc-12
}

# kernel_environment VARIANT: sets the environment in which that kernel and its modules are compiled; and in $module_make the
# command that compiles a module with template/Makefile, in any environment.
kernel_environment() {
    local root="$cache/rustc-web" compiler
    compiler="$(kernel_compiler "$1")"
    export LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu:$root/usr/lib"
    export PATH="$cache/bindgen/bin:$own_path"
    module_make=("LD_LIBRARY_PATH=$LD_LIBRARY_PATH" make "KDIR=$(kernel_dir "$1")/build" "CC=$compiler" "RUSTC=$root/usr/bin/rustc")
    kernel_make=(make "CC=$compiler" HOSTCC=gcc-12 "RUSTC=$root/usr/bin/rustc" "RUSTDOC=$root/usr/bin/rustdoc" BINDGEN=bindgen)
}

# package_known NAME: reads the lists of packages if they do not have that one.
package_known() {
    apt-cache show "$1" >/dev/null 2>&1 || apt-get update -qq
}

# kernel_tools: installs what compiling a kernel needs, and provides the compiler and bindgen.
kernel_tools() {
    packages flex bison bc libelf-dev libssl-dev cpio xz-utils make gcc-12 clang-14 libclang-14-dev || return 1
    if [ ! -x "$cache/rustc-web/usr/bin/rustc" ]; then
        local library llvm
        package_known rustc-web || return 1
        library="$(apt-cache depends libstd-rust-web-dev | sed -n 's/.*Depends: \(libstd-rust-web-1[0-9.]*\)$/\1/p')"
        [ -n "$library" ] || return 1
        llvm="$(apt-cache depends "$library" | sed -n 's/.*Depends: \(libllvm[0-9]*\)$/\1/p')"
        [ -n "$llvm" ] || return 1
        rm -rf "$cache/new" && mkdir -p "$cache/new/deb" || return 1
        (cd "$cache/new/deb" && apt-get -o APT::Sandbox::User=root download -qq \
            rustc-web rust-web-src libstd-rust-web-dev "$library" "$llvm") || return 1
        local package
        for package in "$cache"/new/deb/*.deb; do dpkg-deb -x "$package" "$cache/new/root" || return 1; done
        mv "$cache/new/root" "$cache/rustc-web" && rm -rf "$cache/new" || return 1
    fi
    # The version that the kernel names in scripts/min-tool-version.sh. An install that was ended continues where it was.
    [ -x "$cache/bindgen/bin/bindgen" ] ||
        env -u LD_LIBRARY_PATH CARGO_TARGET_DIR="$cache/bindgen-target" \
            cargo install --locked --quiet --root "$cache/bindgen" --version 0.65.1 bindgen-cli || return 1
    rm -rf "$cache/bindgen-target"
}

# kernel_source: unpacks and patches Debian's source. Prints its folder.
kernel_source() {
    local dir
    dir="$cache/rust-kernel/source-$(sha256sum <examples/kernel_module/in-tree.patch | cut -c1-12)"
    if [ ! -d "$dir" ]; then
        package_known linux-source-6.12 >&2 || return 1
        rm -rf "$dir.new" && mkdir -p "$dir.new" || return 1
        (cd "$dir.new" && apt-get -o APT::Sandbox::User=root download -qq linux-source-6.12) >&2 || return 1
        dpkg-deb -x "$dir.new"/linux-source-*.deb "$dir.new" || return 1
        tar xf "$dir.new/usr/src/linux-source-6.12.tar.xz" -C "$dir.new" --strip-components=1 || return 1
        rm -rf "$dir.new/usr/src" "$dir.new"/linux-source-*.deb
        patch -s -p1 -d "$dir.new" <examples/kernel_module/in-tree.patch >&2 || return 1
        mv "$dir.new" "$dir" || return 1
    fi
    echo "$dir"
}

# kernel_configure VARIANT DIR SOURCE: writes the configuration, in the environment of that kernel.
kernel_configure() {
    local variant="$1" dir="$2" source="$3" fragment
    fragment="$source/kernel/configs/lowwater-$variant.config"
    # A variant's line replaces the plain line of the same option.
    awk '{ option = $1 == "#" ? $2 : $1; sub(/=.*/, "", option) }
        option ~ /^CONFIG_/ { at[option] = $0; if (!(option in seen)) order[++n] = option; seen[option] }
        END { for (i = 1; i <= n; i++) print at[order[i]] }' \
        ci/rust-kernel/plain.config "ci/rust-kernel/$variant.config" >"$fragment"
    (
        cd "$source"
        "${kernel_make[@]}" O="$dir/build" rustavailable
        "${kernel_make[@]}" O="$dir/build" tinyconfig "lowwater-$variant.config"
    ) >"$dir/log" 2>&1 || { tail -n 30 "$dir/log" >&2; return 1; }
    # An option that was refused would leave a kernel without what is to be checked.
    if grep -vFxf "$dir/build/.config" "$fragment" | grep '^CONFIG_'; then
        echo "the configuration refuses the above" >&2
        return 1
    fi
    touch "$dir/configured"
}

# kernel_build VARIANT: builds the kernel if it is not there, in about 15 minutes of processor time.
kernel_build() {
    local variant="$1" dir source began=$SECONDS
    dir="$(kernel_dir "$variant")"
    # The kernel may be a cached one, and the machine another. libllvm14 brings the libraries that
    # the unpacked rustc needs.
    packages "$(kernel_compiler "$variant")" libllvm14 || return 1
    [ ! -e "$dir/built" ] || return 0
    kernel_tools || { echo "the compiler or bindgen cannot be had" >&2; return 1; }
    source="$(kernel_source)" || { echo "the kernel's source cannot be had" >&2; return 1; }
    kernel_environment "$variant"
    mkdir -p "$dir/build"
    # A build that was ended continues where it was.
    [ -e "$dir/configured" ] || kernel_configure "$variant" "$dir" "$source" || return 1
    (cd "$source" && time "${kernel_make[@]}" -j"$jobs" O="$dir/build" bzImage modules) >>"$dir/log" 2>&1 ||
        { grep -E -A20 'error|Error' "$dir/log" | tail -n 40 >&2; return 1; }
    {
        (cd "$source" && make -s kernelversion)
        "$cache/rustc-web/usr/bin/rustc" --version
        tail -n 3 "$dir/log" | tr '\n' ' '
    } >"$dir/built"
    echo "built the kernel \"$variant\" in $((SECONDS - began)) s: $(tr '\n' ' ' <"$dir/built")"
}
