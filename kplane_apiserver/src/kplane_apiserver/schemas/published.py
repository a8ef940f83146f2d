"""The schemas that Kubernetes publishes for the builtin kinds, as `tools/generate_openapi.py` packed them.

Nothing is read before somebody asks for a document, and then only the packages that the document needs.
"""

import gzip
import hashlib
import re
from collections.abc import Iterable
from functools import cache, lru_cache

import msgspec

from kplane_apiserver.kinds import DATA

FOLDER = DATA / "openapi"
_REFERENCE = re.compile(rb'"#/components/schemas/([^"]+)"')
_PACKAGE = msgspec.json.Decoder(dict[str, msgspec.Raw])


def definition_names(group: str, version: str, kinds: Iterable[str]) -> list[str]:
    """Return the names of the definitions of some builtin kinds of one group and version; unknown ones are left out."""
    package = _package(f"{group.partition('.')[0] or 'core'}.{version}")
    wanted = frozenset(kinds)
    return [name for name in package if name.rpartition(".")[2] in wanted]


def closure(names: Iterable[str]) -> dict[str, bytes]:
    """Return definitions and all that they refer to, each as JSON.

    Raises:
        KeyError: there is no such definition.
    """
    found: dict[str, bytes] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            body = found[name] = bytes(_package(".".join(name.split(".")[-3:-1]))[name])
            pending.extend(reference.decode() for reference in _REFERENCE.findall(body))
    return found


@cache
def digest() -> str:
    """Return what tells these schemas from those of another release, without unpacking them."""
    hashed = hashlib.blake2b(digest_size=16)
    for path in sorted(FOLDER.glob("*.json.gz")):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


@lru_cache(maxsize=6)
def _package(name: str) -> dict[str, msgspec.Raw]:
    path = FOLDER / f"{name}.json.gz"
    return _PACKAGE.decode(gzip.decompress(path.read_bytes())) if path.exists() else {}
