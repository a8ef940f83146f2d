"""What a store needs to know of the resource that it serves."""

import attrs

from kplane_core.storage.keys import normalize_resource_prefix
from kplane_core.storage.selection import AttributeFunc, default_attributes
from kplane_core.storage.transformers import IDENTITY, Transformer


@attrs.frozen
class Resource:
    """One resource, for which a backend builds one store.

    Attributes:
        group_resource: `pods`, or `deployments.apps`.
        resource_prefix: the directory of its records, for example `/pods/`; normalized to end with a slash.
        api_version: of its objects, for bookmarks.
        kind: of its objects, for bookmarks.
        transformer: what happens to the bytes before they are stored.
        attributes: how selectors see an object.
        corrupt_object_reports: whether unreadable records are reported one by one and can be deleted unsafely
            (upstream's AllowUnsafeMalformedObjectDeletion, on by default since Kubernetes 1.37).
    """

    group_resource: str
    resource_prefix: str = attrs.field(converter=normalize_resource_prefix)
    api_version: str = "v1"
    kind: str = ""
    transformer: Transformer = IDENTITY
    attributes: AttributeFunc = default_attributes
    corrupt_object_reports: bool = True
