"""Reading: bytes in, bytes out. An object is parsed only where a table or its metadata alone was asked for."""

import attrs
import msgspec

from kplane_apiserver.http import JSON, Request, Response
from kplane_apiserver.negotiate import Form, negotiate
from kplane_apiserver.params import list_options
from kplane_apiserver.stores import Served
from kplane_apiserver.tables import (
    IncludeObject,
    parse_include_object,
    partial_metadata,
    partial_metadata_list,
    table_for_list,
    table_for_object,
)
from kplane_core.storage.interface import GetOptions, ObjectList, StoredObject

YAML = b"application/yaml"


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


def list_response(request: Request, served: Served, page: ObjectList, form: Form) -> Response:
    """Return the answer with a page of objects in the form that the client asked for."""
    match form:
        case Form.TABLE:
            include = include_object(request)
            return Response(table_for_list(served.kind, page, include, object_bytes=served.data))
        case Form.PARTIAL:
            return Response(partial_metadata_list(page))
        case Form.YAML:
            return Response(as_yaml(_joined(served, page)), 200, YAML)
        case Form.OBJECT:
            return Response(_joined(served, page), 200, JSON)


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


def _joined(served: Served, page: ObjectList) -> bytes:
    """Join a list's JSON with ONE copy of the items: a second copy of a large list costs more than the list."""
    data = served.data
    items = [data(stored) for stored in page.items]
    start = served.list_head + b'%d"' % page.revision
    if page.continue_token:
        start += b',"continue":' + msgspec.json.encode(page.continue_token)
        if page.remaining is not None:
            start += b',"remainingItemCount":%d' % page.remaining
    start += b'},"items":['
    if not items:
        return start + b"]}"
    items[0] = start + items[0]
    items[-1] += b"]}"
    return b",".join(items)
