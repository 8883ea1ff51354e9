# SPDX-License-Identifier: Apache-2.0
"""cuda_library: a library of .cu files, which nvcc compiles."""

load("@rules_cc//cc:defs.bzl", "cc_library")

# Machine code for these, and PTX of the last one for what comes after it.
_ARCHITECTURES = ["75", "80", "90", "100", "120"]

def _cuda_object_impl(ctx):
    source = ctx.file.src
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    compiled = ctx.actions.declare_file(ctx.label.name + ".pic.o")
    args = ctx.actions.args()
    args.add_all(["-c", source, "-o", compiled])
    args.add_all(["-std=c++17", "-O3", "-Xcompiler=-fPIC,-Wall", "-Werror=all-warnings"])
    for architecture in _ARCHITECTURES:
        args.add("-gencode=arch=compute_%s,code=sm_%s" % (architecture, architecture))
    args.add("-gencode=arch=compute_%s,code=compute_%s" % (_ARCHITECTURES[-1], _ARCHITECTURES[-1]))
    args.add_all(context.quote_includes, before_each = "-I")
    args.add_all(context.includes, before_each = "-isystem")
    args.add_all(context.system_includes, before_each = "-isystem")
    args.add_all(context.defines, format_each = "-D%s")
    ctx.actions.run(
        outputs = [compiled],
        inputs = depset([source], transitive = [context.headers]),
        executable = ctx.executable._nvcc,
        arguments = [args],
        env = {"PATH": "/usr/bin:/bin"},
        mnemonic = "CudaCompile",
        progress_message = "Compiling " + source.short_path,
    )
    return [DefaultInfo(files = depset([compiled]))]

_cuda_object = rule(
    implementation = _cuda_object_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "src": attr.label(allow_single_file = [".cu"], mandatory = True),
        "_nvcc": attr.label(default = "@nvcc//:nvcc", cfg = "host", executable = True),
    },
)

def cuda_library(name, srcs = [], hdrs = [], deps = [], tags = [], **kwargs):
    """A cc_library of .cc and .cu files, for builds with --force_pic.

    Bazel gives a .pic.o to links of position-independent code alone, and to a shared library both
    of a .o and a .pic.o.

    It is left out of //... ("manual"), since nvcc is fetched for whatever names it.

    Args:
      name: of the library.
      srcs: .cc and .cu files; each .cu file sees `hdrs` and `deps`.
      hdrs: its headers.
      deps: what its files include, directly.
      tags: beyond "manual".
      **kwargs: of cc_library.
    """
    headers = name + "_headers"
    cc_library(
        name = headers,
        hdrs = hdrs,
        tags = ["manual"],
        deps = deps,
    )
    objects = []
    for src in [src for src in srcs if src.endswith(".cu")]:
        compiled = src[:-len(".cu")] + "_cu"
        _cuda_object(
            name = compiled,
            src = src,
            tags = ["manual"],
            deps = [":" + headers],
        )
        objects.append(":" + compiled)
    cc_library(
        name = name,
        srcs = objects + [src for src in srcs if not src.endswith(".cu")],
        tags = tags + ["manual"],
        deps = [":" + headers] + deps,
        **kwargs
    )
