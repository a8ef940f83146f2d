"""Reading: bytes in, bytes out. An object is parsed only where a table or its metadata alone was asked for."""

from collections.abc import Callable, Iterator, Sequence

import attrs
import msgspec

from kplane_apiserver.printers.tables import (
    IncludeObject,
    parse_include_object,
    partial_metadata,
    partial_metadata_list,
    table_for_list,
    table_for_object,
)
from kplane_apiserver.requests.params import list_options
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.wire.http import LargeResponse, Request, Response
from kplane_apiserver.wire.negotiate import Form, negotiate
from kplane_core.storage.interface import GetOptions, ObjectList, StoredObject

YAML = b"application/yaml"
PIECE = 64 * 1024
"""Bytes of a long list that are made and sent at a time: few enough to be in the processor's cache still when sent."""

Mark = Callable[[StoredObject], StoredObject]
"""What becomes of an object before it is shown."""

_SHORT = 512
_FIRST_ITEMS = 32


async def get(request: Request, served: Served) -> Response:
    """Answer with one object.

    Raises:
        KplaneError: as `Store.get` does; NotAcceptable.
    """
    route = request.route
    form = negotiate(request.header(b"accept"))
    version = request.query.get("resourceVersion")
    stored = await served.store.get(
        served.key(route.cluster, route.namespace, route.name),
        GetOptions(resource_version=version) if version else None,
    )
    return object_response(request, served, stored, form)


def object_response(request: Request, served: Served, stored: StoredObject, form: Form, status: int = 200) -> Response:
    """Return the answer with one object in the form that the client asked for."""
    match form:
        case Form.OBJECT:
            return Response(served.data(stored), status)
        case Form.TABLE:
            include = include_object(request)
            return Response(table_for_object(served.kind, stored, include, object_bytes=served.data), status)
        case Form.PARTIAL:
            return Response(partial_metadata(stored), status)
        case Form.YAML:
            return Response(as_yaml(served.data(stored)), status, YAML)


async def get_list(request: Request, served: Served) -> Response:
    """Answer with a page of objects, from one namespace or all.

    Raises:
        KplaneError: as `Store.get_list` does; InvalidError for parameters that exclude each other; NotAcceptable.
    """
    route = request.route
    form = negotiate(request.header(b"accept"))
    options = list_options(request, served)
    key, recursive = served.scope(route.cluster, route.namespace, options.predicate)
    if not recursive:
        options = attrs.evolve(options, recursive=False)
    page = await served.store.get_list(key, options)
    return list_response(request, served, page, form)


def list_response(request: Request, served: Served, page: ObjectList, form: Form, mark: Mark | None = None) -> Response:
    """Return the answer with a page of objects in the form that the client asked for.

    Args:
        request: what asked for it.
        served: what the objects are.
        page: the objects.
        form: how the client wants them.
        mark: what becomes of each object first; of a long list, while it is sent.
    """
    if form is Form.OBJECT:
        return _object_list(served, page, mark)
    if mark is not None:
        page = ObjectList(tuple(map(mark, page.items)), page.revision, page.continue_token, page.remaining)
    match form:
        case Form.TABLE:
            include = include_object(request)
            return Response(table_for_list(served.kind, page, include, object_bytes=served.data))
        case Form.PARTIAL:
            return Response(partial_metadata_list(page))
        case _:
            return Response(as_yaml(_joined(served, page, None)), 200, YAML)


def include_object(request: Request) -> IncludeObject:
    """Return what a table's rows carry of their objects.

    Raises:
        BadRequest: the client asked for something else.
    """
    return parse_include_object(request.query.get("includeObject", ""))


def as_yaml(body: bytes) -> bytes:
    """Return JSON as YAML."""
    import yaml  # noqa: PLC0415 (many servers never write YAML, and PyYAML loads slowly)

    text: str = yaml.dump(msgspec.json.decode(body), Dumper=yaml.CSafeDumper, sort_keys=False)
    return text.encode()


def _start_of(served: Served, page: ObjectList) -> bytes:
    """Return a list's JSON up to its first item."""
    start = served.list_head + b'%d"' % page.revision
    if page.continue_token:
        start += b',"continue":' + msgspec.json.encode(page.continue_token)
        if page.remaining is not None:
            start += b',"remainingItemCount":%d' % page.remaining
    return start + b'},"items":['


def _joined(served: Served, page: ObjectList, mark: Mark | None) -> bytes:
    """Join a list's JSON with ONE copy of the items: a second copy of a large list costs more than the list."""
    items = _data_of(served, page.items, mark)
    start = _start_of(served, page)
    if not items:
        return start + b"]}"
    items[0] = start + items[0]
    items[-1] += b"]}"
    return b",".join(items)


def _data_of(served: Served, items: Sequence[StoredObject], mark: Mark | None) -> list[bytes]:
    return served.data_of(items if mark is None else list(map(mark, items)))


def _object_list(served: Served, page: ObjectList, mark: Mark | None) -> Response:
    """Answer with the list: at once when it is short, else piece by piece."""
    if len(page.items) <= _SHORT and sum([len(stored.raw) for stored in page.items]) <= PIECE:
        return Response(_joined(served, page, mark))
    return LargeResponse(_pieces(served, page.items, _start_of(served, page), mark))


def _pieces(served: Served, items: Sequence[StoredObject], opening: bytes, mark: Mark | None = None) -> Iterator[bytes]:
    at, count = 0, _FIRST_ITEMS
    while at < len(items):
        part = _data_of(served, items[at : at + count], mark)
        at += len(part)
        part[0] = opening + part[0]
        if at == len(items):
            part[-1] += b"]}"
        piece = b",".join(part)
        yield piece
        # The next piece has about the right size if its objects are like these.
        count = min(max(PIECE * len(part) // len(piece), 1), 4 * count)
        opening = b","
