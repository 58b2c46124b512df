# For the suites of Python clients: brings a source distribution, and runs its tests with pytest.
# Sourced by suites.

# prepare_sdist NAME VERSION PACKAGE...: installs the version of the client NAME and the packages in
# $sources/venv, and unpacks the source distribution into $sources/sdist.
prepare_sdist() {
    local pinned="$1==$2" name="$1"
    shift 2
    [ "$(cat "$sources/pinned" 2>/dev/null)" = "$pinned $*" ] && return
    rm -rf "${sources:?}"/*
    python3 -c 'import ensurepip' 2>/dev/null || packages python3-venv
    python3 -m venv "$sources/venv"
    "$sources/venv/bin/pip" install --quiet "$pinned" "$@"
    "$sources/venv/bin/pip" download --quiet --no-deps --no-binary "$name" --dest "$sources" "$pinned"
    mkdir "$sources/sdist"
    tar -xzf "$sources"/*.tar.gz -C "$sources/sdist" --strip-components 1
    echo "$pinned $*" >"$sources/pinned"
}

# run_pytest OUTFILE TESTS ARGUMENT...: runs pytest on a copy of the folder TESTS of the source
# distribution, which the sed script $edit changes first. A failed test is no error.
run_pytest() {
    local out="$1" tests="$2" code=0
    shift 2
    rm -rf "$sources/run"
    mkdir "$sources/run"
    cp -r "$sources/sdist/$tests" "$sources/run/"
    # A source distribution may lack the file that makes the folder a package.
    touch "$sources/run/$(basename "$tests")/__init__.py"
    find "$sources/run" -name '*.py' -exec sed -i "${edit:-}" {} +
    PYTHONPATH="$(pwd)/$suites" LINES="$out" "$sources/venv/bin/python" -m pytest -p pytest_lines \
        -c /dev/null --rootdir "$sources/run" -p no:cacheprovider "$sources/run/$(basename "$tests")" "$@" || code=$?
    [ "$code" -le 1 ]
}
