"""The names of a CustomResourceDefinition: their form, and who may have them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from kplane_apiserver.apierrors import field_invalid, field_required
from kplane_core.errors import StatusCause

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_LENGTH, _SUBDOMAIN_LENGTH = 63, 253
_LABEL_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@attrs.frozen
class NamesInUse:
    """The names that a group's other kinds hold in a cluster.

    Attributes:
        resources: plurals, singulars and short names.
        kinds: kinds and list kinds.
    """

    resources: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()


NO_NAMES = NamesInUse()


@attrs.frozen
class Verdict:
    """Which names a definition gets.

    Attributes:
        accepted: whether it gets all that it asks for.
        reason: the condition's reason.
        message: the condition's message.
        names: `status.acceptedNames`.
    """

    accepted: bool
    reason: str
    message: str
    names: dict[str, Any]


def label_fault(text: str) -> str:
    """Return what is wrong with a DNS-1035 label; empty when nothing is."""
    if len(text) > _LABEL_LENGTH:
        return f"must be no more than {_LABEL_LENGTH} characters"
    return "" if _LABEL.fullmatch(text) else _LABEL_WORDS


def name_faults(group: str, names: Mapping[str, Any]) -> Iterator[StatusCause]:
    """Yield what is wrong with the form of a definition's group and names.

    Args:
        group: `spec.group`.
        names: `spec.names`, defaults filled in.
    """
    yield from group_faults(group)
    for field in ("plural", "singular", "kind", "listKind"):
        text = names.get(field) or ""
        if not text:
            yield field_required(f"spec.names.{field}")
        elif fault := label_fault(text.lower() if field in ("kind", "listKind") else text):
            mixed = "may have mixed case, but should otherwise match: " if field in ("kind", "listKind") else ""
            yield field_invalid(f"spec.names.{field}", text, mixed + fault)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield field_invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")
    for field in ("shortNames", "categories"):
        for position, text in enumerate(names.get(field) or ()):
            if fault := label_fault(text):
                yield field_invalid(f"spec.names.{field}[{position}]", text, fault)


def group_faults(group: str) -> Iterator[StatusCause]:
    """Yield what is wrong with the form of a definition's group."""
    if not group:
        yield field_required("spec.group")
    elif len(group) > _SUBDOMAIN_LENGTH:
        yield field_invalid("spec.group", group, f"must be no more than {_SUBDOMAIN_LENGTH} characters")
    elif not _SUBDOMAIN.fullmatch(group):
        yield field_invalid("spec.group", group, _SUBDOMAIN_WORDS)
    elif "." not in group:
        yield field_invalid("spec.group", group, "should be a domain with at least one dot")


def judge_names(wanted: Mapping[str, Any], before: Mapping[str, Any], in_use: NamesInUse) -> Verdict:
    """Return which of the wanted names a definition gets: those that it has, and those that nobody else has.

    Args:
        wanted: `spec.names`, defaults filled in.
        before: the definition's status so far.
        in_use: the names of all others in its group.
    """
    held = before.get("acceptedNames")
    had: Mapping[str, Any] = held if isinstance(held, dict) else {}
    accepted, reason, message = dict(had), "NoConflicts", "no conflicts found"
    for field, used in (
        ("plural", in_use.resources),
        ("singular", in_use.resources),
        ("shortNames", in_use.resources),
        ("kind", in_use.kinds),
        ("listKind", in_use.kinds),
    ):
        taken = [name for name in _each(wanted.get(field)) if name in used and name not in set(_each(had.get(field)))]
        if taken:
            reason = f"{field[0].upper()}{field[1:]}Conflict"
            message = _taken(taken)
        else:
            accepted[field] = wanted.get(field)
    accepted["categories"] = wanted.get("categories")
    names = {field: value for field, value in sorted(accepted.items()) if value}
    return Verdict(reason == "NoConflicts", reason, message, names)


def _each(value: Any) -> Iterable[str]:
    if isinstance(value, list):
        return value
    return (value,) if value else ()


def _taken(names: list[str]) -> str:
    words = [f'"{name}" is already in use' for name in names]
    return words[0] if len(words) == 1 else "[" + ", ".join(words) + "]"
