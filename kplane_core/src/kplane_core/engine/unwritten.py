"""Engine methods that a backend's author has yet to write: they say so, and the conformance suite lists them."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

import attrs

from kplane_core.engine.interface import Engine

F = TypeVar("F", bound=Callable[..., Any])

#: The engine's ten methods, in the order in which they are best written; `compact` comes with `compacted`.
METHODS: Final = (
    "check",
    "revision",
    "aclose",
    "read",
    "write",
    "scan",
    "watch",
    "request_progress",
    "compact",
    "size",
)
_PAGE: Final = "docs/reference/engine.md"
_PAIRED: Final = {"compacted": "compact"}


@attrs.frozen
class Unwritten:
    """A method without a body.

    Attributes:
        name: of the method.
        promise: the first sentence of what it must do.
        link: where the whole promise stands.
    """

    name: str
    promise: str
    link: str

    def __str__(self) -> str:
        return f"{self.name:<16}  {self.link:<42}  {self.promise}"


def unwritten(method: F) -> F:
    """Mark a method of an engine as yet to be written; whoever calls it gets NotImplementedError with a link."""
    name = _PAIRED.get(method.__name__, method.__name__)

    @functools.wraps(method)
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{method.__name__} is not written yet: {_PAGE}#{name}")

    refuse.__unwritten__ = True  # type: ignore[attr-defined]  # read back by `unwritten_methods`
    return refuse  # type: ignore[return-value]  # it takes what the method takes, and never returns


def unwritten_methods(engine: type) -> Sequence[Unwritten]:
    """Return which of the ten methods an engine class lacks or has only marked as `unwritten`."""
    missing = {
        _PAIRED.get(name, name)
        for name in (*METHODS, *_PAIRED)
        if not hasattr(engine, name) or hasattr(getattr(engine, name), "__unwritten__")
    }
    return [Unwritten(name, _first_sentence(name), f"{_PAGE}#{name}") for name in METHODS if name in missing]


def _first_sentence(name: str) -> str:
    return (inspect.getdoc(getattr(Engine, name)) or "").split("\n", maxsplit=1)[0]
