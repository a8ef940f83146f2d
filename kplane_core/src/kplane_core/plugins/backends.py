"""Backends: what a storage plugin registers, and the registry that holds them."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs

from kplane_core.errors import KplaneError
from kplane_core.plugins.capabilities import Capability, Support, check_declared
from kplane_core.plugins.errors import DuplicateBackend, IncompatiblePlugin, InvalidPlugin, UnknownBackend

if TYPE_CHECKING:
    # Only for annotations: describing a backend must not import the engine.
    from kplane_core.engine.factory import Connection
    from kplane_core.plugins.flags import Flags

#: The version of the plugin interface that this core speaks; a plugin written for another one is not used.
PLUGIN_API = 1

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def _frozen(given: Mapping[Capability, Support]) -> Mapping[Capability, Support]:
    return MappingProxyType(dict(given))


def _check_name(_backend: "Backend", _attribute: "attrs.Attribute[str]", name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidPlugin(f"backend name {name!r}: use lower-case letters, digits and single dashes")


@attrs.frozen(kw_only=True)
class Backend:
    """A storage backend as its plugin describes it; describing one imports no driver.

    Attributes:
        name: what `--storage-backend` selects; also the prefix of its flags, variables and file section.
        summary: one line for `kplane backends` and `--help`.
        options: an attrs class whose fields are made by `kplane_core.plugins.flags.option`.
        capabilities: what it can do; every `Capability` is declared.
        connect: opens the one connection of a process, given an instance of `options`.
        api: the plugin interface it was written for.
        aliases: other names that select it.
    """

    name: str = attrs.field(validator=_check_name)
    summary: str
    options: type
    capabilities: Mapping[Capability, Support] = attrs.field(converter=_frozen)
    connect: Callable[[Any], Awaitable["Connection"]]
    api: int = PLUGIN_API
    aliases: tuple[str, ...] = ()


class Backends:
    """A registry of backends by name and alias; it belongs to whoever makes it, nothing is global.

    Args:
        owner: the distribution with its version that `register` books its calls on, unless told otherwise.
    """

    def __init__(self, owner: str = "this program") -> None:
        self._owner = owner
        self._by_name: dict[str, tuple[Backend, str]] = {}
        self._primary: list[str] = []
        self._failed: dict[str, KplaneError] = {}

    def register(self, backend: Backend, *, distribution: str = "") -> None:
        """Add a backend under its name and aliases, or not at all.

        Args:
            backend: what to add.
            distribution: who provides it, with its version.

        Raises:
            InvalidPlugin: it is no Backend or does not declare every capability.
            IncompatiblePlugin: it speaks another plugin API.
            DuplicateBackend: a name or alias is taken.
        """
        owner = distribution or self._owner
        if not isinstance(backend, Backend):
            raise InvalidPlugin(f"{owner} registers a {type(backend).__name__}: register takes a Backend")
        if backend.api != PLUGIN_API:
            raise IncompatiblePlugin(backend.name, owner, backend.api, PLUGIN_API)
        check_declared(backend.name, backend.capabilities)
        names = (backend.name, *backend.aliases)
        for name in names:
            if taken := self._by_name.get(name):
                raise DuplicateBackend(name, (taken[1], owner))
        for name in names:
            self._by_name[name] = (backend, owner)
        self._primary.append(backend.name)

    def merge(self, staged: "Backends") -> None:
        """Take over everything that `staged` holds, or nothing.

        Raises:
            DuplicateBackend: a name or alias is taken.
        """
        for name, (_, owner) in staged._by_name.items():  # noqa: SLF001 - the other half of one registry
            if taken := self._by_name.get(name):
                raise DuplicateBackend(name, (taken[1], owner))
        for name in staged.names():
            self.register(staged.get(name), distribution=staged.owner(name))

    def fail(self, name: str, error: KplaneError, *, distribution: str) -> None:
        """Take out the backend that `distribution` registered, if it did, and let `get` raise `error` from now on."""
        if (found := self._by_name.get(name)) and found[1] == distribution:
            backend = found[0]
            for taken in (backend.name, *backend.aliases):
                del self._by_name[taken]
            self._primary.remove(backend.name)
        self._failed[name] = error

    def get(self, name: str) -> Backend:
        """Return the backend of this name or alias.

        Raises:
            UnknownBackend: nothing installed provides it.
            BrokenPlugin: its plugin failed to load.
            IncompatiblePlugin: its plugin speaks another plugin API.
            DuplicateBackend: several distributions claim the name.
        """
        if found := self._by_name.get(name):
            return found[0]
        if error := self._failed.get(name):
            raise error
        raise UnknownBackend(name, {*self._primary, *self._failed})

    def owner(self, name: str) -> str:
        """Return the distribution with its version that provides the backend of this name or alias.

        Raises:
            UnknownBackend: nothing registered provides it.
        """
        if found := self._by_name.get(name):
            return found[1]
        raise UnknownBackend(name, self._primary)

    def names(self) -> tuple[str, ...]:
        """Return the names of the registered backends, sorted, without aliases."""
        return tuple(sorted(self._primary))

    def claimed(self) -> tuple[str, ...]:
        """Return every registered name and alias, sorted."""
        return tuple(sorted(self._by_name))

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def add_flags(self, flags: "Flags", names: Iterable[str] | None = None) -> None:
        """Contribute the backends' options, each under a heading of its own.

        Args:
            flags: where to.
            names: which backends; by default all.

        Raises:
            FlagConflict: two owners contribute one flag.
        """
        for name in self.names() if names is None else names:
            backend, owner = self._by_name[name]
            flags.add(
                name,
                backend.options,
                title=f"{name} storage backend ({owner})",
                description=backend.summary,
                owner=owner,
                backend=name,
            )
