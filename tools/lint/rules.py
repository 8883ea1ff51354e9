# SPDX-License-Identifier: Apache-2.0
"""The rules a source tree is checked by.

A tree is a dict from path to text. A rule takes one and returns a list of
strings "path:line: what is wrong". tools/lint/README.md lists the rules.
"""

import posixpath
import re
import textwrap

LAYERS = ("comm", "autograd_fns", "replicate", "parallel")
CPP = (".h", ".cc", ".cu")
MAX_LINES = 600

# What a folder may include of this project, by quotes. Its tests may include
# testing/ too.
PROJECT_INCLUDES = {
    "comm": ("comm",),
    "autograd_fns": ("comm", "autograd_fns"),
    "replicate": ("comm", "autograd_fns", "replicate"),
    "parallel": LAYERS,
    "testing": LAYERS + ("testing",),
    "examples": LAYERS + ("examples",),
    "tools": LAYERS + ("examples", "testing", "tools"),
}

# What a folder may not include of others, tests apart: (pattern, except).
NN = r"torch/(csrc/api/include/torch/)?(nn|optim|data|serialize|jit)\b"
FOREIGN_REFUSED = {
    "comm": ((r"torch/csrc/autograd/|torch/autograd\.h", None), (NN, None)),
    "autograd_fns": ((NN, None),),
    "replicate": (
        (NN, r"torch/nn/(module|cloneable|pimpl|modules/container/parameter(list|dict))\.h$"),
        (r"(thread|future)$", None),
        (r"ATen/Parallel.*\.h$", None),
    ),
}

# Everything of LibTorch at once: more than any one file of a library needs.
UMBRELLAS = r"torch/(torch|all)\.h$"
CUDA = r"(cuda|cudnn|nccl|nvml|cublas)[a-z_0-9]*\.h$|(c10|ATen|torch/csrc)/cuda/|.*/cuda/"
CUDA_HOMES = ("comm/cuda/", "comm/nccl/", "testing/fake_nccl/")

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
CONDITION = re.compile(r"^\s*#\s*(?:el)?if(?:n?def)?\b(.*)")
NOTE_HERE = re.compile(r"^\s*(?://|#)\s*Note \[([^\]]+)\]")
NOTE_SEEN = re.compile(r"\b[Ss]ee(?:\s|//|#)+Note\s\[([^\]]+)\]")
# A block of C++ in a text, and where it says that it is from.
CODE_BLOCK = re.compile(r"(?:^<!-- code: (\S+) (\S+) -->\n)?^```(?:c\+\+|cpp)\n(.*?)^```$",
                        re.MULTILINE | re.DOTALL)
SUITE = re.compile(r'^lockstep_suite\(\n\s*name = "(\w+)"', re.MULTILINE)
REFUSED_WORDS = re.compile(r"\b(TODO|FIXME|XXX|sleep_for|sleep_until|usleep|nanosleep)\b")


def folder_of(path):
    return path.split("/")[0] if "/" in path else ""


def is_cpp(path):
    return path.endswith(CPP)


def is_test(path):
    """Whether the file is only ever part of a test or a benchmark, by its name."""
    stem = posixpath.splitext(posixpath.basename(path))[0]
    return folder_of(path) == "testing" or bool(
        re.search(r"(^|_)(test|tests|fixture|benchmark|benchmarks|conformance)(_|$)", stem))


def includes(text):
    """(line number, '<' or '"', name) of each include."""
    for number, line in enumerate(text.splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1), found.group(2)


def cpp_files(tree):
    return [(path, tree[path]) for path in sorted(tree) if is_cpp(path)]


