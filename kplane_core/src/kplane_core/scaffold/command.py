"""The command: a name becomes a folder, unless the name or the folder is taken."""

# ruff: noqa: T201 - what a command prints is its work

import keyword
import re
from pathlib import Path
from typing import Final

import attrs

from kplane_core.errors import UsageError
from kplane_core.plugins.commands import Command, Parsed
from kplane_core.plugins.discovery import Plugins
from kplane_core.plugins.errors import PROVIDERS
from kplane_core.plugins.flags import Flags, option, path

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@attrs.frozen
class ScaffoldOptions:
    """The flags of `kplane new-backend`."""

    directory: Path | None = option(
        None, parse=path, metavar="DIR", help="the folder to make; by default kplane-NAME where you are"
    )


def _configure(flags: Flags) -> None:
    flags.add("", ScaffoldOptions, title="output", env="KPLANE_NEW_BACKEND_", toml="new-backend")


def _run(parsed: Parsed) -> int:
    # Imported here: every `kplane` command would pay for the templates' machinery.
    from kplane_core.scaffold.render import Names, write  # noqa: PLC0415

    match parsed.words:
        case (name,):
            names = Names(name)
        case ():
            raise UsageError("new-backend needs a name: kplane new-backend NAME")
        case (_, unexpected, *_):
            raise UsageError(f"unexpected argument {unexpected!r}; new-backend takes one name")
    check_name(name, parsed.plugins)
    folder = parsed.options(ScaffoldOptions).directory or Path(names.distribution)
    files = write(names, folder)
    print(f"{folder}: {len(files)} files\n")
    print(f"    pip install -e {folder}")
    print(f"    kplane backends                                              # lists {name}")
    print(f"    pytest --pyargs kplane_conformance --kplane-backend={name:<9} # lists what is left to write")
    return 0


def check_name(name: str, plugins: Plugins) -> None:
    """Refuse a name that a backend cannot have.

    Args:
        name: the backend's name.
        plugins: what is installed.

    Raises:
        UsageError: the name is malformed, a word of Python, or taken.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a backend's name: use lower-case letters, digits and single dashes, as in 'rock-db'"
        )
    if keyword.iskeyword(name.replace("-", "_")):
        raise UsageError(f"{name!r} is a word of Python's own and cannot be a backend's name; choose another one")
    plugins.load_all()
    if name in plugins.installed_names() or name in plugins.backends:
        owner = plugins.backends.owner(name) if name in plugins.backends else plugins.provider(name)
        raise UsageError(f"the name {name!r} is taken by {owner}, which is installed; choose another one")
    if provider := PROVIDERS.get(name):
        raise UsageError(f"the name {name!r} is taken by {provider}; choose another one")


command: Final = Command(
    name="new-backend",
    summary="make a distribution to start a storage backend from",
    configure=_configure,
    run=_run,
    words="NAME",
)
