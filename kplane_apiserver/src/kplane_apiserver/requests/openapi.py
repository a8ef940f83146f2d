"""OpenAPI: the v3 index and one document per group and version, and an empty v2 document.

Paths are as short as can be: kubectl reads from them whether a kind takes `fieldValidation` and which patches it
understands, and refuses to apply or create without them. Schemas are there for `kubectl explain`: builtin kinds have
those that Kubernetes publishes, unpacked when they are asked for; custom kinds bring theirs along, and a schema is
encoded once for all clusters that share the definition.

kubectl falls back to v2 for a kind that v3 does not know (yet), and to 1.28 for every kind. A document that describes
nothing lets it go on without a check of its own; an error would stop it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from kplane_apiserver.definitions.catalog import Catalog
from kplane_apiserver.kinds import CustomKind, Kind, builtin_kinds
from kplane_apiserver.schemas import published
from kplane_apiserver.wire.etags import tagged
from kplane_apiserver.wire.http import Response

_ENCODE = msgspec.json.Encoder().encode
_INFO = _ENCODE({"title": "Kubernetes", "version": "v1"})
_V2_JSON = _ENCODE({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": {}})
# The same as a message: field 1 is `swagger`, field 2 is `info` with `title` and `version`.
_V2_PROTOBUF = b"\x0a\x032.0\x12\x10\x0a\x0aKubernetes\x12\x02v1"
_KEEP = (b"cache-control", b"public, immutable, max-age=31536000")
_REVALIDATE = (b"cache-control", b"no-cache, private")

_PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC = "application/strategic-merge-patch+json"
_BODIES = ("application/json", "application/yaml")

# Verb, method, and the action that the operation is marked with.
_COLLECTION = (("list", "get", "list"), ("create", "post", "post"), ("deletecollection", "delete", "deletecollection"))
_ITEM = (("get", "get", "get"), ("update", "put", "put"), ("patch", "patch", "patch"), ("delete", "delete", "delete"))
_OK = {"200": {"description": "OK"}}

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_TEXT = {"type": "string"}
_API_VERSION = {"description": "The group and version that the object is written in.", **_TEXT}
_KIND = {"description": "The kind of the object.", **_TEXT}
_METADATA = {"description": "Standard metadata.", "allOf": [{"$ref": f"#/components/schemas/{_META}"}]}

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

_schemas: WeakKeyDictionary[CustomKind, bytes] = WeakKeyDictionary()


def respond(
    catalog: Catalog,
    cluster: str,
    path: tuple[str, ...],
    query_hash: str = "",
    if_none_match: bytes = b"",
    *,
    accept: bytes = b"",
) -> Response | None:
    """Answer a request for OpenAPI.

    Args:
        catalog: knows what the cluster serves.
        cluster: whose documents are asked for.
        path: the segments below the cluster's prefix, for example `("openapi", "v3", "apis", "apps", "v1")`.
        query_hash: the query's `hash`; a client that names the right one may keep the answer for ever.
        if_none_match: the request's header.
        accept: the request's header; decides about the encoding of v2, which kubectl reads as protobuf alone.

    Returns:
        The answer; None when the path is none of OpenAPI's, or names what the cluster does not serve.
    """
    match path:
        case ("openapi", "v2"):
            return _version_2(accept)
        case ("openapi", "v3"):
            return _index(catalog, cluster, if_none_match)
        case ("openapi", "v3", "api", version):
            group = ""
        case ("openapi", "v3", "apis", group, version) if group:
            pass
        case _:
            return None
    root = catalog.is_root(cluster)
    builtin = _builtin_paths(root=root).get((group, version))
    custom = _custom_of(catalog, cluster, group, version)
    if custom:
        etag = _hash(catalog.view(cluster).fingerprint, published.digest(), group, version)
        body = _document(_builtin_of(catalog, cluster, group, version), custom)
    elif builtin:
        etag = builtin[1]
        body = b"" if if_none_match == b'"%s"' % etag.encode() else _builtin_document(group, version, root=root)
    else:
        return None
    return tagged(body, etag, if_none_match, headers=(_KEEP if query_hash == etag else _REVALIDATE,))


def _version_2(accept: bytes) -> Response:
    if b"proto-openapi" in accept:
        return Response(_V2_PROTOBUF, content_type=b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
    return Response(_V2_JSON)


def _index(catalog: Catalog, cluster: str, if_none_match: bytes) -> Response:
    view = catalog.view(cluster)
    root = catalog.is_root(cluster)
    memo = ("openapi", root)
    body: bytes | None = view.memo.get(memo)
    if body is None:
        hashes = {key: etag for key, (_, etag) in _builtin_paths(root=root).items()}
        hashes |= {
            (kind.group, kind.version): _hash(view.fingerprint, published.digest(), kind.group, kind.version)
            for kind in view.kinds
        }
        body = view.memo[memo] = _ENCODE({"paths": dict(_index_entry(*entry) for entry in hashes.items())})
    etag = _hash(body.decode())
    return tagged(body, etag, if_none_match, headers=(_REVALIDATE,))


def _index_entry(group_version: tuple[str, str], etag: str) -> tuple[str, dict[str, str]]:
    group, version = group_version
    path = f"apis/{group}/{version}" if group else f"api/{version}"
    return path, {"serverRelativeURL": f"/openapi/v3/{path}?hash={etag}"}


def _hash(*parts: str) -> str:
    return hashlib.blake2b("/".join(parts).encode(), digest_size=16).hexdigest()


# --- documents --------------------------------------------------------------------------------------------------------


@cache
def _builtin_paths(*, root: bool) -> dict[tuple[str, str], tuple[bytes, str]]:
    """Return the paths of each group and version and the hash of its document."""
    grouped: dict[tuple[str, str], dict[str, Any]] = {}
    for kind in builtin_kinds().values():
        if root or not kind.root_only:
            grouped.setdefault((kind.group, kind.version), {}).update(_paths(kind))
    encoded = {key: _ENCODE(paths) for key, paths in grouped.items()}
    return {key: (paths, _hash(published.digest(), paths.decode())) for key, paths in encoded.items()}


@lru_cache(maxsize=8)
def _builtin_document(group: str, version: str, *, root: bool) -> bytes:
    kinds = [kind for kind in builtin_kinds().values() if (kind.group, kind.version) == (group, version)]
    return _assembled(_builtin_paths(root=root)[group, version][0], _builtin_schemas(group, version, kinds))


def _builtin_schemas(group: str, version: str, kinds: Iterable[Kind]) -> dict[str, bytes]:
    names = {kind.kind: kind for kind in kinds}
    found = published.definition_names(group, version, names)
    for name in found:
        names.pop(name.rpartition(".")[2], None)
    # Kinds that Kubernetes does not have are of this server's own; what they have in common is described.
    own = {_schema_name(kind): _whole_schema(kind, _OPEN) for kind in names.values()}
    return {**published.closure([*found, _META]), **own}


def _builtin_of(catalog: Catalog, cluster: str, group: str, version: str) -> Sequence[Kind]:
    return [kind for kind in catalog.builtin(cluster) if kind.group == group and kind.version == version]


def _custom_of(catalog: Catalog, cluster: str, group: str, version: str) -> Sequence[Kind]:
    return [kind for kind in catalog.view(cluster).kinds if kind.group == group and kind.version == version]


def _document(builtin: Sequence[Kind], custom: Sequence[Kind]) -> bytes:
    paths: dict[str, Any] = {}
    for kind in (*builtin, *custom):
        paths.update(_paths(kind))
    schemas = published.closure([_META])
    if builtin:
        schemas |= _builtin_schemas(builtin[0].group, builtin[0].version, builtin)
    schemas |= {_schema_name(kind): _schema(kind, kind.custom) for kind in custom if kind.custom is not None}
    return _assembled(_ENCODE(paths), schemas)


def _assembled(paths: bytes, schemas: Mapping[str, bytes]) -> bytes:
    members = b",".join([b"%s:%s" % (_ENCODE(name), schemas[name]) for name in sorted(schemas)])
    return b'{"openapi":"3.0.0","info":%s,"paths":%s,"components":{"schemas":{%s}}}' % (_INFO, paths, members)


def _paths(kind: Kind) -> Iterator[tuple[str, Any]]:
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"
    parameters = [_path_parameter("namespace")] if kind.namespaced else []
    for path, operations, given in (
        (collection, _COLLECTION, parameters),
        (f"{collection}/{{name}}", _ITEM, [*parameters, _path_parameter("name")]),
    ):
        offered = {method: _operation(kind, action) for verb, method, action in operations if verb in kind.verbs}
        if offered:
            yield path, {**offered, "parameters": given} if given else offered


def _patches(kind: Kind) -> tuple[str, ...]:
    # kubectl sends a strategic merge patch to whatever lists it; a custom kind answers that with 415.
    return _PATCHES if kind.custom is not None else (*_PATCHES, _STRATEGIC)


def _operation(kind: Kind, action: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "responses": _OK,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _group_version_kind(kind),
    }
    if action in ("post", "put", "patch"):
        bodies = _patches(kind) if action == "patch" else _BODIES
        operation["requestBody"] = {"content": {media_type: {} for media_type in bodies}}
        names = ["dryRun", "fieldManager", "fieldValidation"]
        operation["parameters"] = [{"name": name, "in": "query", "schema": _TEXT} for name in names]
    return operation


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _TEXT}


def _group_version_kind(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


# --- schemas of kinds that are not Kubernetes' ------------------------------------------------------------------------


def _schema_name(kind: Kind) -> str:
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))


def _schema(kind: Kind, custom: CustomKind) -> bytes:
    known = _schemas.get(custom)
    if known is None:
        known = _schemas[custom] = _whole_schema(kind, custom.schema or _OPEN)
    return known


def _whole_schema(kind: Kind, schema: dict[str, Any]) -> bytes:
    properties = {**(schema.get("properties") or {})}
    properties |= {"apiVersion": _API_VERSION, "kind": _KIND, "metadata": _METADATA}
    return _ENCODE({**schema, "properties": properties, "x-kubernetes-group-version-kind": [_group_version_kind(kind)]})
