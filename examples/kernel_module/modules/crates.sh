#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The steps of Kbuild for the modules in which lowwater's crates are Rust inside a Rust module.
#
# crates.sh crates OBJ MANIFEST_FOLDER FLAG...: compiles rustc's own `alloc`, which the kernel does not have, against the kernel's
#   `core`, and with both the crates, unchanged, by cargo; to OBJ/libs. Called in the folder of the kernel's build.
# crates.sh link OBJ NAME: links what NAME.o needs of them to OBJ/NAME_libs.o, and defines in OBJ/NAME_symbols.c the two symbols of
#   the allocator that rustc defines only in programs. Their names contain a hash of the compiler.
set -e
obj="$2"
case $1 in
crates)
    manifest=$3
    shift 3
    build=$PWD
    # With other flags or sources cargo gives a library another name, so an old one would stay.
    rm -rf "$obj/libs" "$obj/target" && mkdir -p "$obj/libs"
    export RUSTC_BOOTSTRAP=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_TARGET_DIR="$obj/target"
    flags="$* -Zunstable-options -L $build/rust --sysroot=/dev/null"
    library="$("$RUSTC" --print sysroot)/lib/rustlib/src/rust/library"
    "$RUSTC" --edition=2024 --cap-lints allow $flags --target="$build/scripts/target.json" --crate-type rlib --crate-name alloc \
        --out-dir "$obj/libs" --emit=link "$library/alloc/src/lib.rs"
    # With the library compiled here, an Arc can report that there is no memory.
    RUSTFLAGS="$flags -L $obj/libs --cap-lints warn --cfg=lowwater_try_arc" \
        cargo build --manifest-path "$manifest/Cargo.toml" --locked --quiet --release --target "$build/scripts/target.json" \
        -Zjson-target-spec -p lowwater-shrinker -p lowwater-lru-core
    cp "$obj"/target/target/release/deps/*.rlib "$obj"/target/release/deps/libthiserror_impl*.so "$obj/libs/"
    for name in lowwater_base lowwater_lru_core lowwater_shrinker lock_api; do
        ln -sf "$(basename "$obj"/libs/lib$name-*.rlib)" "$obj/libs/lib$name.rlib"
    done
    touch "$obj/libs/done"
    ;;
link)
    name=$3
    members="$obj/$name-members"
    rm -rf "$members" "$members.a" && mkdir "$members"
    for library in "$obj"/libs/*.rlib; do
        [ -L "$library" ] || (cd "$members" && ar x "$library" && rm -f ./*.rmeta)
    done
    ar rcs "$members.a" "$members"/*.o
    roots="$(nm -u "$obj/$name.o" | sed 's/^ *U /-u /')"
    ld -r --gc-sections -o "$obj/${name}_libs.o" $roots "$members.a"
    : >"$obj/.${name}_libs.o.cmd"
    {
        echo '// SPDX-License-Identifier: GPL-2.0'
        echo '#include <linux/bug.h>'
        nm -u "$obj/${name}_libs.o" "$obj/$name.o" | sed -n 's/^ *U //p' | sort -u | while read -r symbol; do
            case $symbol in
            *__rust_alloc_error_handler) echo "void __noreturn no_memory(void) asm(\"$symbol\"); void __noreturn no_memory(void) { BUG(); }" ;;
            *__rust_no_alloc_shim_is_unstable_v2) echo "void nothing(void) asm(\"$symbol\"); void nothing(void) { }" ;;
            esac
        done
    } >"$obj/${name}_symbols.c"
    ;;
esac
