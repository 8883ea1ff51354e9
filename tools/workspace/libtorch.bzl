# SPDX-License-Identifier: Apache-2.0
"""@libtorch, @cuda and @nccl.

Where the files come from, first match wins:
  LIBTORCH_ROOT   a torch folder (.../site-packages/torch, or an unpacked
                  LibTorch zip), a site-packages folder, or a python that can
                  import torch
  wheels.lock     the wheels pinned there, downloaded once into the user's cache
                  (cache.bzl) and kept
The repositories hold symbolic links only.
"""

load("//tools/workspace:cache.bzl", "CACHE_ENVIRON", "fetch_wheels")

LIBTORCH_VERSION = "2.11.0"

_ENVIRON = CACHE_ENVIRON + ["LIBTORCH_ROOT", "LOCKSTEP_LIST_HEADERS"]

_FIND_TORCH = """\
import importlib.util, os
print(os.path.dirname(importlib.util.find_spec("torch").submodule_search_locations[0]))
"""

def _given_root(ctx, root):
    if not root.startswith("/"):
        fail("LIBTORCH_ROOT must be an absolute path: " + root)
    if not ctx.path(root).exists:
        fail("LIBTORCH_ROOT does not exist: " + root)
    if ctx.path(root + "/torch/lib/libtorch_cpu.so").exists:
        return root, root + "/torch"
    if ctx.path(root + "/lib/libtorch_cpu.so").exists:
        return str(ctx.path(root).dirname), root
    found = ctx.execute([root, "-c", _FIND_TORCH])
    if found.return_code == 0:
        site = found.stdout.strip()
        return site, site + "/torch"
    fail("LIBTORCH_ROOT is neither a LibTorch, a site-packages folder nor a python with torch: " +
         "%s\n%s" % (root, found.stderr))

def _check_version(ctx, torch):
    header = torch + "/include/torch/headeronly/version.h"
    if not ctx.path(header).exists:
        header = torch + "/include/torch/csrc/api/include/torch/version.h"
    found = {}
    for line in ctx.read(header).split("\n") if ctx.path(header).exists else []:
        words = line.split(" ")
        if words[0] == "#define" and len(words) == 3:
            found[words[1]] = words[2]
    version = ".".join([
        found.get("TORCH_VERSION_" + part, "?")
        for part in ["MAJOR", "MINOR", "PATCH"]
    ])
    if version != LIBTORCH_VERSION:
        fail("lockstep is written for LibTorch %s, and LIBTORCH_ROOT (%s) is LibTorch %s: " %
             (LIBTORCH_VERSION, torch, version) +
             "unset LIBTORCH_ROOT to use the pinned wheels, or name a LibTorch of that version.")

def _locate(ctx):
    """Returns the folder that holds nvidia/, and the torch folder."""
    root = ctx.os.environ.get("LIBTORCH_ROOT", "")
    if root:
        site, torch = _given_root(ctx, root)
        _check_version(ctx, torch)
        return site, torch
    site = fetch_wheels(
        ctx,
        Label("//tools/workspace:wheels.lock"),
        "LibTorch's wheels (730 MB)",
        "or set LIBTORCH_ROOT to a LibTorch you have",
    )
    return site, site + "/torch"

def _link_libraries(ctx, folder, names):
    """Links the libraries of `folder` that exist; returns their new names."""
    linked = []
    for name in names:
        if ctx.path(folder + "/" + name).exists:
            ctx.symlink(folder + "/" + name, "lib/" + name)
            linked.append("lib/" + name)
    return linked

# What libtorch_cuda.so asks for when it is loaded, beyond the CPU's set.
_CUDA_LIBRARIES = {
    "nvidia/cu13/lib": [
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libcufft.so.12",
        "libcufile.so.0",
        "libcurand.so.10",
        "libcusolver.so.12",
        "libcusparse.so.12",
        "libnvJitLink.so.13",
    ],
    "nvidia/cudnn/lib": ["libcudnn.so.9"],
    "nvidia/cusparselt/lib": ["libcusparseLt.so.0"],
    "nvidia/nccl/lib": ["libnccl.so.2"],
    "nvidia/nvshmem/lib": ["libnvshmem_host.so.3"],
}

