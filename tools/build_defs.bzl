# SPDX-License-Identifier: Apache-2.0
"""lockstep_library and lockstep_test: one header, one target, one test."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

# Warnings for this project's files; .bazelrc makes them errors in this
# workspace, and only here: a user's newer compiler must not break a build.
COPTS = [
    "-Wall",
    "-Wextra",
]

# Known to clang only (--config=clang): a file may include only headers of its
# direct deps. gcc's toolchain ignores it.
FEATURES = ["layering_check"]

def lockstep_library(name, srcs = None, hdrs = None, deps = [], copts = [], features = [], **kwargs):
    """A library of one header and its .cc file.

    Args:
      name: also the stem of the files that srcs and hdrs stand for.
      srcs: [name.cc] if not given.
      hdrs: [name.h] if not given.
      deps: what its files include, directly.
      copts: beyond COPTS.
      features: beyond FEATURES.
      **kwargs: of cc_library.
    """
    cc_library(
        name = name,
        srcs = [name + ".cc"] if srcs == None else srcs,
        hdrs = [name + ".h"] if hdrs == None else hdrs,
        copts = COPTS + copts,
        features = FEATURES + features,
        deps = deps,
        **kwargs
    )

def lockstep_test(
        name,
        srcs = None,
        deps = [],
        copts = [],
        features = [],
        size = "small",
        precompiled = True,
        **kwargs):
    """A GoogleTest program; main() comes with it.

    Args:
      name: also the stem of the file that srcs stands for.
      srcs: [name.cc] if not given.
      deps: what its files include; @com_google_googletest//:gtest_main is added.
      copts: beyond COPTS.
      features: beyond FEATURES.
      size: small by default: one minute.
      precompiled: whether to parse LibTorch's headers from //tools/pch.
      **kwargs: of cc_test.
    """
    main = "@com_google_googletest//:gtest_main"
    header = "//tools/pch:for_tests"
    use_header = select({
        "//tools/pch:off": [],
        "//conditions:default": ["-include $(BINDIR)/tools/pch/for_tests.h"],
    })
    need_header = select({
        "//tools/pch:off": [],
        "//conditions:default": [header],
    })
    cc_test(
        name = name,
        size = size,
        srcs = [name + ".cc"] if srcs == None else srcs,
        copts = COPTS + copts + (use_header if precompiled else []),
        features = FEATURES + features,
        deps = deps + ([] if main in deps else [main]) + (need_header if precompiled else []),
        **kwargs
    )
