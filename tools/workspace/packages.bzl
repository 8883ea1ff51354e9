# SPDX-License-Identifier: Apache-2.0
"""What Debian packages and others download, under upstream's labels.

Where a repository comes from is chosen by LOCKSTEP_DEPS:
  debian    the installed Debian packages: nothing to compile but GoogleTest
  source    the tarballs of Debian's source packages, fetched by apt: upstream's
            code and BUILD files, compiled with this build's flags
  upstream  the pinned archives of the projects' own download sites
Not set: debian on a Debian machine, else upstream.
"""

load("//tools/workspace:cache.bzl", "CACHE_ENVIRON", "lockstep_cache", "run_or_fail")

_ENVIRON = CACHE_ENVIRON + ["LOCKSTEP_DEPS"]

_ARCHIVE = {
    "urls": attr.string_list(mandatory = True, doc = "upstream: any of these"),
    "sha256": attr.string(mandatory = True),
    "strip_prefix": attr.string(),
    "upstream_build": attr.label(doc = "the BUILD file, if the archive has none"),
    "source_package": attr.string(doc = "source: its name; none: as debian"),
    "source_tarball": attr.string(),
    "source_sha256": attr.string(doc = "if not that of upstream"),
    "source_strip_prefix": attr.string(doc = "if not that of upstream"),
}

def _kind(ctx):
    kind = ctx.os.environ.get("LOCKSTEP_DEPS", "")
    if not kind:
        return "debian" if ctx.path("/etc/debian_version").exists else "upstream"
    if kind not in ["debian", "source", "upstream"]:
        fail("LOCKSTEP_DEPS must be debian, source or upstream, not " + kind)
    return kind

def _unpacked(ctx):
    """Unpacks the code and its BUILD files, unless Debian's package is to serve."""
    kind = _kind(ctx)
    if kind == "source" and ctx.attr.source_package:
        tarball = run_or_fail(ctx, [
            ctx.path(Label("//tools/workspace:fetch_debian.sh")),
            "source",
            ctx.attr.source_package,
            ctx.attr.source_tarball,
            ctx.attr.source_sha256 or ctx.attr.sha256,
            lockstep_cache(ctx),
        ], "the source of %s could not be fetched" % ctx.attr.source_package)
        ctx.extract(tarball, stripPrefix = ctx.attr.source_strip_prefix or ctx.attr.strip_prefix)
        return True
    if kind == "upstream":
        ctx.download_and_extract(
            url = ctx.attr.urls,
            sha256 = ctx.attr.sha256,
            stripPrefix = ctx.attr.strip_prefix,
        )
        if ctx.attr.upstream_build:
            ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
            ctx.file("BUILD.bazel", ctx.read(ctx.attr.upstream_build))
        return True
    return False

def _need(ctx, path, package):
    if not ctx.path(path).exists:
        fail("@%s needs the Debian package %s (no %s): ./tools/bazel installs it" %
             (ctx.name, package, path))

def _system_package_impl(ctx):
    if _unpacked(ctx):
        return
    _need(ctx, ctx.attr.header, ctx.attr.package)
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.symlink(ctx.attr.system_build, "BUILD.bazel")

system_package = repository_rule(
    implementation = _system_package_impl,
    attrs = dict(
        _ARCHIVE,
        header = attr.string(mandatory = True, doc = "a file the package installs"),
        package = attr.string(mandatory = True, doc = "Debian's name"),
        system_build = attr.label(mandatory = True),
    ),
    environ = _ENVIRON,
    doc = "A library whose headers Debian puts into /usr/include.",
)

def _bazel_rules_impl(ctx):
    # Bazel itself asks for these, so `source` and `debian` are one here.
    if _kind(ctx) != "upstream" and ctx.path(ctx.attr.path).exists:
        for entry in ctx.path(ctx.attr.path).readdir():
            ctx.symlink(entry, entry.basename)
        return
    ctx.download_and_extract(
        url = ctx.attr.urls,
        sha256 = ctx.attr.sha256,
        stripPrefix = ctx.attr.strip_prefix,
    )

bazel_rules = repository_rule(
    implementation = _bazel_rules_impl,
    attrs = {
        "path": attr.string(mandatory = True, doc = "where Debian installs it"),
        "sha256": attr.string(mandatory = True),
        "strip_prefix": attr.string(),
        "urls": attr.string_list(mandatory = True),
    },
    environ = _ENVIRON,
    doc = "Rules that Bazel 4.2.3 wants before it builds anything.",
)

def _rules_cc_impl(ctx):
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.file("BUILD.bazel")
    ctx.file("cc/BUILD.bazel")
    ctx.file("cc/defs.bzl", ctx.read(ctx.attr._defs))

rules_cc_shim = repository_rule(
    implementation = _rules_cc_impl,
    attrs = {"_defs": attr.label(default = "//tools/workspace:rules_cc_defs.bzl.tpl")},
    doc = "rules_cc over Bazel's own rules: Debian's package of it does not load in 4.2.3.",
)

def _coverage_stub_impl(ctx):
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.symlink(ctx.attr._build, "BUILD.bazel")
    ctx.file("unavailable.sh", "#!/bin/sh\necho 'coverage is not offered here' >&2\nexit 1\n")

coverage_stub = repository_rule(
    implementation = _coverage_stub_impl,
    attrs = {"_build": attr.label(default = "//tools/workspace:remote_coverage_tools.BUILD")},
    doc = "Bazel wants these labels for every test; Debian ships no such tools.",
)

# --- GoogleTest ---------------------------------------------------------------