def layering(tree):
    """Quoted includes keep the order of the layers."""
    errors = []
    for path, text in cpp_files(tree):
        folder = folder_of(path)
        for number, kind, name in includes(text):
            where = "%s:%d: " % (path, number)
            target = folder_of(name)
            if kind == '"' and folder in PROJECT_INCLUDES:
                allowed = PROJECT_INCLUDES[folder] + (("testing",) if is_test(path) else ())
                if target in PROJECT_INCLUDES and target not in allowed:
                    errors.append(where + "%s/ may not include %s" % (folder, name))
                if target == "" and name != "lockstep.h":
                    errors.append(where + 'write includes from the root: "%s"' %
                                  posixpath.join(posixpath.dirname(path), name))
            if kind == "<" and target in PROJECT_INCLUDES and name in tree:
                errors.append(where + "quote the project's own headers: " + name)
            if name == "lockstep.h" and folder not in ("", "examples"):
                errors.append(where + "lockstep.h is for users; include the one header needed")
    return errors


def libtorch_includes(tree):
    """Each layer includes of LibTorch what the layer knows of."""
    errors = []
    for path, text in cpp_files(tree):
        folder = folder_of(path)
        for number, _, name in includes(text):
            where = "%s:%d: " % (path, number)
            if not is_test(path):
                for refused, but in FOREIGN_REFUSED.get(folder, ()):
                    if re.match(refused, name) and not (but and re.match(but, name)):
                        errors.append(where + "%s/ may not include <%s>" % (folder, name))
            if folder in LAYERS + ("testing",) and re.match(UMBRELLAS, name):
                errors.append(where + "<%s> is too much; include what is used" % name)
            if re.match(CUDA, name) and not path.startswith(CUDA_HOMES):
                errors.append(where + "CUDA headers belong to %s, not here: <%s>" %
                              (" and ".join(CUDA_HOMES), name))
            if path.endswith(".h") and folder in LAYERS and name.startswith("absl/"):
                errors.append(where + "no Abseil in a header that users include: " + name)
    return errors


def user_macros(tree):
    """No header depends on a macro that its user would have to set."""
    errors = []
    for path, text in cpp_files(tree):
        if not path.endswith(".h") or folder_of(path) not in LAYERS + ("testing", ""):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            found = CONDITION.match(line)
            if not found:
                continue
            condition = re.sub(r"//.*|/\*.*?\*/", "", found.group(1))
            for word in re.findall(r"[A-Za-z_]\w*", condition):
                if word != "defined" and not word.startswith("__"):
                    errors.append("%s:%d: a header may not ask for the macro %s" %
                                  (path, number, word))
    return errors


def own_header(tree):
    """Every header has a .cc, which includes it before all else."""
    errors = []
    for path, text in cpp_files(tree):
        stem, extension = posixpath.splitext(path)
        if extension == ".h":
            if stem + ".cc" not in tree and stem + ".cu" not in tree:
                errors.append("%s:1: no %s.cc: one that includes only this header shows that it "
                              "compiles alone" % (path, posixpath.basename(stem)))
            if "#pragma once" not in text:
                errors.append(path + ":1: no #pragma once")
        elif stem + ".h" in tree:
            number, kind, name = next(includes(text), (1, "", ""))
            if (kind, name) != ('"', stem + ".h"):
                errors.append('%s:%d: the first include must be "%s.h"' % (path, number, stem))
    return errors


def first_lines(tree):
    """Licence line first; BUILD files say what they hold and hide it."""
    errors = []
    for path in sorted(tree):
        name = posixpath.basename(path)
        if not (is_cpp(path) or path.endswith((".bzl", ".py", ".sh")) or name == "BUILD.bazel"):
            continue
        lines = tree[path].splitlines() or [""]
        mark = "//" if is_cpp(path) else "#"
        if lines[0].startswith("#!"):
            lines = lines[1:] or [""]
        if lines[0] != mark + " SPDX-License-Identifier: Apache-2.0":
            errors.append("%s:1: the first line is not the SPDX line" % path)
        if name == "BUILD.bazel":
            if len(lines) < 2 or not lines[1].startswith("# Description:"):
                errors.append(path + ":2: no `# Description:`")
            for needed in ('default_visibility = ["//visibility:private"]', 'licenses(["notice"])'):
                if needed not in tree[path]:
                    errors.append("%s:1: no %s" % (path, needed))
    return errors


