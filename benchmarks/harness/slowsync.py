"""A slower disk for one process: each sync of a file takes longer by a known time, all else is as it was."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.harness.results import Unavailable

# Loaded before the C library, it stands in front of its two functions and then calls them.
_SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int slowly(const char *name, int file) {
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    long microseconds = atol(getenv("BENCH_SYNC_DELAY"));
    struct timespec delay = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&delay, NULL);
    return sync(file);
}

int fsync(int file) { return slowly("fsync", file); }
int fdatasync(int file) { return slowly("fdatasync", file); }
"""


def build(folder: Path) -> Path:
    """Return the library that slows syncs down, compiled in `folder`.

    Raises:
        Unavailable: this system has no compiler, or does not let a library stand before its own.
    """
    if sys.platform != "linux":
        raise Unavailable(f"syncs can be slowed down on Linux only, not on {sys.platform}")
    compiler = shutil.which("cc")
    if compiler is None:
        raise Unavailable("syncs cannot be slowed down without a C compiler: there is no cc")
    source, library = folder / "slowsync.c", folder / "slowsync.so"
    source.write_text(_SHIM, encoding="utf-8")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"syncs cannot be slowed down: cc failed: {done.stderr.strip()[-300:]}")
    return library


def environment(library: Path, delay: float) -> Mapping[str, str]:
    """Return the environment of a process whose syncs take `delay` seconds longer."""
    before = os.environ.get("LD_PRELOAD", "")
    preloaded = f"{library}:{before}" if before else str(library)
    return {**os.environ, "LD_PRELOAD": preloaded, "BENCH_SYNC_DELAY": str(round(delay * 1e6))}
