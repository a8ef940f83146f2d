"""The harness: what a plugin gives the suite, and how it is found.

A harness is found through the entry-point group `kplane.conformance`; the entry point's name is the backend's name and
its object a factory without arguments. Production code never loads it. It owns no assertion: it starts and stops
things, and what fails there is a *harness error*, reported apart from a failing backend. A harness imports nothing
from this distribution; only the names below count.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import importlib_metadata

from kplane_core.errors import UsageError

if TYPE_CHECKING:
    from kplane_core.engine.factory import Connection

GROUP: Final = "kplane.conformance"
_MEMBERS: Final = ("name", "silence", "start", "stop", "connect")


class Harness(Protocol):
    """What every harness has.

    It must own its database: the suite compacts, restarts and breaks it as it likes. Each pytest-xdist worker makes
    an own harness.

    Optional members, each of which serves one hook; a member that is absent skips the cases that need it:

    - `async compact(revision)`: compact the history (default: the engine's own `compact`).
    - `async peek(full_key) -> bytes | None` and `async poke(full_key, value)`: read and write stored bytes past the
      engine (default: through the engine, past the store only).
    - `clock`: an object whose `advance(seconds)` moves the time that TTLs are measured by.
    - `async restart()`: restart the database; the suite connects anew afterwards.
    - `async backup() -> Any` and `async restore(backup)`: save the database and put it back, as an operator would;
      the suite restarts it afterwards.
    - `worn` (a bool) and `async renew()`: whether the database has become slow with use, and start a new, empty one
      instead; asked between two cases.
    - `fault`: an object with `async pause()`, `async resume()` and `async drop()` for the network in between.
    - `without`: a mapping from the name of a hook to the reason why there is none here, for the certificate; it counts
      also where the members of the hook are there, because the database's version may lack what they need.
    - `capabilities`: a mapping of what its database's version changes in the declaration; asked before `start`.
    - `server_version`: the version of the database, for the certificate.
    - `shared_task(task) -> bool`: whether a task belongs to the connection rather than to a case.
    """

    name: str
    silence: float
    """Seconds without an event after which there is none: 0.1 in process, about 1 over a network."""

    async def start(self) -> None:
        """Start the database."""
        ...

    async def stop(self) -> None:
        """Stop the database and remove what it left."""
        ...

    async def connect(self) -> "Connection":
        """Return a new connection to the one database of this harness."""
        ...


class HarnessError(Exception):
    """The harness failed: nothing is known of the backend."""


@attrs.frozen
class InstalledHarness:
    """A harness as its distribution declares it.

    Attributes:
        name: the backend's name.
        distribution: who provides it.
        version: that distribution's version.
        package: its import package, which may hold a conformance.toml with waivers.
        factory: imports the harness and makes one.
    """

    name: str
    distribution: str
    version: str
    package: str
    factory: Callable[[], Harness]

    @property
    def title(self) -> str:
        """The harness in words, with its distribution and version."""
        return f"the conformance harness {self.name!r} of {self.distribution} {self.version}"

    def make(self) -> Harness:
        """Return a new harness.

        Raises:
            HarnessError: it cannot be imported or made, or it is no harness.
        """
        try:
            harness = self.factory()
        except Exception as error:
            raise HarnessError(f"{self.title} failed to load: {type(error).__name__}: {error}") from error
        missing = [member for member in _MEMBERS if not hasattr(harness, member)]
        if missing:
            raise HarnessError(f"{self.title} lacks {', '.join(missing)}")
        return harness


def installed() -> Mapping[str, InstalledHarness]:
    """Return the installed harnesses by backend name.

    Raises:
        UsageError: two distributions claim one name.
    """
    found: dict[str, InstalledHarness] = {}
    for entry in importlib_metadata.entry_points(group=GROUP):
        distribution, version = (entry.dist.name, entry.dist.version) if entry.dist else ("unknown", "0")
        if (other := found.get(entry.name)) and other.distribution != distribution:
            raise UsageError(
                f"the conformance harness {entry.name!r} is claimed by {other.distribution} and by {distribution}; "
                "uninstall one of them"
            )
        found[entry.name] = InstalledHarness(
            entry.name, distribution, version, entry.module.partition(".")[0], _factory(entry)
        )
    return dict(sorted(found.items()))


def _factory(entry: Any) -> Callable[[], Harness]:
    def make() -> Harness:
        harness: Harness = entry.load()()
        return harness

    return make


def choose(names: Sequence[str]) -> Sequence[InstalledHarness]:
    """Return the harnesses of the named backends, or all installed ones when none is named.

    Raises:
        UsageError: one of them is not installed, or none is installed at all.
    """
    found = installed()
    listed = ", ".join(found) or "none"
    if not found:
        raise UsageError("no backend to test: no installed distribution has a kplane.conformance entry point")
    if missing := [name for name in names if name not in found]:
        raise UsageError(f"no conformance harness for backend {missing[0]!r}; installed: {listed}")
    return [found[name] for name in dict.fromkeys(names or found)]
