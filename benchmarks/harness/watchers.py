"""Many watches of one cluster over HTTP, and how fast events reach all of them."""

import asyncio
import json
import time

from benchmarks.harness.load import Load, post
from benchmarks.harness.serving import Server
from benchmarks.harness.workload import config_map

_PATH = "/clusters/{cluster}/control-plane/api/v1/namespaces/default/configmaps"
_EVENT = b'{"type":"ADDED"'
_NOTE = "events are created over one connection that pipelines; creation is part of the time"
_WAIT = 60.0


class _Watcher(asyncio.Protocol):
    """Counts the events that reach one watch, as cheaply as Python can."""

    def __init__(self, request: bytes, expected: int) -> None:
        self._request = request
        self._expected = expected
        self._tail = b""
        self._seen = 0
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            if data.startswith(b"HTTP/1.1 200"):
                self.opened.set_result(None)
            else:
                self.opened.set_exception(RuntimeError(f"the watch was refused: {data!r}"))
        found = self._tail + data
        self._seen += found.count(_EVENT)
        self._tail = found[1 - len(_EVENT) :]  # too short to count an event twice
        if self._seen >= self._expected and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        for future in (self.opened, self.done):
            if not future.done():
                future.set_exception(error or RuntimeError("the server ended the watch"))


def watch_load(server: Server, *, watchers: int, events: int, tries: int) -> Load:
    """Open watches, create objects, and return the deliveries per second of the best try."""
    runs = [asyncio.run(_run(server, f"watched-{watchers}-{number}", watchers, events)) for number in range(tries)]
    by_cpu = [run.by_cpu for run in runs if run.by_cpu is not None]
    return Load(max(run.wall for run in runs), max(by_cpu, default=None), _NOTE)


async def _run(server: Server, cluster: str, watchers: int, events: int) -> Load:
    loop = asyncio.get_running_loop()
    path = _PATH.format(cluster=cluster)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(post(path, config_map("first")))
    version = json.loads(await _body(reader))["metadata"]["resourceVersion"]
    watch = f"GET {path}?watch=1&resourceVersion={version} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    connections = [
        await loop.create_connection(lambda: _Watcher(watch, events), "127.0.0.1", server.port) for _ in range(watchers)
    ]
    protocols = [protocol for _, protocol in connections]
    try:
        async with asyncio.timeout(_WAIT):
            await asyncio.gather(*(protocol.opened for protocol in protocols))
            used, began = server.cpu_seconds(), time.perf_counter()
            writer.write(b"".join([post(path, config_map(f"event-{number}")) for number in range(events)]))
            await asyncio.gather(*(protocol.done for protocol in protocols))
            took, used = time.perf_counter() - began, server.cpu_seconds() - used
    finally:
        for transport, _ in connections:
            transport.close()
        writer.close()
        await asyncio.sleep(0)  # let the transports close before the loop does
    count = watchers * events
    return Load(count / took, count / used if used else None)


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return await reader.readexactly(int(length))
