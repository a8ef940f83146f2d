"""Load on a server: wrk on a core of its own, or a Python client where there is no wrk."""

import asyncio
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from benchmarks.harness.serving import Server, cores, pinned, trusting

WITHOUT_WRK = "measured with a Python client for want of wrk: the client, not the server, is the limit"
_AT_A_TIME = 50

# wrk calls `setup` for each thread and `request` once more than it sends. No name may repeat, so a run has a prefix.
_CREATE = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
local threads = 0
function setup(thread) thread:set("id", threads) threads = threads + 1 end
local made = 0
function request()
  made = made + 1
  return wrk.format(nil, nil, nil, HEAD .. PREFIX .. "-" .. id .. "-" .. made .. TAIL)
end
"""


@attrs.frozen
class Load:
    """What a run of load achieved.

    Attributes:
        wall: answers per second.
        by_cpu: answers per second of the server's processor time; None where the system does not tell.
        note: empty, or why the figure is not what it should be.
    """

    wall: float
    by_cpu: float | None
    note: str = ""


def read_load(server: Server, url: str, *, tries: int, seconds: float, connections: int = 16) -> Load:
    """Ask for one address again and again, and return the best of several runs."""
    return _best([_run(server, url, seconds, connections, None) for _ in range(tries)])


def create_load(
    server: Server, url: str, template: dict[str, Any], *, tries: int, seconds: float, connections: int = 16
) -> Load:
    """Create objects with ever new names, and return the best of several runs."""
    runs = []
    for number in range(tries):
        prefix = f"{template['metadata']['name']}-{number}"
        runs.append(_run(server, url, seconds, connections, (prefix, template)))
    return _best(runs)


def post_all(url: str, documents: Sequence[dict[str, Any]]) -> None:
    """Create objects over one connection, many at a time.

    Raises:
        RuntimeError: the server refused one.
    """
    asyncio.run(_post_all(url, documents))


async def _post_all(url: str, documents: Sequence[dict[str, Any]]) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        for at in range(0, len(documents), _AT_A_TIME):
            batch = documents[at : at + _AT_A_TIME]
            writer.write(b"".join([post(parts.path, document) for document in batch]))
            for _ in batch:
                await _answer(reader)
    finally:
        writer.close()
        await writer.wait_closed()


def post(path: str, document: dict[str, Any], token: str = "") -> bytes:
    """Return the request that creates an object."""
    body = json.dumps(document)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{_authorization(token)}"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


def _best(runs: Sequence[Load]) -> Load:
    by_cpu = [run.by_cpu for run in runs if run.by_cpu is not None]
    return Load(max(run.wall for run in runs), max(by_cpu, default=None), runs[0].note)


def _run(server: Server, url: str, seconds: float, connections: int, create: tuple[str, dict[str, Any]] | None) -> Load:
    used, began = server.cpu_seconds(), time.perf_counter()
    if shutil.which("wrk") is None:
        count, took, note = asyncio.run(_python(server, url, seconds, connections, create)), None, WITHOUT_WRK
    else:
        count, took, note = *_wrk(server, url, seconds, connections, create), ""
    took = took or time.perf_counter() - began
    used = server.cpu_seconds() - used
    return Load(count / took, count / used if used else None, note)


def _wrk(
    server: Server, url: str, seconds: float, connections: int, create: tuple[str, dict[str, Any]] | None
) -> tuple[int, float]:
    pair = cores()
    command = ["wrk", "-t1", f"-c{connections}", f"-d{max(round(seconds), 1)}"]
    if server.token:
        command += ["-H", f"Authorization: Bearer {server.token}"]
    with tempfile.TemporaryDirectory(prefix="kplane-bench-") as folder:
        if create is not None:
            script = Path(folder) / "create.lua"
            script.write_text(_script(*create), encoding="utf-8")
            command += ["-s", str(script)]
        command = pinned(None if pair is None else pair[1], [*command, url])
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    if refused:
        raise RuntimeError(f"{refused[1]} requests to {url} were refused:\n{said}")
    sent = re.search(r"(\d+) requests in ([\d.]+)(m?s)", said)
    if sent is None:
        raise RuntimeError(f"wrk said something else than expected:\n{said}")
    return int(sent[1]), float(sent[2]) / (1000 if sent[3] == "ms" else 1)


def _script(prefix: str, template: dict[str, Any]) -> str:
    head, tail = json.dumps(template).split(template["metadata"]["name"], 1)
    return f"local HEAD, PREFIX, TAIL = [[{head}]], [[{prefix}]], [[{tail}]]\n{_CREATE}"


async def _python(
    server: Server, url: str, seconds: float, connections: int, create: tuple[str, dict[str, Any]] | None
) -> int:
    parts, context = urlsplit(url), trusting() if server.tls else None
    until = time.perf_counter() + seconds
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path

    async def client(number: int) -> int:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
        count = 0
        try:
            while time.perf_counter() < until:
                writer.write(_request(target, create, f"{number}-{count}", server.token))
                await _answer(reader)
                count += 1
        finally:
            writer.close()
            await writer.wait_closed()
        return count

    return sum(await asyncio.gather(*(client(number) for number in range(connections))))


def _request(target: str, create: tuple[str, dict[str, Any]] | None, name: str, token: str) -> bytes:
    if create is None:
        return f"GET {target} HTTP/1.1\r\nhost: localhost\r\n{_authorization(token)}\r\n".encode()
    prefix, template = create
    return post(target, {**template, "metadata": {**template["metadata"], "name": f"{prefix}-{name}"}}, token)


def _authorization(token: str) -> str:
    return f"authorization: Bearer {token}\r\n" if token else ""


async def _answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 2"):
        raise RuntimeError(f"refused: {head!r}")
    length = re.search(rb"content-length: (\d+)", head)
    if length is not None:
        await reader.readexactly(int(length[1]))
        return
    while size := int(await reader.readuntil(b"\r\n"), 16):
        await reader.readexactly(size + 2)
    await reader.readexactly(2)
