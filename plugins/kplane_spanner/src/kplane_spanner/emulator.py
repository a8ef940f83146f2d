"""Google's Spanner emulator for tests and trials: found on this machine, never downloaded.

It is one program without dependencies, and keeps everything in memory. It comes with the Google Cloud CLI (`gcloud
components install cloud-spanner-emulator`, or the Debian package google-cloud-cli-spanner-emulator).
"""

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kplane_core.errors import KplaneError

PROGRAM: Final = "emulator_main"
VARIABLE: Final = "KPLANE_SPANNER_EMULATOR"
_FOLDER: Final = Path("cloud_spanner_emulator") / PROGRAM
_ADDRESS: Final = re.compile(rb"Server address: (\S+)")
_READY_WITHIN: Final = 20.0
_STOPPED_WITHIN: Final = 5.0

HOW_TO_GET: Final = (
    "install the Google Cloud CLI's emulator (gcloud components install cloud-spanner-emulator, or the package "
    f"google-cloud-cli-spanner-emulator), put {PROGRAM} on PATH, name it in ${VARIABLE}, or start one and set "
    "$SPANNER_EMULATOR_HOST"
)


class NoEmulator(KplaneError):
    """No emulator is installed here."""

    def __init__(self) -> None:
        super().__init__(f"Google's Spanner emulator is not on this machine: {HOW_TO_GET}")


def find_program() -> Path:
    """Return where the emulator is.

    Raises:
        NoEmulator: nowhere, or $KPLANE_SPANNER_EMULATOR names no program.
    """
    if named := os.environ.get(VARIABLE):
        if shutil.which(named) is None:
            raise NoEmulator
        return Path(named)
    for candidate in _candidates():
        if os.access(candidate, os.X_OK) and candidate.is_file():
            return candidate
    raise NoEmulator


def _candidates() -> Iterator[Path]:
    if found := shutil.which(PROGRAM):
        yield Path(found)
    if gcloud := shutil.which("gcloud"):
        yield Path(gcloud).resolve().parent / _FOLDER
    for home in (Path("/usr/lib"), Path("/usr/share"), Path("/opt"), Path.home()):
        yield home / "google-cloud-sdk" / "bin" / _FOLDER


class Emulator:
    """One running emulator; all its data ends with it.

    Attributes:
        address: host and port; empty while none runs.

    Args:
        flags: further flags of the program.
    """

    def __init__(self, *flags: str) -> None:
        self.address = ""
        self._flags = flags
        self._process: asyncio.subprocess.Process | None = None
        self._drain: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process's number; 0 when none is ours."""
        return self._process.pid if self._process else 0

    async def start(self) -> str:
        """Start it, on the address it had before if it ran before, and return the address.

        Raises:
            NoEmulator: it is not installed.
            KplaneError: it did not start.
        """
        program = find_program()
        # A program file that moved would be found here as well; a shell is never involved.
        self._process = await asyncio.create_subprocess_exec(
            str(program),
            "--host_port",
            self.address or "127.0.0.1:0",
            *self._flags,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_READY_WITHIN):
                self.address = await self._announced()
        except TimeoutError as error:
            await self.stop()
            raise KplaneError(f"the Spanner emulator {program} did not start within {_READY_WITHIN:g} s") from error
        self._drain = asyncio.create_task(self._read_on(), name="kplane-spanner-emulator")
        return self.address

    async def _announced(self) -> str:
        assert self._process is not None
        assert self._process.stderr is not None
        said = b""
        async for line in self._process.stderr:
            said += line
            if match := _ADDRESS.search(line):
                return match[1].decode()
        raise KplaneError(f"the Spanner emulator ended before it was ready: {said.decode(errors='replace').strip()}")

    async def _read_on(self) -> None:
        # A pipe that nobody reads fills up and stops the program.
        assert self._process is not None
        assert self._process.stderr is not None
        while await self._process.stderr.read(65536):
            continue

    async def stop(self) -> None:
        """End it; idempotent."""
        await self._end(kill=False)

    async def kill(self) -> None:
        """End it as a crash does."""
        await self._end(kill=True)

    async def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            if kill:
                process.kill()
            else:
                process.terminate()
        try:
            async with asyncio.timeout(_STOPPED_WITHIN):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._drain is not None:
            await asyncio.wait([self._drain])
            self._drain = None
