"""The query parameters of the API: what may be combined, and what each combination means."""

from typing import Any

import attrs

from kplane_apiserver.apierrors import (
    field_forbidden,
    field_not_supported,
    field_required,
    field_too_long,
    invalid,
)
from kplane_apiserver.checks.fields import check_field_selector
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.wire.http import Request
from kplane_core.errors import BadRequest, StatusCause
from kplane_core.storage.interface import ListOptions
from kplane_core.storage.preconditions import Preconditions
from kplane_core.storage.selection import (
    FieldSelector,
    FieldTerm,
    LabelSelector,
    Predicate,
    parse_field_selector,
    parse_label_selector,
)

META_GROUP = "meta.k8s.io"
_MATCH = "resourceVersionMatch"
_EXACT = "Exact"
_NOT_OLDER = "NotOlderThan"
_FIELD_MANAGER_LENGTH = 128
_FIELD_VALIDATION = ("Ignore", "Strict", "Warn")
_PROPAGATION = ("Foreground", "Background", "Orphan")


def list_options(request: Request, served: Served) -> ListOptions:
    """Return what a list asks for.

    Raises:
        InvalidError: parameters that exclude each other, worded as upstream.
        BadRequest: a selector or number that cannot be read.
    """
    query = request.query
    if not query:
        return ListOptions()
    causes = _list_faults(query)
    if causes:
        raise invalid(causes, kind="ListOptions", name="", group=META_GROUP)
    labels, fields = _selectors(request, served)
    return ListOptions(
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get(_MATCH, ""),
        predicate=Predicate(
            labels=labels,
            fields=fields,
            attributes=served.attributes,
            limit=request.integer("limit"),
            continue_token=query.get("continue", ""),
        ),
    )


def watch_options(request: Request, served: Served, *, only_name: str = "") -> ListOptions:
    """Return what a watch asks for; `only_name` restricts it to one object.

    Raises:
        InvalidError: parameters that exclude each other, worded as upstream.
        BadRequest: a selector or number that cannot be read.
    """
    query = request.query
    causes = _watch_faults(query)
    if causes:
        raise invalid(causes, kind="ListOptions", name="", group=META_GROUP)
    labels, fields = _selectors(request, served)
    if only_name:
        fields = FieldSelector((*fields.terms, FieldTerm("metadata.name", only_name)))
    bookmarks = request.flag("allowWatchBookmarks")
    return ListOptions(
        resource_version=query.get("resourceVersion", ""),
        predicate=Predicate(
            labels=labels, fields=fields, attributes=served.attributes, allow_watch_bookmarks=bookmarks
        ),
        progress_notify=bookmarks,
        send_initial_events=request.flag("sendInitialEvents") if "sendInitialEvents" in query else None,
    )


def selection(request: Request, served: Served) -> Predicate:
    """Return the selectors alone, for a delete of a collection."""
    labels, fields = _selectors(request, served)
    return Predicate(labels=labels, fields=fields, attributes=served.attributes)


def _selectors(request: Request, served: Served) -> tuple[LabelSelector, FieldSelector]:
    query = request.query
    labels = parse_label_selector(query.get("labelSelector", ""))
    fields = parse_field_selector(query.get("fieldSelector", ""))
    return labels, check_field_selector(served.kind, fields)


