# pymemcache: all its tests but those of TLS, which are skipped, each with and without gevent.
. "$suites/python.sh"

prepare_suite() { prepare_sdist pymemcache 4.0.0 pytest==8.3.5 Faker==37.1.0 gevent==25.4.2 zstd==1.5.6.7; }

run_suite() {
    run_pytest "$3" pymemcache/test -m 'unit or integration' --server "$1" --port "$2"
}
