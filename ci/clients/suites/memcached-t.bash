# memcached's own tests, t/*.t of its release, with the text and the binary protocol. A test is named
# by its file and its text, with numbers as N; tests of one name pass if all of them do. A file that
# ends early, without a failed test, counts as one that failed.
# Left out are the tests of what this server does not have: the proxy, values on disk or kept by -e, UDP,
# memcached's slab classes and LRU threads, and its TLS options. watcher.t waits for an eviction by a single store,
# and for a read as part of a store: here memory is freed ahead, and a store is one event. Five files
# test nothing without memcached's debug build.
prepare_suite() {
    packages perl libio-socket-ssl-perl gcc
    local source
    source="$(dirname "$(ci/memcached-source.sh)")"
    rm -rf "$sources/t"
    cp -r "$source/t" "$sources/t"
    gcc -O1 -o "$sources/timedrun" "$source/timedrun.c"
}

run_suite() {
    local out="$3" folder file name code
    folder="$(mktemp -d "$scratch/memcached-t.XXXXXX")"
    cp -r "$sources/t" "$sources/timedrun" "$folder"
    # The tests start this program. Two of their flags are not for all servers: UDP's port, and an
    # option of the debug build.
    cat >"$folder/memcached-debug" <<WRAPPER
#!/usr/bin/env bash
given=("\$@") flags=()
while [ "\${#given[@]}" -gt 0 ]; do
    case "\${given[*]:0:2}" in
        "-U "* | "-o relaxed_privileges") given=("\${given[@]:2}") ;;
        *) flags+=("\${given[0]}") given=("\${given[@]:1}") ;;
    esac
done
exec "$program" "\${flags[@]}"
WRAPPER
    chmod +x "$folder/memcached-debug"
    for file in "$folder"/t/*.t; do
        name="${file##*/}"
        case "$name" in
            proxy* | *extstore* | restart.t | ssl_* | udp.t | *slab* | lru* | maxconns.t | dash-M.t | chunked-* | watcher.t) continue ;;
            misbehave.t | issue_140.t | issue_260.t | refhang.t | whitespace.t) continue ;;
        esac
        code=0
        (cd "$folder" && timeout 60 perl "t/$name") >"$folder/tests" || code=$?
        tests_of "$name" "$code" <"$folder/tests" >>"$out"
    done
}

# tests_of FILE CODE: turns the output of a test file, which ended with this code, into results.
tests_of() {
    tr -cd '[:print:]\n' | awk -v file="$1" -v code="$2" '
        /^(not )?ok [0-9]+/ && !/# (skip|TODO)/ {
            result = /^not/ ? "fail" : "pass"
            failed += /^not/
            sub(/^(not )?ok [0-9]+( - )?/, "")
            gsub(/[0-9]+/, "N")
            name = file ": " $0
            sub(/ +$/, "", name)
            print result " " name
        }
        END { print (code == 0 || failed ? "pass " : "fail ") file ": end" }'
}
