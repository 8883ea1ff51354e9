#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A checkout of one file, with a Bazel of a few lines: the test passes while the file says wait."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mutation_check  # noqa: E402

FAKE_BAZEL = """#!/bin/bash
grep -q syntax code.txt && { echo 'does not compile'; exit 1; }
[[ $1 == test ]] || exit 0
mkdir -p bazel-testlogs/p/a_test
if grep -q wait code.txt; then
  echo '//p:a_test   PASSED in 0.1s'
  exit 0
fi
echo '<testsuite><testcase name="Good"/><testcase name="Order"><failure/></testcase></testsuite>' \\
  > bazel-testlogs/p/a_test/test.xml
echo '//p:a_test   FAILED in 0.1s'
exit 3
"""

PATCH = """Removes: {removes}
Tests: //p:a_test

--- a/code.txt
+++ b/code.txt
@@ -1,2 +1,{count} @@
-{old}
{new} last line
"""


class MutationCheckTest(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        base = pathlib.Path(temporary.name)
        self.root = base / "root"
        self.patches = base / "patches"
        self.patches.mkdir()
        (self.root / "tools").mkdir(parents=True)
        bazel = self.root / "tools" / "bazel"
        bazel.write_text(FAKE_BAZEL)
        bazel.chmod(0o755)
        (self.root / "code.txt").write_text("wait\nlast line\n")
        self.commit()
        self.folder = base / "copy"

    def commit(self):
        for command in (["init", "-q"], ["add", "-A"],
                        ["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "t"]):
            subprocess.run(["git"] + command, cwd=str(self.root), check=True)

    def add_patch(self, name, new, old="wait"):
        new = "+%s\n" % new if new else ""
        text = PATCH.format(removes="the " + name, old=old, new=new, count=2 if new else 1)
        (self.patches / (name + ".patch")).write_text(text)

    def check(self):
        tree = mutation_check.Tree(self.folder, [], self.root)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            passed = mutation_check.check(tree, mutation_check.read_patches(self.patches, []))
        tree.lock.close()
        return passed, output.getvalue()

    def test_two_runs_at_once_are_refused(self):
        tree = mutation_check.Tree(self.folder, [], self.root)
        with self.assertRaises(SystemExit):
            mutation_check.Tree(self.folder, [], self.root)
        tree.lock.close()

    def test_a_patch_that_a_test_notices_is_good_and_the_test_is_named(self):
        self.add_patch("wait", "")
        passed, output = self.check()
        self.assertTrue(passed, output)
        self.assertIn("killed         wait: the wait", output)
        self.assertIn("//p:a_test: Order\n", output)
        self.assertIn("1 of 1 patches noticed", output)

    def test_a_survivor_is_an_error(self):
        self.add_patch("comment", "wait  # longer")
        self.add_patch("wait", "")
        passed, output = self.check()
        self.assertFalse(passed)
        self.assertIn("SURVIVED       comment", output)
        self.assertIn("1 of 2 patches noticed", output)

    def test_what_does_not_compile_does_not_count_as_noticed(self):
        self.add_patch("syntax", "syntax wait")
        passed, output = self.check()
        self.assertFalse(passed)
        self.assertIn("does not build syntax", output)

    def test_a_patch_for_other_code_is_an_error(self):
        self.add_patch("old", "", old="await")
        passed, output = self.check()
        self.assertFalse(passed)
        self.assertIn("does not apply old", output)

    def test_a_test_that_fails_anyway_is_found_before_the_patches(self):
        self.add_patch("wait", "")
        (self.root / "code.txt").write_text("nothing\nlast line\n")
        self.commit()
        passed, output = self.check()
        self.assertFalse(passed)
        self.assertIn("these fail already: //p:a_test", output)

    def test_the_copy_follows_the_checkout(self):
        self.add_patch("wait", "")
        self.assertTrue(self.check()[0])
        (self.root / "code.txt").write_text("wait\nlast line\nmore\n")
        self.commit()
        self.assertTrue(self.check()[0])
        self.assertEqual((self.folder / "code.txt").read_text(), "wait\nlast line\nmore\n")

    def test_unknown_names_and_missing_headers_are_refused(self):
        self.add_patch("wait", "")
        with self.assertRaises(SystemExit):
            mutation_check.read_patches(self.patches, ["other"])
        (self.patches / "bare.patch").write_text("--- a/x\n")
        with self.assertRaises(SystemExit):
            mutation_check.read_patches(self.patches, [])


if __name__ == "__main__":
    unittest.main()
