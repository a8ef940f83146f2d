"""Selection: label and field selectors, and the attributes that they look at.

Attributes are extracted from the stored bytes by a partial decode, so that testing a selector never builds the object.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import attrs
import msgspec

from kplane_core.errors import BadRequest, DecodeError


class Attributes(NamedTuple):
    """What selectors look at: an object's labels and its selectable fields."""

    labels: Mapping[str, str]
    fields: Mapping[str, str]


AttributeFunc = Callable[[bytes], Attributes]
"""Extracts the attributes from an object's JSON; raises DecodeError when it cannot."""


# --- attributes ------------------------------------------------------------------------------------------


def attribute_func(fields: Mapping[str, str] | None = None, *, namespaced: bool = True) -> AttributeFunc:
    """Return a function that extracts labels, name, namespace and more fields from an object's JSON.

    Args:
        fields: selectable field -> its default when absent, for example `{"spec.nodeName": ""}`. The field's name is
            its path in the object.
        namespaced: whether `metadata.namespace` is selectable.
    """
    extra = dict(fields or {})
    tree: dict[str, Any] = {}
    for name in ("metadata.labels", "metadata.name", "metadata.namespace", *extra):
        _grow(tree, name.split("."))
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_struct_for("Attributes", tree))
    paths = [(name, [_python_name(segment) for segment in name.split(".")], default) for name, default in extra.items()]

    def extract(raw: bytes) -> Attributes:
        try:
            found = decoder.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise DecodeError(f"the object's attributes cannot be read: {error}") from error
        metadata = found.metadata
        if metadata is None:
            raise DecodeError("the object's attributes cannot be read: it has no metadata")
        values = {"metadata.name": metadata.name or ""}
        if namespaced:
            values["metadata.namespace"] = metadata.namespace or ""
        for name, path, default in paths:
            values[name] = _field_text(found, path, default)
        return Attributes(metadata.labels or {}, values)

    return extract


def _grow(tree: dict[str, Any], path: list[str]) -> None:
    for segment in path[:-1]:
        tree = tree.setdefault(segment, {})
    tree.setdefault(path[-1], {})


def _struct_for(name: str, tree: Mapping[str, Any]) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any, Any]] = []
    rename: dict[str, str] = {}
    for index, (key, below) in enumerate(tree.items()):
        kind: Any = Any
        if below:
            kind = _struct_for(f"{name}{index}", below) | None
        elif name.startswith("Attributes") and key == "labels":
            kind = dict[str, str] | None
        elif key in {"name", "namespace"} and name == "Attributes0":
            kind = str | None
        fields.append((_python_name(key), kind, None))
        rename[_python_name(key)] = key
    return msgspec.defstruct(name, fields, rename=rename)


def _python_name(segment: str) -> str:
    """Return an attribute name for a part of a field's path, which need not be a Python name."""
    return segment if segment.isidentifier() else "_" + segment.encode().hex()


def _field_text(found: Any, path: list[str], default: str) -> str:
    for segment in path:
        found = getattr(found, segment)
        if found is None:
            return default
    if found is True or found is False:
        return "true" if found else "false"
    return found if isinstance(found, str) else str(found)


default_attributes = attribute_func()


# --- label selectors -------------------------------------------------------------------------------------


class LabelRequirement(NamedTuple):
    """One term of a label selector; `operator` is one of `=`, `!=`, `in`, `notin`, `exists`, `!`, `gt`, `lt`."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet this requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "=" | "in":
                return value in self.values
            case "!=" | "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        left, right = _int64(value or ""), _int64(next(iter(self.values)))
        if left is None or right is None:
            return False
        return left > right if self.operator == "gt" else left < right


def _int64(text: str) -> int | None:
    """Return the number that `text` writes, read as Go reads an int64; None when it is none."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