def notes(tree):
    """Every Note is there once and referred to."""
    errors, homes, seen = [], {}, {}
    for path in sorted(tree):
        text = tree[path]
        if is_cpp(path):
            for found in NOTE_SEEN.finditer(text):
                number = text.count("\n", 0, found.start()) + 1
                seen.setdefault(found.group(1), "%s:%d" % (path, number))
            before = ""
            for number, line in enumerate(text.splitlines(), 1):
                found = NOTE_HERE.match(line)
                if found and not re.search(r"\b[Ss]ee$", before):
                    homes.setdefault(found.group(1), []).append("%s:%d" % (path, number))
                before = line.rstrip()
        elif path.endswith(".md"):
            for found in NOTE_SEEN.finditer(text):
                number = text.count("\n", 0, found.start()) + 1
                seen.setdefault(found.group(1), "%s:%d" % (path, number))
    for name, where in sorted(seen.items()):
        if name not in homes:
            errors.append("%s: there is no Note [%s]" % (where, name))
    for name, where in sorted(homes.items()):
        if len(where) > 1:
            errors.append("%s: Note [%s] is also at %s" % (where[1], name, where[0]))
        if name not in seen:
            errors.append("%s: nothing says `See Note [%s]`" % (where[0], name))
    return errors


def words(tree):
    """Nothing left for later, nothing that waits by the clock."""
    errors = []
    for path, text in cpp_files(tree):
        for number, line in enumerate(text.splitlines(), 1):
            found = REFUSED_WORDS.search(line)
            if found:
                errors.append("%s:%d: %s" % (path, number, found.group(1)))
    return errors


def quoted(text, name):
    """The lines between `// [readme: NAME]` and `// [end]`, without their indentation, or None."""
    found = re.search(r"^ *// \[readme: %s\]\n(.*?)^ *// \[end\]$" % re.escape(name), text,
                      re.MULTILINE | re.DOTALL)
    return textwrap.dedent(found.group(1)) if found else None


def quotes(tree):
    """C++ in the front README, and wherever it is marked, is that of a compiled file."""
    errors = []
    for path in sorted(tree):
        if not path.endswith(".md"):
            continue
        for found in CODE_BLOCK.finditer(tree[path]):
            where = "%s:%d: " % (path, tree[path].count("\n", 0, found.start(3)))
            source, name, code = found.group(1), found.group(2), found.group(3)
            if source is None:
                if path == "README.md":
                    errors.append(where + "no `<!-- code: FILE NAME -->` above this code")
            elif source not in tree or quoted(tree[source], name) is None:
                errors.append(where + "%s has no part `%s`" % (source, name))
            elif quoted(tree[source], name) != code:
                errors.append(where + "differs from part `%s` of %s" % (name, source))
    return errors


def sizes(tree):
    """Prints the longest files; none may pass MAX_LINES."""
    counts = sorted(((text.count("\n"), path) for path, text in cpp_files(tree)), reverse=True)
    print("%d files, %d lines; the longest:" % (len(counts), sum(n for n, _ in counts)))
    for count, path in counts[:20]:
        print("%6d  %s" % (count, path))
    return ["%s:%d: longer than %d lines" % (path, count, MAX_LINES)
            for count, path in counts if count > MAX_LINES]


def suites(tree):
    """Every lockstep_suite is part of the conformance program for GPUs."""
    program = tree.get("tools/gpu_check/BUILD.bazel", "")
    errors = []
    for path, text in sorted(tree.items()):
        if not path.endswith("BUILD.bazel"):
            continue
        for found in SUITE.finditer(text):
            label = "//%s:%s_suite" % (posixpath.dirname(path), found.group(1))
            if '"%s",' % label not in program:
                errors.append("%s:%d: not in SUITES of tools/gpu_check: %s" %
                              (path, text.count("\n", 0, found.start()) + 1, label))
    return errors


RULES = {
    "first_lines": first_lines,
    "layering": layering,
    "libtorch_includes": libtorch_includes,
    "notes": notes,
    "own_header": own_header,
    "quotes": quotes,
    "sizes": sizes,
    "suites": suites,
    "user_macros": user_macros,
    "words": words,
}
