"""Discovery: which groups, versions and resources a cluster serves, in the plain and in the aggregated form.

What a thousand clusters have in common, the builtin kinds, is encoded once. A cluster's own groups are encoded once per
view, that is once for all clusters with the same definitions, and joined with the rest on each request.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import attrs
import msgspec

from kplane_apiserver.definitions.catalog import Catalog, View
from kplane_apiserver.definitions.crds import version_priority
from kplane_apiserver.kinds import Kind, builtin_kinds
from kplane_apiserver.wire.etags import tagged
from kplane_apiserver.wire.http import Response

_AGGREGATED_GROUP = "apidiscovery.k8s.io"
_AGGREGATED_VERSIONS = frozenset({"v2", "v2beta1"})
_SUBRESOURCE_VERBS: Mapping[str, tuple[str, ...]] = {
    "finalize": ("update",),
    "fork": ("create",),
    "restore": ("create",),
    "snapshot": ("get",),
}
_USUAL_SUBRESOURCE_VERBS = ("get", "patch", "update")
_ANY_CLIENT = [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]
_JSON_TYPES = frozenset({"application/json", "application/*", "*/*"})
_ENCODE = msgspec.json.Encoder().encode

_Versions = dict[str, list[Kind]]


@attrs.frozen(eq=False)
class _Group:
    """One API group in every form that discovery has of it."""

    name: str
    aggregated: bytes
    plain: bytes
    versions: Mapping[str, bytes]


@attrs.frozen(eq=False)
class _Builtin:
    """What clusters have in common."""

    groups: Mapping[str, _Group]
    etag: str


def respond(
    catalog: Catalog, cluster: str, path: tuple[str, ...], accept: bytes = b"", if_none_match: bytes = b""
) -> Response | None:
    """Answer a discovery request.

    Args:
        catalog: knows what the cluster serves.
        cluster: whose discovery is asked for.
        path: the segments below the cluster's prefix, for example `("apis", "apps", "v1")`.
        accept: the request's header; decides between the plain and the aggregated form.
        if_none_match: the request's header.

    Returns:
        The answer; None when the path is none of discovery's, or names what the cluster does not serve.
    """
    match path:
        case ("api",) | ("apis",):
            version = aggregated_version(accept)
            if version:
                return _aggregated(catalog, cluster, version, if_none_match, core=path[0] == "api")
            return Response(_plain_versions() if path[0] == "api" else _plain_groups(catalog, cluster))
        case ("api", version):
            found = _group(catalog, cluster, "")
            body = found.versions.get(version) if found else None
        case ("apis", group):
            found = _group(catalog, cluster, group) if group else None
            body = found.plain if found else None
        case ("apis", group, version):
            found = _group(catalog, cluster, group) if group else None
            body = found.versions.get(version) if found else None
        case _:
            return None
    return Response(body) if body is not None else None


@cache
def _plain_versions() -> bytes:
    versions = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": _ANY_CLIENT}
    return _ENCODE(versions)


def _plain_groups(catalog: Catalog, cluster: str) -> bytes:
    plain = b",".join([group.plain for group in _groups(catalog, cluster) if group.name])
    return b'{"kind":"APIGroupList","apiVersion":"v1","groups":[%s]}' % plain


def _aggregated(catalog: Catalog, cluster: str, version: str, if_none_match: bytes, *, core: bool) -> Response:
    items = b",".join([group.aggregated for group in _groups(catalog, cluster) if core == (not group.name)])
    api_version = f"{_AGGREGATED_GROUP}/{version}".encode()
    head = b'{"kind":"APIGroupDiscoveryList","apiVersion":"%s","metadata":{},"items":[' % api_version
    # The parts are fixed by the builtin kinds and the view, so that the long body needs no hashing.
    parts = (_builtin(root=catalog.is_root(cluster)).etag, catalog.view(cluster).fingerprint, version, str(core))
    etag = hashlib.blake2b("/".join(parts).encode(), digest_size=16).hexdigest()
    content_type = f"application/json;g={_AGGREGATED_GROUP};v={version};as=APIGroupDiscoveryList".encode()
    return tagged(head + items + b"]}", etag, if_none_match, content_type=content_type)


# --- negotiation ------------------------------------------------------------------------------------------------------


def aggregated_version(accept: bytes) -> str:
    """Return the version of the aggregated form that an Accept header asks for first; empty for the plain form."""
    if b"APIGroupDiscoveryList" not in accept:
        return ""
    for clause in accept.decode("latin-1").split(","):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        if media_type.lower() not in _JSON_TYPES:
            continue
        if "as" not in parameters:
            return ""
        asked = parameters.get("v", "")
        is_aggregated = parameters["as"] == "APIGroupDiscoveryList" and parameters.get("g") == _AGGREGATED_GROUP
        if is_aggregated and asked in _AGGREGATED_VERSIONS:
            return asked
    return ""


# --- groups -----------------------------------------------------------------------------------------------------------


def _group(catalog: Catalog, cluster: str, name: str) -> _Group | None:
    root = catalog.is_root(cluster)
    return _own_groups(catalog.view(cluster), root=root).get(name) or _builtin(root=root).groups.get(name)


def _groups(catalog: Catalog, cluster: str) -> Iterator[_Group]:
    root = catalog.is_root(cluster)
    own = _own_groups(catalog.view(cluster), root=root)
    builtin = _builtin(root=root).groups
    if not own:
        yield from builtin.values()
        return
    yield from (own.get(name, group) for name, group in builtin.items())
    yield from (group for name, group in own.items() if name not in builtin)


def _own_groups(view: View, *, root: bool) -> Mapping[str, _Group]:
    """Return the groups that have custom kinds; one with builtin kinds too holds both."""
    if not view.kinds:
        return {}
    known: Mapping[str, _Group] | None = view.memo.get(("groups", root))
    if known is None:
        names = {kind.group for kind in view.kinds}
        shared = [kind for kind in _builtin_kinds(root=root) if kind.group in names]
        known = view.memo["groups", root] = _encode_groups((*shared, *view.kinds))
    return known


@cache
def _builtin(*, root: bool) -> _Builtin:
    groups = _encode_groups(_builtin_kinds(root=root))
    hashed = hashlib.blake2b(digest_size=16)
    for group in groups.values():
        hashed.update(group.aggregated)
    return _Builtin(groups, hashed.hexdigest())


def _builtin_kinds(*, root: bool) -> Sequence[Kind]:
    return [kind for kind in builtin_kinds().values() if root or not kind.root_only]


def _encode_groups(kinds: Iterable[Kind]) -> dict[str, _Group]:
    grouped: dict[str, _Versions] = {}
    for kind in kinds:
        grouped.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
    return {name: _encode_group(name, _ordered(versions)) for name, versions in grouped.items()}


def _ordered(versions: _Versions) -> _Versions:
    """Return a group's versions, the preferred one first."""
    builtin = [version for version, kinds in versions.items() if any(kind.custom is None for kind in kinds)]
    custom = sorted((version for version in versions if version not in builtin), key=version_priority)
    return {version: versions[version] for version in (*builtin, *custom)}