class LabelSelector(NamedTuple):
    """A conjunction of requirements on labels; empty selects everything."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)


_LABEL_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL_KEY = re.compile(rf"(?:(?=[^/]{{1,253}}/){_DNS_LABEL}(?:\.{_DNS_LABEL})*/)?{_LABEL_NAME}")
_INTEGER = re.compile(r"[+-]?0{0,63}[0-9]{1,19}")
_LABEL_VALUE = re.compile(rf"(?:{_LABEL_NAME})?")
_SET_TERM = re.compile(r"(?P<key>[^\s!=<>,()]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_COMPARE_TERM = re.compile(r"(?P<key>[^\s!=<>,()]+)\s*(?P<operator>==|!=|=|>|<)\s*(?P<value>[^\s!=<>,()]*)")
_EXISTS_TERM = re.compile(r"(?P<not>!\s*)?(?P<key>[^\s!=<>,()]+)")
_SPACES = re.compile(r"\s*")
_OPERATORS = {"==": "=", "=": "=", "!=": "!=", ">": "gt", "<": "lt"}


def parse_label_selector(text: str) -> LabelSelector:
    """Return the selector that `text` writes in Kubernetes' label selector language.

    Raises:
        BadRequest: it is not in that language; the message names the part.
    """
    requirements: list[LabelRequirement] = []
    terms = text.strip()
    at, end = 0, len(terms)
    while at < end:
        requirement, at = _label_term(terms, at)
        requirements.append(requirement)
        at = _past_spaces(terms, at)
        if at < end:
            following = _past_spaces(terms, at + 1)
            if terms[at] != "," or following == end:
                found = terms[at:]
                raise BadRequest(f"unable to parse requirement: found {found!r}, expected: ',' or the end in {text!r}")
            at = following
    return LabelSelector(tuple(requirements))


def _past_spaces(text: str, at: int) -> int:
    found = _SPACES.match(text, at)
    return found.end() if found else at


def _label_term(text: str, at: int) -> tuple[LabelRequirement, int]:
    """Return the requirement that stands at a place of the selector, and the place behind it."""
    if found := _SET_TERM.match(text, at):
        values = frozenset(value.strip() for value in found["values"].split(","))
        requirement = LabelRequirement(found["key"], found["operator"], values)
    elif found := _COMPARE_TERM.match(text, at):
        requirement = LabelRequirement(found["key"], _OPERATORS[found["operator"]], frozenset((found["value"],)))
    elif found := _EXISTS_TERM.match(text, at):
        requirement = LabelRequirement(found["key"], "!" if found["not"] else "exists")
    else:
        raise BadRequest(f"unable to parse requirement: {text[at:]!r} in label selector {text!r}")
    if not _LABEL_KEY.fullmatch(requirement.key):
        raise BadRequest(f"unable to parse requirement: {requirement.key!r} is not a label key")
    for value in requirement.values:
        if requirement.operator in {"gt", "lt"} and _int64(value) is None:
            raise BadRequest(
                f"unable to parse requirement: for '>' and '<' the value must be an integer, not {value!r}"
            )
        if requirement.operator not in {"gt", "lt"} and not _LABEL_VALUE.fullmatch(value):
            raise BadRequest(f"unable to parse requirement: {value!r} is not a label value")
    return requirement, found.end()


# --- field selectors -------------------------------------------------------------------------------------


class FieldTerm(NamedTuple):
    """One term of a field selector: the field must (`equal`) or must not have the value."""

    field: str
    value: str
    equal: bool = True


class FieldSelector(NamedTuple):
    """A conjunction of terms on fields; empty selects everything."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether the fields meet every term; an unknown field has the value ""."""
        return all((fields.get(field, "") == value) is equal for field, value, equal in self.terms)

    def exact(self, field: str) -> str | None:
        """Return the one value that the selector pins `field` to, or None."""
        for term in self.terms:
            if term.equal and term.field == field:
                return term.value
        return None


_FIELD_TERMS = re.compile(r"(?:[^\\,]|\\.|\\$)+", re.DOTALL)
_FIELD_TERM = re.compile(r"(?P<field>[^=!\\]+)(?P<operator>==|!=|=)(?P<value>(?:[^\\=,]|\\.)*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parse_field_selector(text: str) -> FieldSelector:
    r"""Return the selector that `text` writes in Kubernetes' field selector language.

    Values escape comma, equals sign and backslash with a backslash.

    Raises:
        BadRequest: it is not in that language; the message names the part.
    """
    terms: list[FieldTerm] = []
    for part in _FIELD_TERMS.findall(text):
        found = _FIELD_TERM.fullmatch(part)
        if not found:
            raise BadRequest(f"invalid selector: {text!r}; can't understand {part!r}")
        for escape in _ESCAPED.findall(found["value"]):
            if escape not in "\\,=":
                raise BadRequest(f"invalid selector: {text!r}; invalid escape sequence '\\{escape}' in {part!r}")
        terms.append(FieldTerm(found["field"].strip(), _ESCAPED.sub(r"\1", found["value"]), found["operator"] != "!="))
    return FieldSelector(tuple(terms))


EVERY_LABEL = LabelSelector()
EVERY_FIELD = FieldSelector()


# --- predicate -------------------------------------------------------------------------------------------


@attrs.frozen
class Predicate:
    """What a list or watch selects, and how much of it.

    Attributes:
        labels: requirements on labels.
        fields: requirements on fields.
        attributes: how to extract both; None for the resource's own way.
        limit: at most so many items; 0 for all.
        continue_token: where a former page ended.
        allow_watch_bookmarks: whether the watcher wants bookmarks.
        index_labels: labels that a cache may look up by index.
        index_fields: fields that a cache may look up by index.
    """

    labels: LabelSelector = EVERY_LABEL
    fields: FieldSelector = EVERY_FIELD
    attributes: AttributeFunc | None = None
    limit: int = 0
    continue_token: str = ""
    allow_watch_bookmarks: bool = False
    index_labels: tuple[str, ...] = ()
    index_fields: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether everything is selected."""
        return not self.labels.requirements and not self.fields.terms

    def matcher(self, attributes: AttributeFunc) -> Callable[[bytes], bool] | None:
        """Return a test on an object's JSON, or None when everything matches.

        An object whose attributes cannot be read does not match.

        Args:
            attributes: how to extract attributes if the predicate does not say.
        """
        if self.empty:
            return None
        extract = self.attributes or attributes
        labels, fields = self.labels, self.fields

        def matches(raw: bytes) -> bool:
            try:
                found = extract(raw)
            except DecodeError:
                return False
            return labels.matches(found.labels) and fields.matches(found.fields)

        return matches

    def matches_single(self) -> str | None:
        """Return the one name that can match, when the field selector pins it and no page is continued."""
        return None if self.continue_token else self.fields.exact("metadata.name")
