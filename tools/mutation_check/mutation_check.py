#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Removes one wait, guard, version bump or ordering at a time, and says which test notices.

  tools/mutation_check/mutation_check.py            all patches; minutes to an hour
  tools/mutation_check/mutation_check.py NAME...    some of them
  tools/mutation_check/mutation_check.py --list

Works on a copy of HEAD below the user's cache, never on the checkout. A patch that no test notices
(a survivor), one that does not apply or does not compile, and a test that fails without any patch
are errors: the exit code is 1.
"""

import argparse
import fcntl
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHOWN = 3  # names of failed tests per patch


class Patch:
    """A unified diff below two header lines:

    Removes: what the patch takes away, in a few words
    Tests: //comm:scatter_test //comm:gather_test
    """

    def __init__(self, path):
        self.path = path
        self.name = path.stem
        header = path.read_text(encoding="utf-8").split("\n--- ", 1)[0]
        self.removes = self._field(header, "Removes")
        self.tests = self._field(header, "Tests").split()

    def _field(self, header, name):
        found = re.search("^%s: (.+)$" % name, header, re.MULTILINE)
        if found is None:
            sys.exit("%s: expected a line '%s: ...' above the diff" % (self.path, name))
        return found.group(1).strip()


class Tree:
    """A copy of HEAD with a Bazel of its own."""

    def __init__(self, folder, bazel_flags, root=ROOT):
        self.folder = folder
        self.flags = bazel_flags
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Two runs in one tree would take each other's patches away. Held until this one ends.
        self.lock = open(str(folder) + ".lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit("another run is using %s" % folder)
        if not (folder / ".git").is_dir():
            self._git("clone", "-q", "--no-checkout", str(root), str(folder), cwd=root)
        head = self._git("rev-parse", "HEAD", cwd=root).strip()
        self._git("fetch", "-q", str(root), "HEAD")
        self._git("checkout", "-q", "--force", "--detach", head)

    def _git(self, *arguments, cwd=None):
        return subprocess.run(("git",) + arguments, cwd=str(cwd or self.folder), check=True,
                              stdout=subprocess.PIPE, universal_newlines=True).stdout

    def apply(self, patch):
        done = subprocess.run(["git", "apply", str(patch.path)], cwd=str(self.folder),
                              stderr=subprocess.PIPE, universal_newlines=True)
        return done.stderr.strip() if done.returncode else None

    def restore(self):
        self._git("checkout", "-q", "--force", ".")

    def bazel(self, command, targets, *flags):
        done = subprocess.run(["./tools/bazel", command] + self.flags + list(flags) + targets,
                              cwd=str(self.folder), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True)
        return done.returncode, done.stdout

    def failed_tests(self, target):
        """The names of the failed cases of a test that has run; its label if it left none."""
        package, name = target[2:].split(":")
        names = []
        for report in sorted((self.folder / "bazel-testlogs" / package / name).glob("**/test.xml")):
            for case in xml.etree.ElementTree.parse(str(report)).iter("testcase"):
                if case.find("failure") is not None or case.find("error") is not None:
                    names.append(case.get("name"))
        return names or ["(the whole program)"]


def failures(tree, targets):
    """Runs tests; a list of (target, names of failed cases), and the output of Bazel."""
    code, output = tree.bazel("test", targets, "--keep_going", "--test_output=errors")
    failed = re.findall(r"^(//\S+)\s+(?:\([^)]*\) )?(?:FAILED|TIMEOUT)", output, re.MULTILINE)
    if code and not failed:
        raise RuntimeError(output[-3000:])
    return [(target, tree.failed_tests(target)) for target in failed], output


def judge(tree, patch):
    """(verdict, detail): 'killed' is the good one."""
    problem = tree.apply(patch)
    if problem:
        return "does not apply", problem
    try:
        code, output = tree.bazel("build", patch.tests)
        if code:
            return "does not build", output[-2000:]
        failed, _ = failures(tree, patch.tests)
    finally:
        tree.restore()
    if not failed:
        return "SURVIVED", ""
    lines = []
    for target, names in failed:
        more = " and %d more" % (len(names) - SHOWN) if len(names) > SHOWN else ""
        lines.append("%s: %s%s" % (target, ", ".join(names[:SHOWN]), more))
    return "killed", "\n".join(lines)


def read_patches(folder, names):
    patches = [Patch(path) for path in sorted(folder.glob("*.patch"))]
    known = {patch.name for patch in patches}
    unknown = sorted(set(names) - known)
    if unknown:
        sys.exit("no such patch: %s; --list shows them" % ", ".join(unknown))
    return [patch for patch in patches if not names or patch.name in names]


def check(tree, patches):
    targets = sorted({target for patch in patches for target in patch.tests})
    print("without a patch: %d tests" % len(targets), flush=True)
    failed, output = failures(tree, targets)
    if failed:
        print(output[-3000:])
        print("these fail already: %s" % ", ".join(target for target, _ in failed))
        return False
    counts = {}
    for patch in patches:
        verdict, detail = judge(tree, patch)
        counts[verdict] = counts.get(verdict, 0) + 1
        print("%-14s %s: %s" % (verdict, patch.name, patch.removes))
        for line in detail.splitlines():
            print("    " + line)
        sys.stdout.flush()
    killed = counts.get("killed", 0)
    print("%d of %d patches noticed" % (killed, len(patches)))
    return killed == len(patches)


def cache_folder():
    if os.environ.get("LOCKSTEP_CACHE"):
        return pathlib.Path(os.environ["LOCKSTEP_CACHE"])
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(cache, "lockstep")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of patches; all if none is given")
    parser.add_argument("--list", action="store_true", help="show the patches and stop")
    parser.add_argument("--bazel_flag", action="append", default=[], metavar="FLAG",
                        help="passed on to every Bazel command, such as --config=asan")
    options = parser.parse_args()
    patches = read_patches(HERE / "patches", options.names)
    if options.list:
        for patch in patches:
            print("%s: %s" % (patch.name, patch.removes))
        return
    tree = Tree(cache_folder() / "mutation_check", options.bazel_flag)
    sys.exit(0 if check(tree, patches) else 1)


if __name__ == "__main__":
    main()