def _encode_group(name: str, versions: _Versions) -> _Group:
    metadata = {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None}
    aggregated = {"metadata": metadata, "versions": [_aggregated_version(*entry) for entry in versions.items()]}
    listed = [_group_version(name, version) for version in versions]
    plain = {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": listed, "preferredVersion": listed[0]}
    return _Group(
        name,
        _ENCODE(aggregated),
        _ENCODE(plain),
        {version: _ENCODE(_resource_list(name, version, kinds)) for version, kinds in versions.items()},
    )


def _group_version(group: str, version: str) -> dict[str, str]:
    return {"groupVersion": f"{group}/{version}" if group else version, "version": version}


# --- resources --------------------------------------------------------------------------------------------------------


def _aggregated_version(version: str, kinds: list[Kind]) -> dict[str, Any]:
    return {"version": version, "resources": [_aggregated_resource(kind) for kind in kinds], "freshness": "Current"}


def _aggregated_resource(kind: Kind) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    }
    if kind.short_names:
        resource["shortNames"] = kind.short_names
    if kind.categories:
        resource["categories"] = kind.categories
    if kind.subresources:
        resource["subresources"] = [_aggregated_subresource(kind, name) for name in sorted(kind.subresources)]
    return resource


def _aggregated_subresource(kind: Kind, name: str) -> dict[str, Any]:
    answer = (kind.group, kind.version, kind.kind) if name != "scale" else ("autoscaling", "v1", "Scale")
    verbs = _SUBRESOURCE_VERBS.get(name, _USUAL_SUBRESOURCE_VERBS)
    return {
        "subresource": name,
        "responseKind": dict(zip(("group", "version", "kind"), answer, strict=True)),
        "verbs": verbs,
    }


def _resource_list(group: str, version: str, kinds: list[Kind]) -> dict[str, Any]:
    resources: list[dict[str, Any]] = []
    for kind in kinds:
        resources.append(_plain_resource(kind))
        resources.extend(_plain_subresource(kind, name) for name in sorted(kind.subresources))
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _plain_resource(kind: Kind) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": kind.verbs,
    }
    if kind.short_names:
        resource["shortNames"] = kind.short_names
    if kind.categories:
        resource["categories"] = kind.categories
    return resource


def _plain_subresource(kind: Kind, name: str) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": "Scale" if name == "scale" else kind.kind,
        "verbs": _SUBRESOURCE_VERBS.get(name, _USUAL_SUBRESOURCE_VERBS),
    }
    if name == "scale":
        resource |= {"group": "autoscaling", "version": "v1"}
    return resource
