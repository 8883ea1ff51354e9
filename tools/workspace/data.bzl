# SPDX-License-Identifier: Apache-2.0
"""@fashion_mnist: the four files of Fashion-MNIST, out of a Debian package."""

load("//tools/workspace:cache.bzl", "CACHE_ENVIRON", "lockstep_cache", "run_or_fail")

_FILES = [
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
]

def _fashion_mnist_impl(ctx):
    package = run_or_fail(ctx, [
        ctx.path(Label("//tools/workspace:fetch_debian.sh")),
        "binary",
        "dataset-fashion-mnist",
        ctx.attr.version,
        ctx.attr.sha256,
        lockstep_cache(ctx),
    ], "the Debian package dataset-fashion-mnist could not be fetched (on a machine without apt, " +
       "run the example with --data_dir and build without //examples/fashion_mnist/...)")
    run_or_fail(ctx, ["dpkg-deb", "-x", package, "package"], "dpkg-deb could not unpack " + package)
    for name in _FILES:
        ctx.symlink("package/usr/share/datasets/fashion-mnist/" + name, name)
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.file("BUILD.bazel", """\
package(default_visibility = ["//visibility:public"])

exports_files(%r)

filegroup(
    name = "data",
    srcs = %r,
)
""" % (_FILES, _FILES))

fashion_mnist_repository = repository_rule(
    implementation = _fashion_mnist_impl,
    attrs = {
        "sha256": attr.string(mandatory = True, doc = "of the .deb file"),
        "version": attr.string(mandatory = True),
    },
    environ = CACHE_ENVIRON,
    doc = "Needs apt and dpkg, no root. Fetched when a target first asks for it.",
)
