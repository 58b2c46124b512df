#!/usr/bin/env bash
# Makes the keys and certificates of the tests of TLS anew, valid for a hundred years: an authority,
# two servers (localhost), and a client. The keys protect nothing.
set -euo pipefail
cd "$(dirname "$0")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$work/authority.key" -out authority.pem \
    -days 36500 -subj "/CN=authority of tests" -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
for name in server other client; do
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$name.key" -out "$work/$name.csr" -subj "/CN=$name"
    openssl x509 -req -in "$work/$name.csr" -CA authority.pem -CAkey "$work/authority.key" -CAcreateserial -CAserial "$work/serial" -out "$name.pem" \
        -days 36500 -extfile <(printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n')
done
