#!/usr/bin/env python3
"""Builds the server's Debian package as `cargo deb` would, from [package.metadata.deb] in its Cargo.toml.

    deb.py MADE FOLDER

MADE is the folder of the generated files (target/package in the assets), FOLDER that of the package.
Prints the package's path.
"""

import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

CRATE = "crates/server"


def main(made, folder):
    with open(os.path.join(CRATE, "Cargo.toml"), "rb") as file:
        crate = tomllib.load(file)
    with open("Cargo.toml", "rb") as file:
        workspace = tomllib.load(file)["workspace"]["package"]
    deb = crate["package"]["metadata"]["deb"]
    architecture = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        for source, target, mode in deb["assets"]:
            # As cargo-deb: target/ is the build's folder, other paths begin at the crate.
            if source.startswith("target/package/"):
                source = os.path.join(made, os.path.basename(source))
            elif source.startswith("target/"):
                source = os.path.join(os.path.dirname(made), source[len("target/"):])
            else:
                source = os.path.join(CRATE, source)
            target = os.path.join(root, target, os.path.basename(source) if target.endswith("/") else "")
            target = target.rstrip("/")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if re.search(r"/man/man\d/", target):
                with open(source, "rb") as page, gzip.GzipFile(target + ".gz", "wb", mtime=0) as packed:
                    shutil.copyfileobj(page, packed)
                target += ".gz"
            else:
                shutil.copyfile(source, target)
            os.chmod(target, int(mode, 8))
        os.makedirs(os.path.join(root, "DEBIAN"))
        with open(os.path.join(root, "DEBIAN", "control"), "w") as control:
            control.write("Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: %s <noreply@invalid>\nDepends: %s\nSection: %s\n"
                          "Priority: %s\nDescription: %s\n %s\n" % (
                              deb["name"], workspace["version"], architecture, deb["maintainer"], deb["depends"], deb["section"],
                              deb["priority"], crate["package"]["description"], deb["extended-description"]))
        with open(os.path.join(root, "DEBIAN", "conffiles"), "w") as conffiles:
            conffiles.write("".join(path + "\n" for path in deb["conf-files"]))
        package = os.path.join(folder, "%s_%s_%s.deb" % (deb["name"], workspace["version"], architecture))
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, package], check=True, stdout=subprocess.DEVNULL)
        print(package)


if __name__ == "__main__":
    main(*sys.argv[1:])