def _googletest_impl(ctx):
    if _unpacked(ctx):
        return
    root = "/usr/src/googletest"
    _need(ctx, root + "/googletest/src/gtest-all.cc", "googletest")
    for part in ["googletest", "googlemock"]:
        for folder in ["include", "src"]:
            ctx.symlink("%s/%s/%s" % (root, part, folder), "%s/%s" % (part, folder))
    ctx.symlink(ctx.attr._build, "BUILD.bazel")
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)

googletest_repository = repository_rule(
    implementation = _googletest_impl,
    attrs = dict(_ARCHIVE, _build = attr.label(default = "//tools/workspace:googletest.BUILD")),
    environ = _ENVIRON,
    doc = "@com_google_googletest; Debian ships its sources.",
)

# --- Abseil -------------------------------------------------------------------

# Bazel package -> {target: pkg-config module}; a module's `Requires:` line gives
# the dependencies.
_ABSL = {
    "algorithm": {"algorithm": "algorithm", "container": "algorithm_container"},
    "base": {
        "base": "base",
        "config": "config",
        "core_headers": "core_headers",
        "dynamic_annotations": "dynamic_annotations",
        "log_severity": "log_severity",
    },
    "cleanup": {"cleanup": "cleanup"},
    "container": {
        "btree": "btree",
        "fixed_array": "fixed_array",
        "flat_hash_map": "flat_hash_map",
        "flat_hash_set": "flat_hash_set",
        "inlined_vector": "inlined_vector",
        "node_hash_map": "node_hash_map",
        "node_hash_set": "node_hash_set",
    },
    "debugging": {
        "failure_signal_handler": "failure_signal_handler",
        "leak_check": "leak_check",
        "stacktrace": "stacktrace",
        "symbolize": "symbolize",
    },
    "flags": {
        "commandlineflag": "flags_commandlineflag",
        "config": "flags_config",
        "flag": "flags",
        "marshalling": "flags_marshalling",
        "parse": "flags_parse",
        "program_name": "flags_program_name",
        "reflection": "flags_reflection",
        "usage": "flags_usage",
    },
    "functional": {
        "any_invocable": "any_invocable",
        "bind_front": "bind_front",
        "function_ref": "function_ref",
    },
    "hash": {"hash": "hash"},
    "memory": {"memory": "memory"},
    "meta": {"type_traits": "type_traits"},
    "numeric": {"bits": "bits", "int128": "int128"},
    "random": {
        "bit_gen_ref": "random_bit_gen_ref",
        "distributions": "random_distributions",
        "random": "random_random",
        "seed_gen_exception": "random_seed_gen_exception",
        "seed_sequences": "random_seed_sequences",
    },
    "status": {"status": "status", "statusor": "statusor"},
    "strings": {"cord": "cord", "str_format": "str_format", "strings": "strings"},
    "synchronization": {"synchronization": "synchronization"},
    "time": {"time": "time"},
    "types": {
        "any": "any",
        "bad_any_cast": "bad_any_cast",
        "bad_optional_access": "bad_optional_access",
        "bad_variant_access": "bad_variant_access",
        "compare": "compare",
        "optional": "optional",
        "span": "span",
        "variant": "variant",
    },
    "utility": {"utility": "utility"},
}

_PKGCONFIG = [
    "/usr/lib/x86_64-linux-gnu/pkgconfig",
    "/usr/lib/aarch64-linux-gnu/pkgconfig",
    "/usr/lib/pkgconfig",
]

def _read_module(ctx, folder, name):
    """Reads absl_NAME.pc: the libraries, and the modules it requires."""
    libraries, requires = [], []
    for line in ctx.read("%s/absl_%s.pc" % (folder, name)).split("\n"):
        if line.startswith("Libs:"):
            libraries = [word for word in line.split(" ") if word.startswith("-labsl")]
        elif line.startswith("Requires:"):
            words = [item.strip().split(" ")[0] for item in line[len("Requires:"):].split(",")]
            requires = [word[len("absl_"):] for word in words if word.startswith("absl_")]
    return libraries, requires

def _read_modules(ctx, folder):
    """Every module that the public targets reach."""
    modules = {}
    waiting = [module for targets in _ABSL.values() for module in targets.values()]

    # Starlark has no `while`: more rounds than there are modules.
    for _ in range(1000):
        if not waiting:
            return modules
        name = waiting.pop()
        if name not in modules:
            modules[name] = _read_module(ctx, folder, name)
            waiting.extend(modules[name][1])
    fail("the modules of %s have no end" % folder)

def _absl_impl(ctx):
    if _unpacked(ctx):
        return
    folders = [path for path in _PKGCONFIG if ctx.path(path + "/absl_base.pc").exists]
    if not folders:
        _need(ctx, _PKGCONFIG[0] + "/absl_base.pc", "libabsl-dev")
    modules = _read_modules(ctx, folders[0])
    lines = [
        "# Generated by //tools/workspace:packages.bzl from %s/absl_*.pc" % folders[0],
        "package(default_visibility = [\"//absl:__subpackages__\"])",
    ]
    for name in sorted(modules):
        libraries, requires = modules[name]
        lines.append("cc_library(name = %r, linkopts = %r, deps = %r)" %
                     (name, libraries, [":" + module for module in requires]))
    ctx.file("absl/BUILD.bazel", "\n".join(lines) + "\n")
    for package, targets in _ABSL.items():
        lines = ["package(default_visibility = [\"//visibility:public\"])"]
        for target, module in targets.items():
            lines.append("alias(name = %r, actual = \"//absl:%s\")" % (target, module))
        ctx.file("absl/%s/BUILD.bazel" % package, "\n".join(lines) + "\n")
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)

absl_repository = repository_rule(
    implementation = _absl_impl,
    attrs = _ARCHIVE,
    environ = _ENVIRON,
    doc = "@com_google_absl; Debian's headers are those of /usr/include.",
)
