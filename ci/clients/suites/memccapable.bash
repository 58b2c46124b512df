# memccapable of libmemcached-tools: the tests of the text and of the binary protocol.
prepare_suite() { need memccapable libmemcached-tools; }

run_suite() {
    # A failed test makes the exit status 1, and its result goes to stderr.
    memccapable -h "$1" -p "$2" -t 10 >"$scratch/memccapable" 2>&1 || true
    sed -n 's/^\(\(ascii\|binary\) .*[^ ]\) *\[pass\]$/pass \1/p; s/^\(\(ascii\|binary\) .*[^ ]\) *\[FAIL\]$/fail \1/p' \
        "$scratch/memccapable" >"$3"
}
