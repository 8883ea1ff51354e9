#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Downloads the wheels of a lock file once and unpacks their C++ parts.

usage: fetch_wheels.py LOCK CACHE_DIR WHAT

The last line printed is the folder that holds torch/ and nvidia/. A second call
finds the folder and downloads nothing. Needs Python 3.7 and pip; it installs
nothing and touches no site-packages.
"""

import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

# pip compares --platform with a wheel's tags letter by letter: name them all.
PLATFORMS = ["manylinux2014_x86_64"]
PLATFORMS += ["manylinux_2_%d_x86_64" % minor for minor in range(17, 29)]

# What a C++ build has a use for; the rest of the torch wheel is Python.
KEPT = ("torch/include/", "torch/lib/", "torch/share/", "nvidia/")

NO_PIP = """no pip found. On Debian: apt-get install --no-install-recommends python3-pip.
Or set LIBTORCH_ROOT to a LibTorch you already have."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def pip():
    """The command of a pip that works: this Python's own, or the system's."""
    for python in (sys.executable, "/usr/bin/python3"):
        probe = subprocess.run(
            [python, "-m", "pip", "--version"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if probe.returncode == 0:
            return [python, "-m", "pip"]
    sys.exit(NO_PIP)


def download(lock, folder):
    command = pip() + [
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--implementation=cp",
        "--python-version=3.11",
        "--abi=cp311",
        "--abi=abi3",
        "--abi=none",
        "--dest=%s" % folder,
        "--requirement=%s" % lock,
    ]
    command += ["--platform=" + platform for platform in PLATFORMS]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        sys.exit("pip could not download the wheels of %s" % lock)


def unpack(wheel, tree):
    with zipfile.ZipFile(str(wheel)) as archive:
        for member in archive.infolist():
            if not member.is_dir() and member.filename.startswith(KEPT):
                archive.extract(member, str(tree))


def runs(path):
    return ".so" in path.name or "bin" in path.parts


def fetch(lock, destination, what):
    """Makes `destination`, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=str(destination.parent), prefix="tmp-") as tmp:
        wheels, tree = pathlib.Path(tmp, "wheels"), pathlib.Path(tmp, "tree")
        say("downloading %s, once, into %s" % (what, destination))
        download(lock, wheels)
        for wheel in sorted(wheels.iterdir()):
            say("unpacking %s" % wheel.name)
            unpack(wheel, tree)
        for path in tree.rglob("*"):
            if path.is_file():
                path.chmod(0o555 if runs(path) else 0o444)
        os.rename(str(tree), str(destination))


def main():
    lock, cache = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    pins = [line for line in lock.read_text().splitlines() if line and line[0] != "#"]
    digest = hashlib.sha256("\n".join(sorted(pins)).encode()).hexdigest()[:16]
    destination = cache / ("wheels-" + digest)
    cache.mkdir(parents=True, exist_ok=True)
    with open(str(cache / "lock"), "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not destination.is_dir():
            fetch(lock, destination, sys.argv[3])
    print(destination)


if __name__ == "__main__":
    main()
