#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes compile_commands.json at the root, for clangd and other tools.

usage: tools/lint/compile_commands.py [TARGET...]   (default: //...)

It asks Bazel for the commands and compiles nothing. For LibTorch's headers to
be where the commands say, the targets must have been built once.
"""

import json
import os
import pathlib
import subprocess
import sys

GCC_ONLY = {"-fno-canonical-system-headers", "-Wno-free-nonheap-object"}


def bazel(root, *arguments):
    return subprocess.run(
        [str(root / "tools" / "bazel")] + list(arguments),
        cwd=str(root), check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ).stdout.decode()


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    query = 'mnemonic("CppCompile", %s)' % " + ".join(sys.argv[1:] or ["//..."])
    actions = bazel(root, "aquery", query, "--output=jsonproto", "--include_artifacts=false")
    directory = bazel(root, "info", "execution_root").strip()
    entries = {}
    for action in json.loads(actions).get("actions", []):
        arguments = [a for a in action["arguments"] if a not in GCC_ONLY]
        source = arguments[arguments.index("-c") + 1]
        entries.setdefault(source, {
            "arguments": arguments,
            "directory": directory,
            "file": source,
        })
    path = root / "compile_commands.json"
    path.write_text(json.dumps([entries[source] for source in sorted(entries)], indent=1) + "\n")
    print("%s: %d files" % (os.path.relpath(str(path)), len(entries)))


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.decode())
