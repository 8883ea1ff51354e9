#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule finds what was planted for it, and passes what is right."""

import contextlib
import io
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rules  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


def check(rule, tree):
    with contextlib.redirect_stdout(io.StringIO()):
        return rules.RULES[rule](tree)


class RulesTest(unittest.TestCase):

    def assert_refused(self, rule, path, text, words, **others):
        errors = check(rule, dict(others, **{path: text}))
        self.assertTrue(any(words in error for error in errors), errors)

    def assert_passed(self, rule, tree):
        self.assertEqual(check(rule, tree), [])

    def test_layering_refuses_a_higher_layer(self):
        self.assert_refused("layering", "comm/a.cc", '#include "replicate/b.h"\n', "comm/a.cc:1")
        self.assert_refused("layering", "comm/a_test.cc", '#include "parallel/b.h"\n', "comm/")
        self.assert_refused("layering", "replicate/a.h", '#include "parallel/b.h"\n', "parallel/b.h")
        self.assert_passed("layering", {"parallel/a.cc": '#include "comm/b.h"\n#include "absl/c.h"\n'})

    def test_layering_refuses_testing_in_the_product(self):
        self.assert_refused("layering", "comm/a.cc", '#include "testing/m.h"\n', "testing/m.h")
        self.assert_refused("layering", "examples/a.cc", '#include "testing/m.h"\n', "testing/m.h")
        for path in ("comm/a_test.cc", "comm/a_fixture.h", "testing/a.cc"):
            self.assert_passed("layering", {path: '#include "testing/m.h"\n'})

    def test_layering_refuses_the_umbrella(self):
        self.assert_refused("layering", "parallel/a.cc", '#include "lockstep.h"\n', "for users")
        self.assert_refused("layering", "tools/a.cc", '#include "lockstep.h"\n', "for users")
        self.assert_passed("layering", {"examples/a.cc": '#include "lockstep.h"\n'})

    def test_layering_refuses_short_and_angled_names(self):
        self.assert_refused("layering", "comm/a.cc", '#include "b.h"\n', "from the root")
        self.assert_refused("layering", "comm/a.cc", "#include <comm/b.h>\n", "quote",
                            **{"comm/b.h": ""})

    def test_libtorch_includes_refuses_what_a_layer_does_not_know(self):
        for path, name in [
            ("comm/a.cc", "torch/csrc/autograd/function.h"),
            ("comm/a.h", "torch/nn/module.h"),
            ("autograd_fns/a.cc", "torch/nn.h"),
            ("replicate/a.cc", "thread"),
            ("replicate/a.h", "future"),
            ("replicate/a.cc", "torch/optim.h"),
            ("replicate/a.cc", "torch/nn/modules/conv.h"),
            ("parallel/a.h", "torch/torch.h"),
            ("testing/a.h", "torch/all.h"),
            ("comm/a_test.cc", "torch/torch.h"),
            ("comm/a.cc", "c10/cuda/CUDAStream.h"),
            ("parallel/a.cc", "cuda_runtime.h"),
            ("parallel/a.cc", "nccl.h"),
            ("comm/a.h", "absl/strings/str_cat.h"),
        ]:
            with self.subTest(path=path, name=name):
                self.assert_refused("libtorch_includes", path, "#include <%s>\n" % name, path + ":1")

    def test_libtorch_includes_passes_what_a_layer_knows(self):
        self.assert_passed("libtorch_includes", {
            "autograd_fns/a.cc": "#include <torch/csrc/autograd/function.h>\n",
            "comm/a.cc": "#include <ATen/ops/add.h>\n#include <thread>\n#include \"absl/a.h\"\n",
            "comm/a_test.cc": "#include <torch/nn.h>\n",
            "comm/nccl/a.cc": "#include <c10/cuda/CUDAStream.h>\n#include <nccl.h>\n",
            "examples/a.cc": "#include <torch/torch.h>\n",
            "replicate/a.h": "#include <torch/nn/module.h>\n",
        })

    def test_user_macros_refuses_a_condition_on_one(self):
        for line in ("#ifdef USE_CUDA", "#if defined(NDEBUG)", "#  ifndef LOCKSTEP_X", "#elif FOO"):
            self.assert_refused("user_macros", "comm/a.h", "\n%s\n#endif\n" % line, "comm/a.h:2")
        self.assert_passed("user_macros", {
            "comm/a.cc": "#ifdef USE_CUDA\n",
            "comm/b.h": "#if defined(__clang__)  // not GCC\n",
        })

    def test_own_header_refuses_another_first(self):
        right = {"comm/a.h": "#pragma once\n", "comm/a.cc": '#include "comm/a.h"\n'}
        self.assert_passed("own_header", right)
        for text in ('#include <vector>\n#include "comm/a.h"\n', "", "#include <comm/a.h>\n"):
            self.assert_refused("own_header", "comm/a.cc", text, "first include",
                                **{"comm/a.h": "#pragma once\n"})

    def test_own_header_refuses_a_header_without_source(self):
        self.assert_refused("own_header", "comm/a.h", "#pragma once\n", "no a.cc")
        self.assert_refused("own_header", "comm/a.h", "", "pragma", **{"comm/a.cc": ""})

    def test_first_lines_refuses_a_file_without_licence(self):
        for path in ("comm/a.h", "tools/a.py", "tools/a.bzl", "comm/BUILD.bazel"):
            self.assert_refused("first_lines", path, "\n", path + ":1")
        self.assert_passed("first_lines", {
            "comm/a.h": SPDX,
            "tools/a.py": "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n",
        })

    def test_first_lines_refuses_an_open_build_file(self):
        text = "# SPDX-License-Identifier: Apache-2.0\n"
        self.assert_refused("first_lines", "comm/BUILD.bazel", text, "Description")
        self.assert_refused("first_lines", "comm/BUILD.bazel", text, "private")
        self.assert_refused("first_lines", "comm/BUILD.bazel", text, "licenses")

    def test_notes_refuses_loose_ends(self):
        self.assert_refused("notes", "a.cc", "// See Note [Up].\n", "no Note [Up]")
        self.assert_refused("notes", "README.md", "(see Note [Up])\n", "no Note [Up]")
        self.assert_refused("notes", "a.cc", "// Note [Up]\n", "nothing says")
        twice = "// Note [Up]\n\n// Note [Up]\n// See Note [Up]\n"
        self.assert_refused("notes", "a.cc", twice, "is also at")
        self.assert_passed("notes", {"a.cc": "// Note [Up]\n", "b.cc": "// Why: see\n// Note [Up]\n"})

    def test_words_refuses_what_is_left_for_later(self):
        self.assert_refused("words", "comm/a.cc", "\n// TODO: more\n", "comm/a.cc:2")
        self.assert_refused("words", "comm/a_test.cc", "std::this_thread::sleep_for(1s);\n", "sleep")
        self.assert_passed("words", {"comm/a.cc": "// asleep\n"})

    def test_quotes_refuses_code_that_is_not_compiled(self):
        source = {"examples/a.cc": "int x;\n// [readme: one]\nint main() {}\n// [end]\n"}
        inner = {"a_test.cc": "int f() {\n  // [readme: in]\n  g();\n  // [end]\n}\n"}
        self.assert_passed("quotes", dict(inner, **{
            "README.md": "<!-- code: a_test.cc in -->\n```c++\ng();\n```\n"}))
        mark = "<!-- code: examples/a.cc %s -->\n```c++\n%s```\n"
        self.assert_passed("quotes", dict(source, **{"README.md": mark % ("one", "int main() {}\n")}))
        self.assert_refused("quotes", "README.md", mark % ("one", "int main();\n"), "differs", **source)
        self.assert_refused("quotes", "README.md", mark % ("two", "int main() {}\n"), "no part", **source)
        self.assert_refused("quotes", "README.md", "```c++\nint y;\n```\n", "no `<!-- code")

    def test_sizes_refuses_a_long_file(self):
        self.assert_refused("sizes", "comm/a.cc", "\n" * (rules.MAX_LINES + 1), "longer than")
        self.assert_passed("sizes", {"comm/a.cc": "\n" * rules.MAX_LINES})

    def test_suites_refuses_one_that_no_gpu_will_see(self):
        suite = 'lockstep_suite(\n    name = "a_test",\n    deps = [],\n)\n'
        program = {"tools/gpu_check/BUILD.bazel": 'SUITES = [\n    "//comm:a_test_suite",\n]\n'}
        self.assert_refused("suites", "comm/BUILD.bazel", "\n" + suite, "comm/BUILD.bazel:2")
        self.assert_passed("suites", dict(program, **{"comm/BUILD.bazel": suite}))

    def test_every_rule_has_a_test(self):
        tests = " ".join(name for name in dir(self) if name.startswith("test_"))
        for rule in rules.RULES:
            self.assertIn("test_%s_refuses" % rule, tests)


if __name__ == "__main__":
    unittest.main()
