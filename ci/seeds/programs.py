"""The loads of the reports on lowwater: a command each, and a function that makes figures of its output.
Times are those of docs/MEASURED.md, which is measured on a quiet machine."""
import json

EXAMPLE = "cargo run --release --quiet --example"


def one(output):
    """Returns the JSON object of the last line."""
    return json.loads(output.splitlines()[-1])


PROGRAMS = {
    "lists": (f"{EXAMPLE} containers -- --memcgs 10000 --mounts 10000 --nodes 2 --json", one),
    "containers": (f"{EXAMPLE} containers -- --memcgs 1000 --mounts 7000 --mounts-per-memcg 7 --nodes 2 --json", one),
    "containers-10000": (f"{EXAMPLE} containers -- --memcgs 10000 --mounts 70000 --mounts-per-memcg 7 --nodes 2 --json", one),
    "flood": (f"{EXAMPLE} negative_flood -- --memory 4G --seconds 10 --policy default --json", one),
    "flood-three": (f"{EXAMPLE} negative_flood -- --memory 512M --seconds 10 --policy three-in-a-row --json", one),
    "flood-unbounded": (f"{EXAMPLE} negative_flood -- --memory 4G --seconds 60 --policy unbounded --negatives-max 1000000 --json", one),
    "deferred": (f"{EXAMPLE} deferred_tail -- --time cpu --seconds 1 --json", one),
    "deferred-none": (f"{EXAMPLE} deferred_tail -- --time cpu --seconds 1 --debt 0 --json", one),
}
