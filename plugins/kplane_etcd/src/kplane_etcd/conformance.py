"""What the conformance suite needs to try the etcd backend; production code never loads it."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kplane_core.plugins.capabilities import Capability, Support
from kplane_etcd.connection import EtcdConnection, Settings
from kplane_etcd.endpoints import Endpoint, TlsFiles
from kplane_etcd.plugin import CAPABILITIES
from kplane_etcd.servers import EtcdServer, find
from kplane_etcd.transport import Transport

if TYPE_CHECKING:
    from kplane_core.engine.factory import Connection


class Faults:
    """Breaks the way to an etcd on purpose, as the suite asks for it.

    Args:
        server: the etcd.
    """

    def __init__(self, server: EtcdServer) -> None:
        self._server = server

    async def pause(self) -> None:
        """Let etcd stand still; connections stay open."""
        await asyncio.to_thread(self._server.pause)

    async def resume(self) -> None:
        """Let etcd go on."""
        self._server.resume()

    async def drop(self) -> None:
        """Cut every connection; etcd is there again at once, on the same data."""
        await asyncio.to_thread(self._server.kill)
        await self._server.start()


class EtcdHarness:
    """One etcd process, to which every `connect` is another connection.

    Attributes:
        name: the backend's name.
        silence: seconds without an event after which there is none.
        fault: breaks the connections on purpose.
    """

    name = "etcd"
    silence = 0.3

    def __init__(self) -> None:
        self._server: EtcdServer | None = None
        self.fault: Faults

    @property
    def server_version(self) -> str:
        """The version of the database and where it comes from, for the certificate."""
        return str(find())

    @property
    def capabilities(self) -> Mapping[Capability, Support]:
        """What the backend can do on this etcd, which is less than it can do on a newer one."""
        return find().features.capabilities(CAPABILITIES)

    @property
    def without(self) -> Mapping[str, str]:
        """Which hooks there are not, and why."""
        found = {"clock": "etcd counts the time of its leases itself"}
        if not find().can_jump:
            found["restore"] = f"the tools of etcd {find().version} cannot let the revision jump (--bump-revision)"
        return found

    async def start(self) -> None:
        """Start etcd."""
        binary = find()
        # Unasked progress is short only where it may be asked for: elsewhere it must not come during a case.
        interval = "--watch-progress-notify-interval"  # experimental until 3.5
        flag = interval if binary.knows(interval) else interval.replace("--", "--experimental-")
        flags = [f"{flag}=500ms"] if binary.features.progress else []
        self._server = EtcdServer(binary, flags=flags)
        await self._server.start()
        self.fault = Faults(self._server)

    async def stop(self) -> None:
        """Stop it, and remove the data."""
        if self._server is not None:
            await asyncio.to_thread(self._server.remove)
        self._server = None

    async def restart(self) -> None:
        """Kill etcd and start it on the same data."""
        assert self._server is not None
        await asyncio.to_thread(self._server.kill)
        await self._server.start()

    async def backup(self) -> Path:
        """Save a snapshot."""
        assert self._server is not None
        return await asyncio.to_thread(self._server.save)

    async def restore(self, backup: Path) -> None:
        """Put a snapshot back as the README tells operators to."""
        assert self._server is not None
        await asyncio.to_thread(self._server.put_back, backup)

    async def connect(self) -> "Connection":
        """Return a new connection to etcd."""
        assert self._server is not None
        transport = Transport([Endpoint(self._server.url, TlsFiles())])
        connection = EtcdConnection(transport, Settings(compaction_interval=0.0))
        try:
            await connection.start()
        except BaseException:
            await connection.aclose()
            raise
        return connection

    def shared_task(self, task: "asyncio.Task[object]") -> bool:
        """Return whether a task belongs to a connection rather than to a case."""
        return task.get_name() in {
            "kplane-compaction",
            "kplane-probe",
            "kplane-etcd-monitor",
            "kplane-etcd-lease",
        }


def harness() -> EtcdHarness:
    """Return a new harness; the suite finds this function through the entry point."""
    return EtcdHarness()
