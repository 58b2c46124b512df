# python-memcached: its tests name the port 11211, and need a module that the source distribution
# lacks.
. "$suites/python.sh"

prepare_suite() {
    prepare_sdist python-memcached 1.62 pytest==8.3.5
    cat >"$sources/sdist/tests/utils.py" <<'END'
import contextlib
import io
import sys


@contextlib.contextmanager
def captured_stderr():
    with contextlib.redirect_stderr(io.StringIO()):
        yield sys.stderr
END
}

run_suite() {
    local edit="s/127\.0\.0\.1:11211/$1:$2/"
    run_pytest "$3" tests
}