def _list_faults(query: Any) -> list[StatusCause]:
    causes: list[StatusCause] = []
    match = query.get(_MATCH, "")
    if match:
        if not query.get("resourceVersion"):
            causes.append(field_forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided"))
        if query.get("continue"):
            causes.append(field_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
        if match not in {_EXACT, _NOT_OLDER}:
            causes.append(field_not_supported(_MATCH, match, (_EXACT, _NOT_OLDER)))
        if match == _EXACT and query.get("resourceVersion") == "0":
            causes.append(field_forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        causes.append(field_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return causes


def _watch_faults(query: Any) -> list[StatusCause]:
    causes: list[StatusCause] = []
    match = query.get(_MATCH, "")
    if "sendInitialEvents" in query:
        if match != _NOT_OLDER:
            causes.append(field_forbidden(_MATCH, f"sendInitialEvents requires setting {_MATCH} to {_NOT_OLDER}"))
    elif match:
        causes.append(field_forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided"))
    if match and match != _NOT_OLDER:
        causes.append(field_not_supported(_MATCH, match, (_NOT_OLDER,)))
    if match and query.get("continue"):
        causes.append(field_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
    return causes


@attrs.frozen
class WriteOptions:
    """How a write is to be done.

    Attributes:
        dry_run: answer as if, and change nothing.
        field_manager: who writes.
        force: server-side apply takes over fields of others.
        field_validation: what becomes of unknown and duplicate fields: `Strict`, `Warn` or `Ignore`.
    """

    dry_run: bool = False
    field_manager: str = ""
    force: bool = False
    field_validation: str = "Warn"


_PLAIN_WRITE = WriteOptions()


def write_options(request: Request, kind: str, *, apply: bool = False) -> WriteOptions:
    """Return how a write is to be done.

    Args:
        request: the request.
        kind: `CreateOptions`, `UpdateOptions` or `PatchOptions`, for the words of an error.
        apply: whether this is a server-side apply.

    Raises:
        InvalidError: a value that is not supported, worded as upstream.
    """
    query = request.query
    if not query and not apply:
        return _PLAIN_WRITE
    manager = query.get("fieldManager", "")
    causes = _dry_run_faults(query.get("dryRun"))
    if len(manager) > _FIELD_MANAGER_LENGTH:
        causes.append(field_too_long("fieldManager", _FIELD_MANAGER_LENGTH))
    validation = query.get("fieldValidation", "")
    if validation and validation not in _FIELD_VALIDATION:
        causes.append(field_not_supported("fieldValidation", validation, _FIELD_VALIDATION))
    if apply and not manager:
        causes.append(field_required("fieldManager", "is required for apply patch"))
    if kind == "PatchOptions" and not apply and "force" in query:
        causes.append(field_forbidden("force", "may not be specified for non-apply patch"))
    if causes:
        raise invalid(causes, kind=kind, name="", group=META_GROUP)
    return WriteOptions(bool(query.get("dryRun")), manager, request.flag("force"), validation or "Warn")


def _dry_run_faults(value: Any) -> list[StatusCause]:
    values = value if isinstance(value, list) else [value] if value else []
    return [field_not_supported("dryRun", one, ("All",)) for one in values if one != "All"]


@attrs.frozen
class RemoveOptions:
    """How a deletion is to be done.

    Attributes:
        dry_run: answer as if, and change nothing.
        preconditions: what must hold for the object.
        propagation: what becomes of its dependents; empty for what is usual for the kind.
    """

    dry_run: bool = False
    preconditions: Preconditions | None = None
    propagation: str = ""


_PLAIN_REMOVE = RemoveOptions()


def remove_options(request: Request, body: dict[str, Any]) -> RemoveOptions:
    """Return how a deletion is to be done, from DeleteOptions in the body or else in the query.

    Raises:
        InvalidError: a value that is not supported, worded as upstream.
        BadRequest: the body is no DeleteOptions.
    """
    if body:
        if body.get("kind", "DeleteOptions") != "DeleteOptions":
            raise BadRequest(f"the body of a DELETE must be DeleteOptions, not {body['kind']!r}")
        dry_run, propagation = body.get("dryRun"), body.get("propagationPolicy") or ""
    elif request.query:
        dry_run, propagation = request.query.get("dryRun"), request.query.get("propagationPolicy", "")
    else:
        return _PLAIN_REMOVE
    causes = _dry_run_faults(dry_run)
    if propagation and propagation not in _PROPAGATION:
        causes.append(field_not_supported("propagationPolicy", propagation, _PROPAGATION))
    if causes:
        raise invalid(causes, kind="DeleteOptions", name="", group=META_GROUP)
    return RemoveOptions(bool(dry_run), _preconditions(body), propagation)


def _preconditions(body: dict[str, Any]) -> Preconditions | None:
    given = body.get("preconditions")
    if not given:
        return None
    if not isinstance(given, dict):
        raise BadRequest("preconditions of DeleteOptions must be an object with uid and resourceVersion")
    return Preconditions(uid=given.get("uid") or None, resource_version=given.get("resourceVersion") or None)
