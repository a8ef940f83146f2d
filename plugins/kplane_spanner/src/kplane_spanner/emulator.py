"""Google's Spanner emulator for tests and trials: found on this machine, never downloaded.

It is one program without dependencies, and keeps everything in memory. It comes with the Google Cloud CLI (`gcloud
components install cloud-spanner-emulator`, or the Debian package google-cloud-cli-spanner-emulator).
"""

import os
import re
import shutil
import subprocess
import threading
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


def missing() -> str:
    """Return one line that says that nothing was tested and how to get the emulator; empty where there is one."""
    try:
        find_program()
    except NoEmulator as error:
        return f"Spanner was not tested: {error}"
    return ""


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
        address: host and port; empty while it never ran.

    Args:
        flags: further flags of the program.
    """

    def __init__(self, *flags: str) -> None:
        self.address = ""
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self._drain: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """The process's number; 0 while none runs."""
        return self._process.pid if self._process else 0

    def start(self) -> str:
        """Start it, at the address that it had before if it ran before, and return the address.

        This takes some ten milliseconds, in which the thread is blocked.

        Raises:
            NoEmulator: it is not installed.
            KplaneError: it did not start.
        """
        command = [str(find_program()), "--host_port", self.address or "127.0.0.1:0", *self._flags]
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command, no shell
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        timer = threading.Timer(_READY_WITHIN, self._process.kill)
        timer.start()
        try:
            self.address = self._announced()
        finally:
            timer.cancel()
        # A pipe that nobody reads fills up and stops the program.
        self._drain = threading.Thread(target=self._read_on, args=(self._process,), daemon=True)
        self._drain.start()
        return self.address

    def _announced(self) -> str:
        assert self._process is not None
        assert self._process.stderr is not None
        said = b""
        for line in self._process.stderr:
            said += line
            if match := _ADDRESS.search(line):
                return match[1].decode()
        self.stop()
        raise KplaneError(f"the Spanner emulator did not start: {said.decode(errors='replace').strip() or 'no reason'}")

    @staticmethod
    def _read_on(process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        while process.stderr.read(65536):
            continue

    def stop(self) -> None:
        """End it; idempotent."""
        if self._process is not None:
            self._process.terminate()
            self._wait()

    def kill(self) -> None:
        """End it as a crash does; idempotent."""
        if self._process is not None:
            self._process.kill()
            self._wait()

    def _wait(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        assert process.stderr is not None
        try:
            process.wait(_STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._drain is not None:
            self._drain.join()
            self._drain = None
        process.stderr.close()