def _missing(ctx, paths):
    return [path for path in paths if not ctx.path(path).exists]

def _missing_to_link_cuda(ctx, torch):
    return _missing(ctx, [torch + "/lib/libc10_cuda.so", torch + "/lib/libtorch_cuda.so"])

def _missing_to_run_cuda(ctx, site):
    return _missing(ctx, [
        "%s/%s/%s" % (site, folder, name)
        for folder, names in _CUDA_LIBRARIES.items()
        for name in names
    ])

def _string_abi(ctx, torch):
    """The value of _GLIBCXX_USE_CXX11_ABI that LibTorch was built with."""
    found = ctx.execute(["grep", "-q", "-a", "NSt7__cxx1112basic_string", torch + "/lib/libc10.so"])
    return "1" if found.return_code == 0 else "0"

def _header_list(ctx):
    """What stands for the folder `include` in a BUILD file.

    As one label the folder is one input: 9,400 files as single inputs would be
    9,400 symbolic links in the sandbox of every compilation. Only clang's check
    of deps needs them by name.
    """
    if ctx.os.environ.get("LOCKSTEP_LIST_HEADERS", "") == "1":
        return "glob([\"include/**\"])"
    return "[\"include\"]"

def _libtorch_impl(ctx):
    site, torch = _locate(ctx)
    ctx.symlink(torch + "/include", "include")
    libraries = _link_libraries(ctx, torch + "/lib", ["libtorch_cpu.so", "libc10.so", "libgomp.so.1"])
    libraries += _link_libraries(ctx, site + "/nvidia/cu13/lib", ["libcudart.so.13", "libcupti.so.13"])
    not_linked = _missing_to_link_cuda(ctx, torch)
    not_run = not_linked + _missing_to_run_cuda(ctx, site)
    abi = _string_abi(ctx, torch)
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.template("abi/torch/headeronly/macros/Macros.h", ctx.attr._abi_check, {
        "%{abi}": abi,
        "%{other}": "0" if abi == "1" else "1",
    })
    ctx.template("BUILD.bazel", ctx.attr._build, {
        "%{cpu_libraries}": repr(libraries),
        "%{cuda_linked}": repr([":no_cuda"] if not_linked else []),
        "%{cuda_missing}": ", ".join(not_run) or "nothing",
        "%{cuda_run}": repr([":no_cuda"] if not_run else []),
        "%{cuda_undefined}": repr(["-Wl,--allow-shlib-undefined"] if not_run else []),
        "%{headers}": _header_list(ctx),
        "%{torch}": torch,
    })

libtorch_repository = repository_rule(
    implementation = _libtorch_impl,
    attrs = {
        "_abi_check": attr.label(default = "//tools/workspace:abi_check.h.tpl"),
        "_build": attr.label(default = "//tools/workspace:libtorch.BUILD.tpl"),
    },
    environ = _ENVIRON,
    doc = "LibTorch: :headers, :cpu, :cuda and :cuda_runtime_libraries.",
)

def _nvidia_impl(ctx):
    site, _ = _locate(ctx)
    folder = "%s/nvidia/%s" % (site, ctx.attr.folder)

    # A LibTorch of the user's own may come without: what reads the headers is skipped then.
    found = ctx.path(folder + "/include").exists
    if found:
        ctx.symlink(folder + "/include", "include")
    libraries = _link_libraries(ctx, folder + "/lib", [ctx.attr.library])
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.template("BUILD.bazel", ctx.attr._build, {
        "%{compatible}": repr([] if found else ["@libtorch//:no_cuda"]),
        "%{headers}": _header_list(ctx) if found else "[]",
        "%{libraries}": repr(libraries),
        "%{name}": ctx.attr.target,
    })

nvidia_repository = repository_rule(
    implementation = _nvidia_impl,
    attrs = {
        "folder": attr.string(mandatory = True, doc = "below nvidia/"),
        "library": attr.string(mandatory = True),
        "target": attr.string(mandatory = True, doc = "of the library and its headers"),
        "_build": attr.label(default = "//tools/workspace:nvidia.BUILD.tpl"),
    },
    environ = _ENVIRON,
    doc = "A library of NVIDIA's wheels: :headers alone, and the library.",
)
