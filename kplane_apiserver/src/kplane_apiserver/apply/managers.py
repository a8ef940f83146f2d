"""Who set which fields: the entries of `metadata.managedFields`, read, changed and written."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from kplane_apiserver.apply.fieldsets import FieldSet, is_valid, union

APPLY = "Apply"
UPDATE = "Update"
UNKNOWN_MANAGER = "unknown"
OLD_UPDATES = "ancient-changes"

_MAX_UPDATERS = 10
_MAX_NAME = 128


class Manager(NamedTuple):
    """What tells entries apart: one manager has several when it uses several operations, versions or subresources.

    Attributes:
        name: the manager's name.
        operation: `Apply` or `Update`.
        api_version: the version that an update was made in; empty for an apply, whatever its version.
        subresource: through which subresource; empty for the object itself.
    """

    name: str
    operation: str
    api_version: str
    subresource: str

    def __str__(self) -> str:
        """Return the words that name it in a conflict."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text + (f" using {self.api_version}" if self.operation == UPDATE else "")


class Entry:
    """What one manager has set.

    Args:
        api_version: the version that the fields are named in.
        fields: the fields.
        time: when it last changed something; empty if it never did.
    """

    __slots__ = ("api_version", "fields", "time")

    def __init__(self, api_version: str, fields: FieldSet, time: str = "") -> None:
        self.api_version = api_version
        self.fields = fields
        self.time = time


Managed = dict[Manager, Entry]


def manager_name(field_manager: str, user_agent: str) -> str:
    """Return who writes: what the client calls itself, or the first word of its User-Agent."""
    if field_manager:
        return field_manager
    name = "".join(letter for letter in user_agent.partition("/")[0] if letter.isprintable())
    while len(name.encode()) > _MAX_NAME:
        name = name[:-1]
    return name or UNKNOWN_MANAGER


def read(entries: Any) -> Managed | None:
    """Return the entries in an object, or None if they cannot be understood."""
    if not isinstance(entries, list):
        return None
    managed: Managed = {}
    for entry in entries:
        if not isinstance(entry, dict):
            return None
        operation, version = entry.get("operation"), entry.get("apiVersion")
        name, fields = entry.get("manager") or "", entry.get("fieldsV1") or {}
        time, subresource = entry.get("time") or "", entry.get("subresource") or ""
        texts = (version, name, time, subresource)
        if operation not in {APPLY, UPDATE} or not version or not all(isinstance(text, str) for text in texts):
            return None
        if entry.get("fieldsType") != "FieldsV1" or not is_valid(fields):
            return None
        manager = Manager(name, operation, version if operation == UPDATE else "", subresource)
        managed[manager] = Entry(version, fields, time)
    return managed


def write(managed: Managed) -> list[dict[str, Any]]:
    """Return the entries as they stand in an object, in upstream's order; an entry without fields is left out."""
    found = [(manager, entry) for manager, entry in managed.items() if entry.fields]
    if len(found) > 1:
        found.sort(key=_order)
    return [_written(manager, entry) for manager, entry in found]


def _order(one: tuple[Manager, Entry]) -> tuple[str, ...]:
    manager, entry = one
    return (manager.operation, entry.time, manager.name, entry.api_version, manager.subresource)


def _written(manager: Manager, entry: Entry) -> dict[str, Any]:
    result: dict[str, Any] = {
        "apiVersion": entry.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields,
        "operation": manager.operation,
    }
    if manager.name:
        result["manager"] = manager.name
    if entry.time:
        result["time"] = entry.time
    if manager.subresource:
        result["subresource"] = manager.subresource
    return result


def cap_updaters(managed: Managed) -> None:
    """Put the oldest updates together, by version, when there are more than ten; `managed` is changed in place."""
    updaters = [one for one in managed.items() if one[0].operation == UPDATE]
    over = len(updaters) - _MAX_UPDATERS
    if over <= 0:
        return
    first: dict[str, Manager] = {}
    for manager, entry in sorted(updaters, key=lambda one: (one[1].time, one[0])):
        if over <= 0:
            break
        version = entry.api_version
        earlier = first.get(version)
        if earlier is None:
            first[version] = manager
            continue
        bucket = Manager(OLD_UPDATES, UPDATE, version, "")
        if bucket not in managed:
            managed[bucket] = managed.pop(earlier)
        older = managed[bucket]
        if manager != bucket:
            managed.pop(manager)
            managed[bucket] = Entry(version, union(entry.fields, older.fields), entry.time)
        over -= 1


def same_but_for_times(first: Iterable[Any], second: Iterable[Any]) -> bool:
    """Whether two lists of entries differ in nothing but times."""

    def timeless(entries: Iterable[Any]) -> list[dict[str, Any]]:
        without = [{key: value for key, value in entry.items() if key != "time"} for entry in entries]
        return sorted(without, key=lambda entry: tuple(str(entry.get(key)) for key in _IDENTITY))

    return timeless(first) == timeless(second)


_IDENTITY = ("operation", "manager", "apiVersion", "subresource")
