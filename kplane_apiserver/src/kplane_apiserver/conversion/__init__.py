"""Builtin kinds whose versions or groups name the same fields differently: one store, several forms of what is in it.

Objects lie in the store in one form, the kind's `storage_api_version`; clients of that form receive the stored bytes.
Every other form is converted on the way in and on the way out. A form that loses nothing needs no more than an entry
in the table below.

Exports:
    converts: whether a kind is one of them.
    in_version: an object in the form of a kind.
    stored_form: an object as it is stored.
    sibling: the kind that another `apiVersion` of the same objects stands for, where its fields differ.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kplane_apiserver.conversion import autoscalers, events
from kplane_apiserver.kinds import Kind, builtin_kinds

__all__ = ["converts", "in_version", "sibling", "stored_form"]

Document = dict[str, Any]


class _Form(NamedTuple):
    """How one form becomes the stored one and comes from it; both leave their argument as it is."""

    to_stored: Callable[[Document], Document]
    from_stored: Callable[[Document], Document]


# The resource in whose store they lie -> the `apiVersion` of each form that is not the stored one.
_FORMS: Mapping[str, Mapping[str, _Form]] = MappingProxyType(
    {
        "events": {"events.k8s.io/v1": _Form(events.to_core, events.from_core)},
        "horizontalpodautoscalers.autoscaling": {"autoscaling/v1": _Form(autoscalers.to_v2, autoscalers.from_v2)},
    }
)
_NO_FORMS: Mapping[str, _Form] = MappingProxyType({})


def _forms(kind: Kind) -> Mapping[str, _Form]:
    return _FORMS.get(kind.storage_resource, _NO_FORMS) if kind.custom is None else _NO_FORMS


def converts(kind: Kind) -> bool:
    """Return whether objects of a kind have other fields in another of its versions or groups."""
    return bool(_forms(kind))


def in_version(kind: Kind, document: Document) -> Document:
    """Return an object in the form of a kind, whatever form it has; the given one may be changed.

    Args:
        kind: says the form.
        document: an object of this kind or of one that shares its store; its `apiVersion` says its form.
    """
    wanted = kind.api_version
    found = document.get("apiVersion") or ""
    if found != wanted and (forms := _forms(kind)):
        if found in forms:
            document = forms[found].to_stored(document)
        if wanted in forms:
            document = forms[wanted].from_stored(document)
    document["apiVersion"], document["kind"] = wanted, kind.kind
    return document


def stored_form(kind: Kind, document: Document) -> Document:
    """Return an object in the form in which objects of a kind are stored; the given one may be changed."""
    form = _forms(kind).get(document.get("apiVersion", ""))
    if form is not None:
        document = form.to_stored(document)
    document["apiVersion"] = kind.storage_api_version
    return document


def sibling(kind: Kind, api_version: str) -> Kind | None:
    """Return the kind of an `apiVersion` in which a kind's objects have other fields; None where they do not."""
    if api_version == kind.api_version or not _forms(kind):
        return None
    group, _, version = api_version.rpartition("/")
    other = builtin_kinds().get((group, version, kind.plural))
    return other if other is not None and other.storage_resource == kind.storage_resource else None
