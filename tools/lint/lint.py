#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the files below the current folder: lint.py RULE

As a test the current folder is its runfiles: the `sources` of every package.
At the root of a checkout it checks the checkout.
"""

import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rules  # noqa: E402

TEXT = (".h", ".cc", ".cu", ".bazel", ".bzl", ".py", ".sh", ".md")


def read_tree(root):
    tree = {}
    for folder, subfolders, names in os.walk(str(root), followlinks=True):
        subfolders[:] = [s for s in subfolders if not s.startswith((".", "bazel-", "external"))]
        for name in names:
            if name.endswith(TEXT):
                path = pathlib.Path(folder, name)
                tree[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    return tree


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in rules.RULES:
        sys.exit("usage: lint.py " + "|".join(sorted(rules.RULES)))
    if not pathlib.Path("tools", "lint").is_dir():
        sys.exit("run it at the root of a checkout: the rules go by paths from there")
    tree = read_tree(pathlib.Path("."))
    if not any(rules.is_cpp(path) for path in tree):
        sys.exit("no C++ file to check here: the test has lost its data")
    errors = rules.RULES[sys.argv[1]](tree)
    print("\n".join(errors))
    print("%s: %d files, %d errors" % (sys.argv[1], len(tree), len(errors)))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
