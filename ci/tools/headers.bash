# Debian's 6.12 kernel with its headers, and modules in C for it. Sourced, not run; needs
# ci/tools/apt.bash, $work for temporary files, and a function "fail".

# kernel_with_headers DIRECTORY: downloads Debian's newest 6.12 and its headers once, to
# DIRECTORY/VERSION. Prints VERSION.
kernel_with_headers() {
    local kept="$1" version root part
    mkdir -p "$kept"
    version="$(find "$kept" -maxdepth 1 -name '6.12*' -printf '%f\n' 2>/dev/null | sort -V | tail -1)"
    if [ -z "$version" ]; then
        # Without package lists apt knows no package.
        version="$(newest_headers)"
        [ -n "$version" ] || { apt-get update -qq >&2 && version="$(newest_headers)"; }
        [ -n "$version" ] || return 1
        root="$kept/new"
        rm -rf "$root" "$work/headers"
        mkdir -p "$root" "$work/headers"
        (cd "$work/headers" && apt-get -o APT::Sandbox::User=root download -qq "linux-image-$version-cloud-amd64-unsigned" \
            "linux-headers-$version-cloud-amd64" "linux-headers-$version-common" "linux-kbuild-$version" >&2) || return 1
        for part in "$work"/headers/*.deb; do
            dpkg-deb -x "$part" "$root" || return 1
        done
        # The headers refer to each other by their installed paths.
        echo "include $kept/$version/usr/src/linux-headers-$version-common/Makefile" \
            >"$root/usr/src/linux-headers-$version-cloud-amd64/Makefile"
        # Without vmlinux, modules get no BTF types, which would need pahole; no check uses them.
        rm -rf "$root/lib/modules" "$root/usr/src/linux-headers-$version-cloud-amd64/vmlinux"
        mv "$root" "$kept/$version"
    fi
    echo "$version"
}

newest_headers() {
    apt-cache pkgnames linux-headers-6.12. | sed -n 's/^linux-headers-\(6\.12.*\)-cloud-amd64$/\1/p' | sort -V | tail -1
}

# build_modules HEADERS BUILD: builds the modules of BUILD/Kbuild for the kernel of HEADERS, a
# DIRECTORY/VERSION as above. Stops the script if that fails or has warnings.
build_modules() {
    local tree
    tree="$(echo "$1"/usr/src/linux-headers-*-cloud-amd64)"
    make -C "$tree" M="$2" modules >"$work/make" 2>&1 || { cat "$work/make" >&2; fail "the modules do not build"; }
    if grep -iE 'warning|undefined' "$work/make" | grep -v 'the compiler differs'; then
        cat "$work/make" >&2
        fail "the modules build with warnings"
    fi
}
