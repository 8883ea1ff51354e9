# SPDX-License-Identifier: Apache-2.0
"""lockstep_library, lockstep_test, lockstep_suite: one header, one target, one test."""

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

_MAIN = "@com_google_googletest//:gtest_main"

def _use_precompiled():
    return select({
        "//tools/pch:off": [],
        "//conditions:default": ["-include $(BINDIR)/tools/pch/for_tests.h"],
    })

def _need_precompiled():
    return select({
        "//tools/pch:off": [],
        "//conditions:default": ["//tools/pch:for_tests"],
    })

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
    cc_test(
        name = name,
        size = size,
        srcs = [name + ".cc"] if srcs == None else srcs,
        copts = COPTS + copts + (_use_precompiled() if precompiled else []),
        features = FEATURES + features,
        deps = deps + ([] if _MAIN in deps else [_MAIN]) +
               (_need_precompiled() if precompiled else []),
        **kwargs
    )

def lockstep_test_library(name, srcs, deps = [], copts = [], features = [], **kwargs):
    """Tests that several programs are linked with, whole, and that are compiled once.

    Args:
      name: of the library.
      srcs: the tests.
      deps: what its files include; GoogleTest is added.
      copts: beyond COPTS.
      features: beyond FEATURES.
      **kwargs: of cc_library.
    """
    cc_library(
        name = name,
        testonly = True,
        srcs = srcs,
        copts = COPTS + copts + _use_precompiled(),
        features = FEATURES + features,
        deps = deps + ["@com_google_googletest//:gtest"] + _need_precompiled(),
        alwayslink = True,
        **kwargs
    )

def lockstep_suite(name, srcs = None, deps = [], copts = [], features = [], size = "small", **kwargs):
    """A GoogleTest program whose tests run over the device sets of whatever they are linked with.

    It is a library and two programs: the test `name` with the sets of //testing:device_sets, and,
    together with all other suites, //tools/gpu_check:conformance.

    Args:
      name: also the stem of the file that srcs stands for; the library is name_suite.
      srcs: [name.cc] if not given.
      deps: what its files include; //testing:device_sets_interface and GoogleTest are added.
      copts: beyond COPTS.
      features: beyond FEATURES.
      size: small by default: one minute.
      **kwargs: of cc_test.
    """
    lockstep_test_library(
        name = name + "_suite",
        srcs = [name + ".cc"] if srcs == None else srcs,
        copts = copts,
        features = features,
        visibility = ["//tools/gpu_check:__pkg__"],
        deps = deps + ["//testing:device_sets_interface"],
    )
    cc_test(
        name = name,
        size = size,
        deps = [
            ":" + name + "_suite",
            "//testing:device_sets",
            _MAIN,
        ],
        **kwargs
    )
