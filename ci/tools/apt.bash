# For the scripts above: Debian packages. Sourced, not run.

# packages NAME...: installs the packages that are missing.
packages() {
    local missing=() name
    for name in "$@"; do
        [ "$(dpkg-query -W -f '${Status}' "$name" 2>/dev/null)" = "install ok installed" ] || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
