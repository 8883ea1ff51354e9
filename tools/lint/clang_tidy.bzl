# SPDX-License-Identifier: Apache-2.0
"""clang-tidy as an aspect: bazel build --config=lint //comm/..."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

# Of GCC, and unknown to clang.
_GCC_ONLY = ["-fno-canonical-system-headers", "-Wno-free-nonheap-object"]

def _flags(target, ctx, toolchain):
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    context = target[CcInfo].compilation_context
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = cc_common.create_compile_variables(
            cc_toolchain = toolchain,
            feature_configuration = features,
            include_directories = context.includes,
            preprocessor_defines = context.defines,
            quote_include_directories = context.quote_includes,
            system_include_directories = context.system_includes,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts +
                                 getattr(ctx.rule.attr, "copts", []),
        ),
    )
    return [flag for flag in flags if flag not in _GCC_ONLY]

def _clang_tidy_impl(target, ctx):
    if CcInfo not in target or ctx.label.workspace_name or not hasattr(ctx.rule.attr, "srcs"):
        return []
    toolchain = find_cpp_toolchain(ctx)
    flags = _flags(target, ctx, toolchain)
    stamps = []
    for file in [file for source in ctx.rule.attr.srcs for file in source.files.to_list()]:
        if file.extension != "cc" or not file.is_source:
            continue
        stamp = ctx.actions.declare_file("%s.%s.tidy" % (ctx.label.name, file.basename))
        ctx.actions.run(
            outputs = [stamp],
            inputs = depset(
                [file, ctx.file._config],
                transitive = [target[CcInfo].compilation_context.headers],
            ),
            executable = ctx.executable._tool,
            arguments = [stamp.path, ctx.file._config.path, file.path] + flags,
            mnemonic = "ClangTidy",
            progress_message = "clang-tidy " + file.short_path,
            use_default_shell_env = True,
        )
        stamps.append(stamp)
    return [OutputGroupInfo(clang_tidy = depset(stamps))]

clang_tidy = aspect(
    implementation = _clang_tidy_impl,
    attrs = {
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_config": attr.label(allow_single_file = True, default = "//:.clang-tidy"),
        "_tool": attr.label(executable = True, cfg = "exec", default = "//tools/lint:clang_tidy"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
