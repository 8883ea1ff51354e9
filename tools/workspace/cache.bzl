# SPDX-License-Identifier: Apache-2.0
"""The folder for what is downloaded, outside Bazel's own: clean keeps it."""

CACHE_ENVIRON = ["HOME", "LOCKSTEP_CACHE", "XDG_CACHE_HOME"]

def lockstep_cache(ctx):
    """Returns $LOCKSTEP_CACHE, $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep."""
    env = ctx.os.environ
    if env.get("LOCKSTEP_CACHE"):
        return env["LOCKSTEP_CACHE"]
    if env.get("XDG_CACHE_HOME"):
        return env["XDG_CACHE_HOME"] + "/lockstep"
    if not env.get("HOME"):
        fail("none of LOCKSTEP_CACHE, XDG_CACHE_HOME and HOME is set")
    return env["HOME"] + "/.cache/lockstep"

def run_or_fail(ctx, command, what):
    """Runs `command`; returns the last line it printed, or fails with what it said."""
    done = ctx.execute(command, timeout = 7200, quiet = False)
    if done.return_code != 0:
        fail("%s:\n%s" % (what, done.stderr.strip()))
    return done.stdout.strip().split("\n")[-1]

def _python(ctx, otherwise):
    # The system's own first: a python earlier on PATH may lack pip.
    for candidate in ["/usr/bin/python3", ctx.which("python3")]:
        if candidate and ctx.path(candidate).exists:
            return candidate
    fail("python3 is needed to download wheels; " + otherwise)

def fetch_wheels(ctx, lock, what, otherwise):
    """Downloads the wheels of a lock file, once; returns the folder they are unpacked in.

    Args:
      ctx: of the repository rule.
      lock: the label of the lock file.
      what: these wheels in words, with their size.
      otherwise: what to do where there is no python, for the message.
    """
    return run_or_fail(ctx, [
        _python(ctx, otherwise),
        ctx.path(Label("//tools/workspace:fetch_wheels.py")),
        ctx.path(lock),
        lockstep_cache(ctx),
        what,
    ], what + " could not be fetched")
