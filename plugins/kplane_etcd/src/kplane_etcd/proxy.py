"""A TCP proxy that misbehaves on demand, between a client and a server of a test; production code never loads it."""

import asyncio
import contextlib
from typing import Final

_CHUNK: Final = 1 << 16


class TcpProxy:
    """Forwards bytes on 127.0.0.1, late, not at all, or until it cuts everybody off.

    Attributes:
        port: where it listens; 0 before `start`.
        delay: seconds by which every piece is late.

    Args:
        target: the port on 127.0.0.1 that it forwards to.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self.delay = 0.0
        self._target = target
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusing = False

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def pause(self) -> None:
        """Hold back all bytes from now on; connections stay open, as when a host vanishes."""
        self._flowing.clear()

    async def resume(self) -> None:
        """Let bytes flow, and connections in, again."""
        self._refusing = False
        self._flowing.set()

    async def drop(self) -> None:
        """Cut every connection; new ones are welcome."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def refuse(self) -> None:
        """Cut every connection, and every new one too, until `resume`."""
        self._refusing = True
        await self.drop()

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
        await self.drop()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("kplane-proxy")
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self._refusing:
                return
            with contextlib.suppress(OSError):
                back, forth = await asyncio.open_connection("127.0.0.1", self._target)
                self._writers.add(forth)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._pump(reader, forth), name="kplane-proxy")
                        group.create_task(self._pump(back, writer), name="kplane-proxy")
                finally:
                    self._writers.discard(forth)
                    forth.transport.abort()
        except asyncio.CancelledError:
            return  # `stop` ends it; the streams' own callback would report the cancellation as a fault
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
