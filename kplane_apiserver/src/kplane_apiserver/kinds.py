"""What kinds the API server serves: one value per resource and version, builtin or made by a CustomResourceDefinition.

The builtin rows lie in `data/kinds.json`, written by `tools/generate_kinds.py`; no kind is typed by hand.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import msgspec

KindKey = tuple[str, str, str]
"""(group, version, plural)."""

EVENTS = "events"
"""The resource as which Events are stored, whatever their group; they live for a while only."""

DATA = Path(__file__).parent / "data"


@attrs.frozen
class PrinterColumn:
    """One column that a CustomResourceDefinition adds to the table that `kubectl get` prints.

    Attributes:
        name: the column's heading.
        type: `string`, `integer`, `number`, `boolean` or `date`.
        json_path: where the value stands, for example `.status.phase`.
        format: the OpenAPI format, if any.
        description: what the column says.
        priority: 0 is always printed, more only by `-o wide`.
    """

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@attrs.frozen(eq=False)
class CustomKind:
    """What a CustomResourceDefinition says about one of its versions.

    Compared by identity: parsed definitions are shared between clusters, and comparing schemas would be slow.

    Attributes:
        schema: the version's `openAPIV3Schema`; None where the version has none.
        printer_columns: the version's own columns.
        status: whether the status subresource is on.
        scale: the scale subresource's paths, or None.
        served_versions: the versions that clients may ask for, the most preferred first.
        stored_versions: the versions that objects may lie in (`status.storedVersions`).
        preserve_unknown_fields: whether fields that the schema does not know are kept at every depth.
        selectable_fields: the JSON paths that field selectors may use.
        deprecated: whether requests to the version earn a warning.
        deprecation_warning: the warning's own words; empty for the usual ones.
        fitted_since: objects of this revision or an older one may have been written by another schema; 0 for none.
    """

    schema: dict[str, Any] | None = attrs.field(default=None, repr=False)
    printer_columns: tuple[PrinterColumn, ...] = ()
    status: bool = False
    scale: dict[str, Any] | None = None
    served_versions: tuple[str, ...] = ()
    stored_versions: tuple[str, ...] = ()
    preserve_unknown_fields: bool = False
    selectable_fields: tuple[str, ...] = ()
    deprecated: bool = False
    deprecation_warning: str = ""
    fitted_since: int = 0


@attrs.frozen
class Kind:
    """One resource in one version, as discovery shows it.

    Attributes:
        group: the API group; empty for the core group.
        version: the version within the group.
        kind: the kind of one object, for example `Deployment`.
        plural: the resource, as it stands in URLs.
        singular: the name for one object on command lines.
        list_kind: the kind of a list.
        namespaced: whether objects live in a namespace.
        verbs: what may be done, sorted as upstream sorts them.
        subresources: those that are served: `status`, `scale`, `finalize`.
        short_names: aliases on command lines.
        categories: the groups of resources it belongs to, such as `all`.
        custom: the facts from its CustomResourceDefinition; None for a builtin kind.
        storage_version: the version that its objects are stored in; empty means its own.
        storage_group: the group in whose store its objects lie; None means its own. Events have two groups and one
            store.
        preferred: whether the version is its group's preferred one.
        root_only: whether only the root cluster serves it.
        api_version: group and version as objects name them.
        group_resource: the plural, and behind a dot the group.
        storage_resource: the same of the resource as whose objects its own are stored; who shares it shares a store.
        storage_api_version: the `apiVersion` that its objects are stored under.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    list_kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    subresources: frozenset[str] = frozenset()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    custom: CustomKind | None = None
    storage_version: str = ""
    storage_group: str | None = None
    preferred: bool = True
    root_only: bool = False
    # Asked on every request, so worked out once.
    api_version: str = attrs.field(init=False, eq=False, repr=False)
    group_resource: str = attrs.field(init=False, eq=False, repr=False)
    storage_resource: str = attrs.field(init=False, eq=False, repr=False)
    storage_api_version: str = attrs.field(init=False, eq=False, repr=False)

    @api_version.default
    def _join_api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @group_resource.default
    def _join_group_resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @storage_resource.default
    def _join_storage_resource(self) -> str:
        group = self.group if self.storage_group is None else self.storage_group
        return f"{self.plural}.{group}" if group else self.plural

    @storage_api_version.default
    def _join_storage_api_version(self) -> str:
        group = self.group if self.storage_group is None else self.storage_group
        version = self.storage_version or self.version
        return f"{group}/{version}" if group else version

    @property
    def key(self) -> KindKey:
        """The (group, version, plural) that requests name it by."""
        return (self.group, self.version, self.plural)

    @property
    def create_only(self) -> bool:
        """Whether it is a question to the server (a review) that is answered and never stored."""
        return self.verbs == ("create",)


@cache
def builtin_kinds() -> Mapping[KindKey, Kind]:
    """Return every builtin kind, in the order in which discovery lists groups, versions and resources."""
    rows = msgspec.json.decode((DATA / "kinds.json").read_bytes())
    kinds = (_kind(row) for row in rows)
    return MappingProxyType({kind.key: kind for kind in kinds})


def _kind(row: dict[str, Any]) -> Kind:
    row["subresources"] = frozenset(row["subresources"])
    for name in ("verbs", "short_names", "categories"):
        row[name] = tuple(row[name])
    return Kind(**row)
