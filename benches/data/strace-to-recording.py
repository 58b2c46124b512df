#!/usr/bin/env python3
"""Converts the output of `strace -f -y -e trace=%file` to a recording for crates/dcache-model/src/replay.rs.

Reads standard input, writes standard output. Relative paths are made absolute with the directory that strace prints
with AT_FDCWD, or else with the process's working directory; `.` and `..` are resolved. A failed lookup is kept also
if its directory does not exist: the cache answers it from the negative of the missing directory.
"""
import os, re, sys

line_re = re.compile(r'^(\d+) +(\w+)\((.*)$')
quoted = re.compile(r'"((?:[^"\\]|\\.)*)"')
cwd_re = re.compile(r'AT_FDCWD<([^>]*)>|\b\d+<([^>]*)>')
cwd, pending = {}, {}
default = sys.argv[1] if len(sys.argv) > 1 else '/'

def absolute(pid, base, path):
    return os.path.normpath(os.path.join(base or cwd.get(pid, default), path))

def out(op, path, last):
    esc = lambda s: s.replace('\\', '\\\\').replace('\t', '\\t').replace('\n', '\\n')
    if path != '/':
        print(f'{op}\t{esc(path)}\t{esc(last)}')

made = set()
for raw in sys.stdin:
    raw = raw.rstrip('\n')
    m = re.match(r'^(\d+) +(.*)$', raw)
    if not m: continue
    pid, rest = m.group(1), m.group(2)
    if rest.endswith('<unfinished ...>'):
        pending[pid] = rest[:-len('<unfinished ...>')]
        continue
    r = re.match(r'^<\.\.\. \w+ resumed>(.*)$', rest)
    if r:
        rest = pending.pop(pid, '') + r.group(1)
    m = re.match(r'^(\w+)\((.*)\)\s+= (-?\d+|\?)(.*)$', rest)
    if not m: continue
    call, args, ret, tail = m.groups()
    if ret == '?': continue
    ok = not ret.startswith('-')
    if not ok and 'ENOENT' not in tail and 'EEXIST' not in tail and 'ENOTDIR' not in tail: continue
    if 'ENOTDIR' in tail: continue
    names = [s for s in quoted.findall(args)]
    if not names or (names[0] == '' ): continue
    at = cwd_re.search(args) if call.endswith('at') or call in ('newfstatat', 'openat', 'faccessat2', 'readlinkat', 'unlinkat', 'renameat', 'renameat2', 'statx', 'mkdirat', 'linkat') else None
    base = (at.group(1) or at.group(2)) if at and args.find('<') < args.find('"') else None
    path = absolute(pid, base, names[0])
    if call == 'chdir' and ok: cwd[pid] = path
    exists = '1' if ok or 'EEXIST' in tail else '0'
    if call.startswith('unlink') or call == 'rmdir':
        out('l', path, exists)
        if ok and call != 'rmdir': out('u', path, '1')
    elif call.startswith('rename') and ok:
        two = absolute(pid, base, names[1])
        out('m', path, two)
    elif call.startswith('open') and 'O_CREAT' in args and ok:
        if 'O_EXCL' in args or path not in made:
            out('c', path, '0')
        made.add(path)
    else:
        out('l', path, exists)
