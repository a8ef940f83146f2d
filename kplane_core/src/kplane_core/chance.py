"""Chance of our own, for jitter and for names: Python's shared generator is left to those who seed it or watch it.

Property tests watch it: a server for tests, in a thread beside them, must not seem to be what draws their examples.
"""

import random

CHANCE = random.Random()  # noqa: S311 - nothing that must not be guessed comes from here
