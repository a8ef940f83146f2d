"""Templates to files."""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Final

import attrs

from kplane_core import __version__
from kplane_core.errors import UsageError

_SUFFIX: Final = ".tmpl"


@attrs.frozen
class Names:
    """What a backend is called in the places where it has a name.

    Attributes:
        backend: as operators select it, for example `rock-db`.
    """

    backend: str

    @property
    def distribution(self) -> str:
        """As it is installed: `kplane-rock-db`."""
        return f"kplane-{self.backend}"

    @property
    def package(self) -> str:
        """As it is imported: `kplane_rock_db`."""
        return self.distribution.replace("-", "_")

    @property
    def title(self) -> str:
        """As its classes begin: `RockDb`."""
        return "".join(part.capitalize() for part in self.backend.split("-"))

    def values(self) -> dict[str, str]:
        """Return what the templates may name."""
        major, minor, *_ = __version__.split(".")
        return {
            "backend": self.backend,
            "distribution": self.distribution,
            "package": self.package,
            "title": self.title,
            "variable": self.package.upper(),
            "core": f"{major}.{minor}",
            "next_core": f"{major}.{int(minor) + 1}",
        }


def write(names: Names, folder: Path) -> Sequence[Path]:
    """Make the folder and everything in it, and return the files, relative to it.

    Raises:
        UsageError: the folder exists, or cannot be made.
    """
    try:
        folder.mkdir()
    except FileExistsError:
        raise UsageError(f"{str(folder)!r} exists and is left as it is; name another folder by --directory") from None
    except OSError as error:
        raise UsageError(f"the folder {str(folder)!r} cannot be made: {error.strerror}") from error
    written = []
    for relative, text in rendered(names):
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        written.append(relative)
    return written


def rendered(names: Names) -> Iterator[tuple[Path, str]]:
    """Yield every file of the distribution with its text."""
    values = names.values()
    for relative, template in _templates(files(__package__) / "templates", Path()):
        text = Template(template.read_text(encoding="utf-8")).substitute(values)
        yield Path(Template(str(relative)).substitute(values)), text


def _templates(folder: Traversable, relative: Path) -> Iterator[tuple[Path, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        # A leading dot would hide a file from some packers.
        name = entry.name.replace("dot-", ".", 1) if entry.name.startswith("dot-") else entry.name
        if entry.is_dir():
            if name != "__pycache__":
                yield from _templates(entry, relative / name)
        elif name.endswith(_SUFFIX):
            yield relative / name.removesuffix(_SUFFIX), entry
