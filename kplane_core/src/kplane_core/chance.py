"""Chance of our own, for jitter and for names: Python's shared generator is left to those who seed it or watch it.

Property tests watch it: a server for tests, in a thread beside them, must not seem to be what draws their examples.
"""

import os
import random

CHANCE = random.Random()  # noqa: S311 - nothing that must not be guessed comes from here

if hasattr(os, "register_at_fork"):  # absent on Windows
    os.register_at_fork(after_in_child=CHANCE.seed)  # parent and child must not make the same names


def new_uid() -> str:
    """Return a random UUID of version 4 as text; without the system call per UUID that `uuid.uuid4` makes."""
    digits = f"{CHANCE.getrandbits(128):032x}"
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
