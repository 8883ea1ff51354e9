#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the test cases of the last `bazel test //...`.

usage: count_tests.py WORKSPACE...

Prints what failed and what was skipped, then `N passed, N failed, N skipped`.
A test that writes no cases of its own, such as a shell script, is one case; a
test without any result has failed, unless it is tagged as one that this machine
may be unable to run. Exits with 1 if anything failed or nothing passed.
"""

import collections
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

BAZEL = str(pathlib.Path(__file__).resolve().parent / "bazel")

# The tag of tests that Bazel leaves out of //... where something is missing.
OPTIONAL = "needs-cuda-libraries"


def bazel(workspace, *arguments):
    return subprocess.run(
        [BAZEL] + list(arguments), cwd=str(workspace), check=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ).stdout.decode().split("\n")


def tests_of(workspace):
    """The labels of `bazel test //...`, and of them those that may be left out."""
    every = bazel(workspace, "query", 'tests(//...) except attr(tags, "\\bmanual\\b", //...)')
    optional = bazel(workspace, "query", 'attr(tags, "\\b%s\\b", tests(//...))' % OPTIONAL)
    return [label for label in every if label], set(optional)


def outcome(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("result") == "skipped":
        return "skipped"
    if case.get("status") == "notrun":
        return "skipped"
    return "passed"


def cases_of(result):
    """(name, outcome) of each case in a test.xml."""
    root = xml.etree.ElementTree.parse(str(result)).getroot()
    cases = list(root.iter("testcase"))
    for case in cases:
        name = ".".join(part for part in (case.get("classname"), case.get("name")) if part)
        yield name, outcome(case)
    if not cases:
        broken = any(root.iter("failure")) or any(root.iter("error"))
        yield "", "failed" if broken else "passed"


def main():
    counts = collections.Counter(passed=0, failed=0, skipped=0)
    for workspace in [pathlib.Path(argument) for argument in sys.argv[1:]]:
        labels, optional = tests_of(workspace)
        for label in labels:
            result = workspace / "bazel-testlogs" / label.replace(":", "/").lstrip("/") / "test.xml"
            if result.exists():
                cases = list(cases_of(result))
            else:
                cases = [("(no result)", "skipped" if label in optional else "failed")]
            for name, how in cases:
                counts[how] += 1
                if how != "passed":
                    print("%s: %s %s" % (how, label, name))
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts)
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
