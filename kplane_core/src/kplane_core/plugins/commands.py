"""Subcommands of `kplane`: what an entry point of the group `kplane.commands` names, and what it is run with."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from kplane_core.plugins.backends import Backend
from kplane_core.plugins.flags import Flags
from kplane_core.plugins.values import Values

if TYPE_CHECKING:
    # Discovery imports pluggy, which a command's module need not pay for.
    from kplane_core.plugins.discovery import Plugins

T = TypeVar("T")

COMMANDS_GROUP = "kplane.commands"


@attrs.frozen
class Parsed:
    """What a command is run with: everything is parsed and validated.

    Attributes:
        values: the typed options, each with its source.
        plugins: the plugins as far as they are loaded.
        backend: the selected backend, for a command that selects one.
        words: what was typed besides flags, for a command that takes words.
    """

    values: Values
    plugins: "Plugins"
    backend: Backend | None = None
    words: tuple[str, ...] = ()

    def options(self, options: type[T]) -> T:
        """Return the instance of an options class that `configure` added."""
        return self.values.get(options)

    @property
    def selected(self) -> Backend:
        """The selected backend.

        Raises:
            LookupError: the command does not select one.
        """
        if self.backend is None:
            raise LookupError("the command does not select a backend: set selects_backend=True")
        return self.backend

    @property
    def backend_options(self) -> Any:
        """The selected backend's options, ready for its `connect`."""
        return self.values.section(self.selected.name)


@attrs.frozen
class Command:
    """One subcommand; its entry point in the group `kplane.commands` names an instance.

    Attributes:
        name: what is typed after `kplane`; the entry point has the same name.
        summary: one line for `kplane --help`.
        configure: adds the command's own options, for example `flags.add("", ServeOptions, toml="serve")`.
        run: does the work and returns the exit code; a UsageError becomes one line and exit code 2.
        selects_backend: takes `--storage-backend` and the flags of the selected backend.
        words: what may be typed besides flags, as `--help` shows it; empty for a command that takes flags only.
    """

    name: str
    summary: str
    configure: Callable[[Flags], None]
    run: Callable[[Parsed], int]
    selects_backend: bool = False
    words: str = ""
