"""Expectations that stand alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Raised:
    """What `raises` caught, once its block has ended."""

    error: Any = None


@contextmanager
def raises(*kinds: type[BaseException], match: str = "") -> Iterator[Raised]:
    """Fail unless the block raises one of these errors; its text must contain `match`.

    Yields:
        A holder whose `error` is the error, after the block.
    """
    wanted = " or ".join(kind.__name__ for kind in kinds)
    caught = Raised()
    try:
        yield caught
    except kinds as error:
        caught.error = error
    except Exception as error:
        raise AssertionError(f"expected {wanted}, got {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"expected {wanted}, but nothing was raised")
    if match not in str(caught.error):
        raise AssertionError(f"expected {wanted} that says {match!r}, got: {caught.error}")
