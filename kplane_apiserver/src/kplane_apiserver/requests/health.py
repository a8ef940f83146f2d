"""Health: `/livez`, `/readyz` and `/healthz`, whole or check by check, as kubectl and load balancers ask for them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from urllib.parse import parse_qsl

from kplane_apiserver.storing.stores import StoreSet
from kplane_apiserver.wire.http import Request, Response
from kplane_core.engine.factory import Connection
from kplane_core.errors import KplaneError
from kplane_core.plugins.checks import HealthCheck

_log = logging.getLogger(__name__)

Check = Callable[[], Awaitable[None]]
"""Raises a KplaneError when something is wrong."""

PATHS = frozenset({"livez", "readyz", "healthz"})
CHECK_SECONDS = 2.0
"""What a plugin's check may take."""

_TEXT = b"text/plain; charset=utf-8"


async def _ping() -> None:
    """Succeed: that the server answers is what is checked."""


class Health:
    """The checks behind the health paths.

    Args:
        connection: the backend; it bounds how often a check really asks the database.
        is_draining: whether the server is about to stop.
        stores: the caches.
        more: further checks, for example of plugins; each gets a few seconds.
    """

    def __init__(
        self, connection: Connection, is_draining: Callable[[], bool], stores: StoreSet, more: Iterable[HealthCheck]
    ) -> None:
        self._is_draining = is_draining
        self._stores = stores
        alive: dict[str, Check] = {"ping": _ping, "storage": connection.check_health}
        ready: dict[str, Check] = {"ping": _ping, "storage-readiness": connection.check_ready}
        ready["shutdown"] = self._not_draining
        for one in more:
            ready[one.name] = bounded(one)
            if one.live:
                alive[one.name] = ready[one.name]
        self._checks: Mapping[str, Mapping[str, Check]] = {"livez": alive, "healthz": alive, "readyz": ready}

    async def respond(self, request: Request) -> Response:
        """Answer `/livez`, `/readyz` or `/healthz`, whole or for one check; 500 when one fails.

        `verbose` lists the checks, and `exclude=NAME`, repeatable, leaves some out.
        """
        which, *only = request.route.path
        checks = self._checks[which]
        if only:
            if len(only) > 1 or only[0] not in checks:
                known = ", ".join(checks)
                return Response(f"no such check; {which} has: {known}\n".encode(), 404, _TEXT)
            checks = {only[0]: checks[only[0]]}
        query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        excluded = {value for key, value in query if key == "exclude"}
        lines, failed = [], False
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            try:
                await check()
            except KplaneError as error:
                _log.warning("%s: the check %s failed: %s", which, name, error)
                # The reason can tell of the inside of the system, and anybody may ask: it stands in the log alone.
                failed = True
                lines.append(f"[-]{name} failed: reason withheld")
            else:
                lines.append(f"[+]{name} ok")
        if which == "readyz" and not only:
            lines.append(self._caches())
        if failed:
            return Response("\n".join([*lines, f"{which} check failed", ""]).encode(), 500, _TEXT)
        if "verbose" not in request.query:
            return Response(b"ok", 200, _TEXT)
        return Response("\n".join([*lines, f"{which} check passed", ""]).encode(), 200, _TEXT)

    def _caches(self) -> str:
        """Return a line about the watch caches.

        One that is being filled makes its own resource wait, and no other: the server as a whole is ready all the same.
        """
        waiting = [name for name, store in self._stores.caches() if not store.cacher.readiness.ready]
        return f"[+]watch-caches ok{': not ready: ' + ', '.join(sorted(waiting)) if waiting else ''}"

    async def _not_draining(self) -> None:
        if self._is_draining():
            raise KplaneError("the server is shutting down")


def bounded(one: HealthCheck) -> Check:
    """Return a plugin's check with a deadline, and with whatever it raises as the one error that checks raise."""

    async def check() -> None:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await one.check()
        except TimeoutError as error:
            raise KplaneError(f"the check of {one.owner} took longer than {CHECK_SECONDS:g} s") from error
        except KplaneError:
            raise
        except Exception as error:
            raise KplaneError(f"the check of {one.owner} failed: {error!r}") from error

    return check
