# SPDX-License-Identifier: Apache-2.0
"""lockstep_dependencies: every external repository, in one place.

A workspace that uses lockstep calls it after naming @lockstep; what it has
declared itself by then is left alone.
"""

load("//tools/workspace:data.bzl", "fashion_mnist_repository")
load("//tools/workspace:libtorch.bzl", "libtorch_repository", "nvidia_repository")
load("//tools/workspace:nvcc.bzl", "nvcc_repository")
load(
    "//tools/workspace:packages.bzl",
    "absl_repository",
    "bazel_rules",
    "coverage_stub",
    "googletest_repository",
    "rules_cc_shim",
    "system_package",
)

def _github(path):
    return ["https://github.com/" + path]

def _bazel_itself(have):
    if "rules_cc" not in have:
        rules_cc_shim(name = "rules_cc")
    if "remote_coverage_tools" not in have:
        coverage_stub(name = "remote_coverage_tools")
    if "rules_java" not in have:
        bazel_rules(
            name = "rules_java",
            path = "/usr/share/bazel/rules/java",
            sha256 = "34b41ec683e67253043ab1a3d1e8b7c61e4e8edefbcad485381328c934d072fe",
            urls = _github("bazelbuild/rules_java/releases/download/4.0.0/rules_java-4.0.0.tar.gz"),
        )
    if "rules_proto" not in have:
        bazel_rules(
            name = "rules_proto",
            path = "/usr/share/bazel/rules/proto",
            sha256 = "e017528fd1c91c5a33f15493e3a398181a9e821a804eb7ff5acdd1d2d6c2b18d",
            strip_prefix = "rules_proto-4.0.0-3.20.0",
            urls = _github("bazelbuild/rules_proto/archive/refs/tags/4.0.0-3.20.0.tar.gz"),
        )
    if "platforms" not in have:
        bazel_rules(
            name = "platforms",
            path = "/usr/share/bazel/tools/platforms",
            sha256 = "48a2d8d343863989c232843e01afc8a986eb8738766bfd8611420a7db8f6f0c3",
            urls = _github("bazelbuild/platforms/releases/download/0.0.2/platforms-0.0.2.tar.gz"),
        )
    if "bazel_skylib" not in have:
        bazel_rules(
            name = "bazel_skylib",
            path = "/usr/share/bazel/tools/skylib",
            sha256 = "1c531376ac7e5a180e0237938a2536de0c54d93f5c278634818e0efc952dd56c",
            urls = _github("bazelbuild/bazel-skylib/releases/download/1.0.3/bazel-skylib-1.0.3.tar.gz"),
        )

def _google(have):
    if "com_google_absl" not in have:
        absl_repository(
            name = "com_google_absl",
            sha256 = "91ac87d30cc6d79f9ab974c51874a704de9c2647c40f6932597329a282217ba8",
            source_package = "abseil",
            source_sha256 = "abfe2897f3a30edaa74bc34365afe3c2a3cd012091a97dc7e008f7016adcd5fe",
            source_strip_prefix = "abseil-20220623.1",
            source_tarball = "abseil_20220623.1.orig.tar.gz",
            strip_prefix = "abseil-cpp-20220623.1",
            urls = _github("abseil/abseil-cpp/archive/refs/tags/20220623.1.tar.gz"),
        )
    if "com_google_googletest" not in have:
        googletest_repository(
            name = "com_google_googletest",
            sha256 = "81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2",
            source_package = "googletest",
            source_tarball = "googletest_1.12.1.orig.tar.gz",
            strip_prefix = "googletest-release-1.12.1",
            urls = _github("google/googletest/archive/refs/tags/release-1.12.1.tar.gz"),
        )
    if "com_google_benchmark" not in have:
        system_package(
            name = "com_google_benchmark",
            header = "/usr/include/benchmark/benchmark.h",
            package = "libbenchmark-dev",
            sha256 = "6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7",
            source_package = "benchmark",
            source_tarball = "benchmark_1.7.1.orig.tar.gz",
            strip_prefix = "benchmark-1.7.1",
            system_build = "@lockstep//tools/workspace:benchmark.BUILD",
            urls = _github("google/benchmark/archive/refs/tags/v1.7.1.tar.gz"),
        )

def _small_libraries(have):
    if "zlib" not in have:
        system_package(
            name = "zlib",
            header = "/usr/include/zlib.h",
            package = "zlib1g-dev",
            sha256 = "b3a24de97a8fdbc835b9833169501030b8977031bcb54b3b3ac13740f846ab30",
            strip_prefix = "zlib-1.2.13",
            system_build = "@lockstep//tools/workspace:system_zlib.BUILD",
            upstream_build = "@lockstep//tools/workspace:upstream_zlib.BUILD",
            urls = _github("madler/zlib/releases/download/v1.2.13/zlib-1.2.13.tar.gz"),
        )
    if "nlohmann_json" not in have:
        system_package(
            name = "nlohmann_json",
            header = "/usr/include/nlohmann/json.hpp",
            package = "nlohmann-json3-dev",
            sha256 = "e5c7a9f49a16814be27e4ed0ee900ecd0092bfb7dbfca65b5a421b774dccaaed",
            system_build = "@lockstep//tools/workspace:system_json.BUILD",
            upstream_build = "@lockstep//tools/workspace:upstream_json.BUILD",
            urls = _github("nlohmann/json/releases/download/v3.11.2/include.zip"),
        )

def _libtorch(have):
    if "libtorch" not in have:
        libtorch_repository(name = "libtorch")
    if "cuda" not in have:
        nvidia_repository(
            name = "cuda",
            folder = "cu13",
            library = "libcudart.so.13",
            target = "cudart",
        )
    if "nvcc" not in have:
        nvcc_repository(name = "nvcc")
    if "nccl" not in have:
        nvidia_repository(
            name = "nccl",
            folder = "nccl",
            library = "libnccl.so.2",
            target = "nccl",
        )

def lockstep_dependencies():
    """Declares the external repositories that are not declared yet."""
    have = native.existing_rules()
    _bazel_itself(have)
    _google(have)
    _small_libraries(have)
    _libtorch(have)
    if "fashion_mnist" not in have:
        fashion_mnist_repository(
            name = "fashion_mnist",
            sha256 = "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
            version = "0.0~git20200523.55506a9-1",
        )
