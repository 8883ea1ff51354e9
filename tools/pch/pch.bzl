# SPDX-License-Identifier: Apache-2.0
"""precompiled_header: LibTorch's headers parsed once, for the many tests that include them.

A file that includes torch/nn.h takes 15 seconds to compile, and 4 with the header precompiled. The
compiler takes the precompiled form only if the flags agree; otherwise it reads the header as text,
which is slower and nothing else.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "".join(["#include <%s>\n" % path for path in ctx.attr.includes]))
    compiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            use_pic = True,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts,
            include_directories = context.includes,
            quote_include_directories = context.quote_includes,
            system_include_directories = context.system_includes,
            preprocessor_defines = context.defines,
        ),
    )
    ctx.actions.run(
        outputs = [compiled],
        inputs = depset([header], transitive = [context.headers, toolchain.all_files]),
        executable = toolchain.compiler_executable,
        arguments = flags + ["-x", "c++-header", header.path, "-o", compiled.path],
        env = {"PATH": "/usr/bin:/bin"},
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling " + header.short_path,
    )
    own = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([header, compiled]),
    ))
    return [
        DefaultInfo(files = depset([header, compiled])),
        cc_common.merge_cc_infos(cc_infos = [own] + [dep[CcInfo] for dep in ctx.attr.deps]),
    ]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "includes": attr.string_list(mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
