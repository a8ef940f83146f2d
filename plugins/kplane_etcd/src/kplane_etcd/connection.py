"""The connection of a process to etcd: stores, health, readiness, compaction, and a look at the members."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence

import attrs

from kplane_core.engine.factory import CompactionPolicy, EngineConnection, Probe
from kplane_core.engine.interface import EngineUnreachable
from kplane_core.errors import KplaneError, Unreachable
from kplane_core.metrics import Sample
from kplane_etcd import wire
from kplane_etcd.client import EtcdClient
from kplane_etcd.compactor import Compactor
from kplane_etcd.endpoints import Endpoint
from kplane_etcd.engine import EtcdEngine
from kplane_etcd.errors import DatabaseFull
from kplane_etcd.features import Features, features_of
from kplane_etcd.lease import LeaseManager
from kplane_etcd.methods import STATUS
from kplane_etcd.metrics import Metrics
from kplane_etcd.transport import Transport

_log = logging.getLogger(__name__)
_LOOK_TIMEOUT = 2.0


@attrs.frozen
class Settings:
    """How a connection behaves; all times in seconds.

    Attributes:
        prefix: what precedes every store's keys.
        compaction_interval: between compactions; 0 leaves them to others.
        compaction_poll: between looks at what others compacted.
        health_timeout: for the health check.
        ready_timeout: for the readiness check.
        poll_interval: between looks at the members' version, size and alarms; 0 looks once only.
        dial_timeout: for the first contact.
        lease_reuse: by which a lease may be longer than asked, at most.
        lease_objects: records per lease.
    """

    prefix: str = "/registry"
    compaction_interval: float = 300.0
    compaction_poll: float = 15.0
    health_timeout: float = 2.0
    ready_timeout: float = 2.0
    poll_interval: float = 30.0
    dial_timeout: float = 20.0
    lease_reuse: float = 60.0
    lease_objects: int = 1000


class Members:
    """What is known of the members: their versions, sizes and complaints.

    A member that does not answer keeps what was known of it; one that never answered counts as soon as it does.

    Args:
        transport: to them.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._versions: dict[str, str] = {}
        self.features = Features(progress=False, compaction_edge=False, reason="no member of etcd has answered yet")

    @property
    def versions(self) -> Sequence[str]:
        """The versions of those that answered, each once."""
        return tuple(dict.fromkeys(self._versions.values()))

    async def look(self, within: float = _LOOK_TIMEOUT) -> dict[str, KplaneError]:
        """Ask every member how it is; return who failed to answer."""
        endpoints = self._transport.endpoints
        answers = await asyncio.gather(*(self._ask(endpoint, within) for endpoint in endpoints))
        failed = {}
        for endpoint, answer in zip(endpoints, answers, strict=True):
            if isinstance(answer, KplaneError):
                failed[endpoint.url] = answer
                continue
            self._versions[endpoint.url] = answer.version
            self._transport.metrics.sizes[endpoint.url] = answer.dbSize
        if self._versions:
            before, self.features = self.features, features_of(self._versions.values())
            if self.features.reason and self.features != before:
                _log.warning("consistent lists go to etcd instead of the watch cache: %s", self.features.reason)
        return failed

    async def _ask(self, endpoint: Endpoint, within: float) -> wire.StatusResponse | KplaneError:
        try:
            return await self._transport.ask(endpoint, STATUS, wire.StatusRequest(), within=within)
        except KplaneError as error:
            return error


class EtcdConnection(EngineConnection):
    """A Connection to etcd.

    Attributes:
        members: what is known of them.
        compactor: this process's part in the compaction.

    Args:
        transport: to etcd; closed with this connection.
        settings: how to behave.
    """

    def __init__(self, transport: Transport, settings: Settings | None = None) -> None:
        self._settings = settings = settings or Settings()
        self._transport = transport
        self._client = EtcdClient(transport)
        self.members = Members(transport)
        leases = LeaseManager(transport, reuse=settings.lease_reuse, max_objects=settings.lease_objects)
        engine = EtcdEngine(
            self._client,
            leases,
            health_key=f"{settings.prefix}/health",
            patience=transport.timeout,
            features=lambda: self.members.features,
        )
        super().__init__(
            engine,
            path_prefix=settings.prefix,
            compaction=CompactionPolicy(interval=0.0, poll=settings.compaction_poll),
            timeout=settings.health_timeout,
        )
        self.compactor = Compactor(self._client, self.compact)
        self._ready = Probe(self._check_writable, timeout=settings.ready_timeout, fresh=settings.ready_timeout / 2)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def features(self) -> Features:
        """What the members can be trusted with."""
        return self.members.features

    @property
    def metrics(self) -> Metrics:
        """What was counted."""
        return self._transport.metrics

    def samples(self) -> Iterable[Sample]:
        """Yield what was counted, for the server's metrics page."""
        return self._transport.metrics.samples()

    async def start(self) -> None:
        """Make the first contact, then take part in compaction and watch the members; `aclose` ends that.

        Raises:
            Unreachable: no member answered in time; says what each of them failed with.
        """
        await self._first_contact()
        await super().start()  # looks at what others compacted
        settings = self._settings
        if settings.compaction_interval:
            loop = self.compactor.run(settings.compaction_interval)
            self._tasks.append(asyncio.create_task(loop, name="kplane-etcd-compaction"))
        if settings.poll_interval:
            self._tasks.append(asyncio.create_task(self._keep_looking(), name="kplane-etcd-monitor"))

    async def _first_contact(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.dial_timeout
        while True:
            left = max(deadline - loop.time(), 0.01)
            failed = await self.members.look(min(left, 5.0))
            if self.members.versions:
                break
            if loop.time() + 0.2 >= deadline:
                raise Unreachable("", "; ".join(f"{url}: {error}" for url, error in failed.items()))
            await asyncio.sleep(0.2)
        try:
            await self.engine.check()
        except EngineUnreachable as error:
            raise Unreachable("", str(error)) from error

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._settings.poll_interval)
            for url, error in (await self.members.look()).items():
                _log.warning("%s does not tell how it is: %s", url, error)

    async def check_ready(self) -> None:
        """Return when etcd answers reads and takes writes.

        Raises:
            Unreachable: it does not answer, or says that its space is used up.
        """
        await self._ready()

    async def _check_writable(self) -> None:
        await self.engine.check()
        status = await self._client.status()
        if any("NOSPACE" in complaint for complaint in status.errors):
            raise EngineUnreachable(str(DatabaseFull()))

    async def aclose(self) -> None:
        """Close everything; idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._ready.aclose()
        await super().aclose()
