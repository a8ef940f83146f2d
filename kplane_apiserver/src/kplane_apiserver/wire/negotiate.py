"""What an Accept header asks for: the object itself, a table of it, or its metadata alone."""

from collections.abc import Iterator
from enum import Enum, auto

from kplane_apiserver.apierrors import NotAcceptable

_CACHE_SIZE = 256
_META_GROUP = "meta.k8s.io"
_META_VERSIONS = frozenset({"v1", "v1beta1"})


class Form(Enum):
    """The form of an answer."""

    OBJECT = auto()
    YAML = auto()
    TABLE = auto()
    PARTIAL = auto()


_AS = {"Table": Form.TABLE, "PartialObjectMetadata": Form.PARTIAL, "PartialObjectMetadataList": Form.PARTIAL}
_JSON_TYPES = frozenset({"application/json", "application/*", "*/*"})
_YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})
ACCEPTED = ("application/json", "application/yaml")

# The usual clients send the same few headers for ever.
_recent: dict[bytes, Form] = {b"": Form.OBJECT, b"application/json": Form.OBJECT, b"*/*": Form.OBJECT}


def negotiate(accept: bytes) -> Form:
    """Return the first form among those asked for that the server can produce.

    Protobuf is never produced; every client that asks for it lists JSON behind it.

    Args:
        accept: the Accept header; empty takes anything.

    Raises:
        NotAcceptable: none of them can be produced.
    """
    form = _recent.get(accept)
    if form is None:
        form = _parse(accept)
        if len(_recent) >= _CACHE_SIZE:
            _recent.clear()
        _recent[accept] = form
    return form


def _parse(accept: bytes) -> Form:
    clauses = sorted(_clauses(accept.decode("latin-1")), key=lambda clause: -clause[0])
    for quality, media_type, parameters in clauses:
        form = _form(media_type, parameters) if quality > 0 else None
        if form is not None:
            return form
    raise NotAcceptable(ACCEPTED)


def _clauses(accept: str) -> Iterator[tuple[float, str, dict[str, str]]]:
    for clause in accept.split(","):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 1.0
        yield quality, media_type.lower(), parameters


def _form(media_type: str, parameters: dict[str, str]) -> Form | None:
    if media_type in _YAML_TYPES:
        return Form.YAML if "as" not in parameters else None
    if media_type not in _JSON_TYPES:
        return None
    if "as" not in parameters:
        return Form.OBJECT
    if parameters.get("g") != _META_GROUP or parameters.get("v") not in _META_VERSIONS:
        return None
    return _AS.get(parameters["as"])
