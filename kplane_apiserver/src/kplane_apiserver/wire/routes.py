"""From a request's path to what it asks for: the cluster, and a resource or another path below it.

The path is decoded once, segment by segment, after it was split: a `%2f` can neither add a segment nor hide one, and
routing, admission and storage all see the same text. A segment that could climb (`.`, `..`) or that a storage key
cannot hold is refused here.
"""

import re
from urllib.parse import unquote_to_bytes

import msgspec

from kplane_apiserver.apierrors import path_not_found
from kplane_core.errors import ApiError, BadRequest, KplaneError, Status
from kplane_core.multicluster.keylayout import validate_cluster_id

PREFIX_SEGMENT = "clusters"
CONTROL_PLANE = "control-plane"
EVERY_CLUSTER = "*"
"""Stands for all clusters, where a path names one; it is no valid id."""
MAX_PATH = 4096
"""Longest path in bytes; the longest sensible one (three names of 253) has about 900."""

_CACHED_PATH = 256
_CACHE_SIZE = 4096
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class Route(msgspec.Struct, frozen=True, gc=False):
    """What a path asks for.

    Attributes:
        cluster: the virtual cluster; EVERY_CLUSTER for all of them.
        path: the decoded segments after the cluster's prefix.
        group: the API group; empty for the core group and for a path that names no resource.
        version: the version within the group.
        resource: the plural; empty for a path that names no resource.
        namespace: the namespace, if the path names one.
        name: the object's name, if the path names one.
        subresource: what follows the name, if anything.
    """

    cluster: str
    path: tuple[str, ...]
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Router:
    """Parses paths, and remembers the recent ones: clients ask for the same few again and again.

    Args:
        root_cluster: the cluster of paths without a prefix.
    """

    def __init__(self, root_cluster: str) -> None:
        self._root_cluster = root_cluster
        self._recent: dict[bytes, Route] = {}

    def route(self, raw_path: bytes) -> Route:
        """Return what the path asks for.

        Args:
            raw_path: the path as it came, still percent-encoded, without the query.

        Raises:
            BadRequest: a segment is empty, climbs, is badly encoded, or names an invalid cluster.
            ApiError: 404 or 414.
        """
        route = self._recent.get(raw_path)
        if route is not None:
            return route
        route = parse(raw_path, self._root_cluster)
        if len(raw_path) <= _CACHED_PATH:
            if len(self._recent) >= _CACHE_SIZE:
                self._recent.clear()
            self._recent[raw_path] = route
        return route


def parse(raw_path: bytes, root_cluster: str) -> Route:
    """Return what the path asks for; see `Router.route`."""
    if len(raw_path) > MAX_PATH:
        raise ApiError(
            Status(414, "RequestURITooLong", f"the path has {len(raw_path)} bytes, at most {MAX_PATH} are read")
        )
    segments = [_segment(part) for part in raw_path.strip(b"/").split(b"/")] if raw_path.strip(b"/") else []
    cluster = root_cluster
    if segments and segments[0] == PREFIX_SEGMENT:
        cluster = _cluster(segments)
        prefix, segments = segments[:3], segments[3:]
        # kubectl 1.35 and later puts the server's own prefix in front of a `get --raw` path that already has it.
        if segments[:3] == prefix and len(prefix) == len(_PREFIX_SHAPE):
            segments = segments[3:]
    return _below_cluster(cluster, tuple(segments))


_PREFIX_SHAPE = (PREFIX_SEGMENT, "<id>", CONTROL_PLANE)


def _segment(part: bytes) -> str:
    if _BAD_ESCAPE.search(part):
        raise BadRequest(f"the path segment {_shown(part)} is not validly percent-encoded")
    try:
        text = unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise BadRequest(f"the path segment {_shown(part)} is not UTF-8 once decoded") from None
    if not text:
        raise BadRequest("the path has an empty segment (two slashes in a row)")
    if text in {".", ".."} or "/" in text or "%" in text or _CONTROL.search(text):
        raise BadRequest(
            f"the path segment {_shown(part)} may not be '.' or '..', nor contain '/', '%' or control characters"
        )
    return text


def _shown(part: bytes) -> str:
    return repr(part[:80].decode("ascii", "backslashreplace"))


def _cluster(segments: list[str]) -> str:
    if len(segments) == 1:
        raise path_not_found()
    cluster = segments[1]
    try:
        if cluster != EVERY_CLUSTER:
            validate_cluster_id(cluster)
    except KplaneError as error:
        raise BadRequest(str(error)) from None
    if len(segments) > len(_PREFIX_SHAPE) - 1 and segments[2] != CONTROL_PLANE:
        raise ApiError(
            Status(
                404,
                "NotFound",
                f"a cluster is served below /{PREFIX_SEGMENT}/{cluster}/{CONTROL_PLANE}/, not below "
                f"/{PREFIX_SEGMENT}/{cluster}/{segments[2][:80]}",
            )
        )
    return cluster


def _below_cluster(cluster: str, path: tuple[str, ...]) -> Route:
    match path:
        case ("api", version, *rest) if rest:
            return _resource(cluster, path, "", version, rest)
        case ("apis", group, version, *rest) if rest:
            return _resource(cluster, path, group, version, rest)
        case _:
            return Route(cluster, path)


def _resource(cluster: str, path: tuple[str, ...], group: str, version: str, rest: list[str]) -> Route:
    match rest:
        case ["namespaces", _, subresource] if not group and subresource in _NAMESPACE_SUBRESOURCES:
            namespace, tail = "", rest
        case ["namespaces", namespace, _, *_]:
            tail = rest[2:]
        case _:
            namespace, tail = "", rest
    match tail:
        case [resource]:
            return Route(cluster, path, group, version, resource, namespace)
        case [resource, name]:
            return Route(cluster, path, group, version, resource, namespace, name)
        case [resource, name, subresource]:
            return Route(cluster, path, group, version, resource, namespace, name, subresource)
        case _:
            raise path_not_found()
