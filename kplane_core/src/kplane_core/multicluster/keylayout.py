"""Where a cluster's objects stand in the key space, and which ids a cluster may have.

    /<resource>/clusters/<cluster>/[<namespace>/]<name>

The cluster is read from its known position, right after this resource's own prefix, and never searched for: a resource
whose plural is `clusters`, or a namespace of that name, is nothing special.
"""

import re

import attrs

from kplane_core.errors import InvalidError as _InvalidError
from kplane_core.errors import InvalidKey, StatusCause
from kplane_core.storage.keys import normalize_resource_prefix

_CLUSTER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_SEGMENT = "clusters/"


class InvalidClusterId(_InvalidError):
    """A text that cannot be a cluster's id."""

    def __init__(self, text: str) -> None:
        why = (
            f'Invalid value: "{text}": a cluster id has 1 to 63 letters, digits, "-", "_" or ".", '
            'starts with a letter or digit, and does not contain ".."'
        )
        super().__init__([StatusCause("FieldValueInvalid", why, "cluster")], name=text, kind="Cluster")


def validate_cluster_id(text: str) -> str:
    """Return `text` if it may be a cluster's id.

    Raises:
        InvalidClusterId: it may not.
    """
    if not _CLUSTER_ID.fullmatch(text) or ".." in text:
        raise InvalidClusterId(text)
    return text


@attrs.frozen
class ObjectPath:
    """A key taken apart: whose it is, and what it names."""

    cluster: str
    namespace: str
    name: str


class KeyLayout:
    """The keys of one resource over all clusters.

    Args:
        resource_prefix: the resource's own directory, for example `/pods` or `/apps/deployments`.
        namespaced: whether its objects live in namespaces.
    """

    def __init__(self, resource_prefix: str, *, namespaced: bool = True) -> None:
        self._root = normalize_resource_prefix(resource_prefix) + _SEGMENT
        self._namespaced = namespaced

    @property
    def namespaced(self) -> bool:
        """Whether this resource's objects live in namespaces."""
        return self._namespaced

    def kind_root_prefix(self) -> str:
        """Return the directory of this resource over all clusters; it is the resource prefix of its store."""
        return self._root

    def per_cluster_prefix(self, cluster: str) -> str:
        """Return the directory of one cluster's objects."""
        return f"{self._root}{cluster}/"

    def namespace_prefix(self, cluster: str, namespace: str) -> str:
        """Return the directory of one namespace's objects."""
        return f"{self._root}{cluster}/{namespace}/"

    def key(self, cluster: str, namespace: str, name: str) -> str:
        """Return the key of an object.

        Args:
            cluster: a valid id.
            namespace: empty for a cluster-scoped resource.
            name: the object's name.

        Raises:
            InvalidKey: namespace or name is not one path segment.
        """
        _check_segment("name", name)
        if not self._namespaced:
            return f"{self._root}{cluster}/{name}"
        _check_segment("namespace", namespace)
        return f"{self._root}{cluster}/{namespace}/{name}"

    def cluster_from_key(self, key: str) -> str:
        """Return the cluster whose object `key` is.

        Raises:
            InvalidKey: the key is not below this resource's root.
        """
        start = len(self._root)
        end = key.find("/", start)
        if end <= start or not key.startswith(self._root):
            raise InvalidKey(f"invalid key: {key!r} is not of the form {self._root}<cluster>/...")
        return key[start:end]

    def relative(self, key: str) -> ObjectPath:
        """Return the parts of an object's key.

        Raises:
            InvalidKey: it is not the key of an object of this resource.
        """
        cluster = self.cluster_from_key(key)
        parts = key[len(self._root) + len(cluster) + 1 :].split("/")
        if len(parts) != 1 + self._namespaced or not all(parts):
            raise InvalidKey(f"invalid key: {key!r} does not name an object below {self._root}{cluster}/")
        return ObjectPath(cluster, parts[0] if self._namespaced else "", parts[-1])


def _check_segment(what: str, text: str) -> None:
    if not text or text in {".", ".."} or "/" in text or "%" in text:
        raise InvalidKey(f"invalid key: {what} {text!r} may not be empty, '.', '..', or contain '/' or '%'")
