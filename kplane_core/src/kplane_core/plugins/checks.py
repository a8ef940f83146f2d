"""Health checks that plugins contribute; the server runs them behind /readyz and /livez."""

from collections.abc import Awaitable, Callable, Iterator

import attrs

from kplane_core.plugins.errors import InvalidPlugin


@attrs.frozen
class HealthCheck:
    """One named check.

    Attributes:
        name: its name in the answer, for example `etcd`.
        check: returns when all is well and raises otherwise; it is cancelled when its deadline passes.
        owner: the distribution with its version.
        live: a failure means that the process should be restarted, not only that it is not ready.
    """

    name: str
    check: Callable[[], Awaitable[None]]
    owner: str
    live: bool = False


class HealthChecks:
    """Collects the checks of all plugins.

    Args:
        owner: who contributes what is added, with its version.
    """

    def __init__(self, owner: str = "kplane-core") -> None:
        self._owner = owner
        self._checks: dict[str, HealthCheck] = {}

    def owned_by(self, owner: str) -> "HealthChecks":
        """Return a view of these checks that books every addition on `owner`."""
        view = HealthChecks(owner)
        view._checks = self._checks
        return view

    def add(self, name: str, check: Callable[[], Awaitable[None]], *, live: bool = False) -> None:
        """Contribute a check.

        Args:
            name: its name in the answer.
            check: an async function without arguments; it raises when something is wrong.
            live: see `HealthCheck`.

        Raises:
            InvalidPlugin: the name is taken; the message names both owners.
        """
        if taken := self._checks.get(name):
            raise InvalidPlugin(f"health check {name!r} is contributed by {taken.owner} and by {self._owner}")
        self._checks[name] = HealthCheck(name, check, self._owner, live)

    def __iter__(self) -> Iterator[HealthCheck]:
        return iter(tuple(self._checks.values()))

    def __len__(self) -> int:
        return len(self._checks)
