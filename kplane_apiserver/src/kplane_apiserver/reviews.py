"""Reviews: questions to the server about who a client is and what it may do. They are answered and never stored.

The server knows no users yet: every request is anonymous, and every request is allowed. The answers say just that.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kplane_apiserver.admission import metadata_of
from kplane_apiserver.apierrors import field_invalid, field_required, invalid
from kplane_apiserver.http import Request, Response, json_response
from kplane_apiserver.kinds import Kind
from kplane_apiserver.params import write_options
from kplane_apiserver.services import Services
from kplane_apiserver.stores import Served
from kplane_apiserver.writers import read_object
from kplane_core.errors import StatusCause

Document = dict[str, Any]

ANONYMOUS: Mapping[str, Any] = MappingProxyType({"username": "system:anonymous", "groups": ["system:unauthenticated"]})
_NO_AUTHORIZATION = "the server authorizes every request"
_NO_AUTHENTICATION = "the server knows no tokens"


async def create_review(_services: Services, request: Request, served: Served) -> Response:
    """Answer the review in the body.

    Raises:
        BadRequest: the body is no such review.
        InvalidError: it does not ask one thing.
    """
    options = write_options(request, "CreateOptions")
    document = await read_object(request, served, options)
    kind = served.kind
    metadata = metadata_of(document)
    spec = document.get("spec") or {}
    causes = _CHECKS[kind.kind](spec, request.route.namespace)
    if causes:
        raise invalid(causes, kind=kind.kind, name="", group=kind.group)
    answer = {**document, "metadata": {**metadata, "creationTimestamp": None}, "status": _status(kind)}
    return json_response(answer, 201)


def _status(kind: Kind) -> Document:
    match kind.kind:
        case "SelfSubjectReview":
            return {"userInfo": dict(ANONYMOUS)}
        case "TokenReview":
            return {"authenticated": False, "error": _NO_AUTHENTICATION, "user": {}}
        case "SelfSubjectRulesReview":
            return {
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": False,
            }
        case _:
            return {"allowed": True, "reason": _NO_AUTHORIZATION}


def _check_nothing(_spec: Document, _namespace: str) -> list[StatusCause]:
    return []


def _check_token(spec: Document, _namespace: str) -> list[StatusCause]:
    return [] if spec.get("token") else [field_required("spec.token")]


def _check_rules(spec: Document, _namespace: str) -> list[StatusCause]:
    return [] if spec.get("namespace") else [field_required("spec.namespace", "a namespace is required")]


def _check_self_access(spec: Document, _namespace: str) -> list[StatusCause]:
    asked = [name for name in ("resourceAttributes", "nonResourceAttributes") if spec.get(name) is not None]
    if len(asked) != 1:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [field_invalid("spec.resourceAttributes", ", ".join(asked), detail)]
    return []


def _check_access(spec: Document, namespace: str) -> list[StatusCause]:
    causes = _check_self_access(spec, namespace)
    if not spec.get("user") and not spec.get("groups"):
        causes.append(field_required("spec.user", "at least one of user or group must be specified"))
    return causes


def _check_local_access(spec: Document, namespace: str) -> list[StatusCause]:
    causes = _check_access(spec, namespace)
    attributes = spec.get("resourceAttributes")
    asked = attributes.get("namespace") if isinstance(attributes, dict) else None
    if asked != namespace:
        causes.append(field_invalid("spec.resourceAttributes.namespace", asked, "must match metadata.namespace"))
    return causes


_CHECKS: Mapping[str, Callable[[Document, str], list[StatusCause]]] = MappingProxyType(
    {
        "SelfSubjectReview": _check_nothing,
        "TokenReview": _check_token,
        "SelfSubjectRulesReview": _check_rules,
        "SelfSubjectAccessReview": _check_self_access,
        "SubjectAccessReview": _check_access,
        "LocalSubjectAccessReview": _check_local_access,
    }
)
