"""Reviews: questions to the server about who a client is and what it may do. They are answered and never stored."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from kplane_apiserver.apierrors import cannot_be_handled, field_invalid, invalid
from kplane_apiserver.authorization.questions import Attributes
from kplane_apiserver.clusters.admission import metadata_of
from kplane_apiserver.identity import User
from kplane_apiserver.kinds import Kind
from kplane_apiserver.requests.params import write_options
from kplane_apiserver.requests.writers import read_object
from kplane_apiserver.services import Services
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.wire.http import Request, Response, json_response
from kplane_core.errors import BadRequest, StatusCause

Document = dict[str, Any]

AUDIENCE = "https://kubernetes.default.svc.cluster.local"
"""Whom tokens are for that name nobody: this server, as Kubernetes calls itself."""

_NO_AUTHENTICATION = "the server knows no tokens"


async def create_review(services: Services, request: Request, served: Served) -> Response:
    """Answer the review in the body.

    Raises:
        BadRequest: the body is no such review, or lacks what is asked about.
        InvalidError: it does not ask one thing.
    """
    options = write_options(request, "CreateOptions")
    document = await read_object(request, served, options)
    metadata = metadata_of(document)
    review = _REVIEWS[served.kind.kind]
    try:
        spec: object = msgspec.convert(document.get("spec") or {}, review.spec)
    except msgspec.ValidationError as error:
        raise cannot_be_handled(served.kind.kind, served.kind.version, str(error)) from None
    status = review.answer(_Asked(services, request, served.kind, metadata), spec)
    answer = {**document, "metadata": {**metadata, "creationTimestamp": None}, "status": status}
    return json_response(answer, 201)


class _Asked(NamedTuple):
    services: Services
    request: Request
    kind: Kind
    metadata: Document


# --- who is it --------------------------------------------------------------------------------------------------------


class _SelfSpec(msgspec.Struct):
    pass


class _TokenSpec(msgspec.Struct):
    token: str = ""
    audiences: list[str] | None = None


def _who_am_i(asked: _Asked, _spec: _SelfSpec) -> Document:
    return {"userInfo": asked.request.user.to_dict()}


def _whose_token(asked: _Asked, spec: _TokenSpec) -> Document:
    if not spec.token:
        raise BadRequest("token is required for TokenReview in authentication")
    authenticator = asked.services.settings.authenticator
    if authenticator is None:
        return {"authenticated": False, "error": _NO_AUTHENTICATION, "user": {}}
    user = None
    # The tokens name no audience, so they are for this server and for nobody else.
    if not spec.audiences or AUDIENCE in spec.audiences:
        user = authenticator.user_of(spec.token.encode("utf-8", "surrogatepass"), asked.request.route.cluster)
    if user is None:
        return {"authenticated": False, "user": {}}
    return {"authenticated": True, "user": user.to_dict(), "audiences": [AUDIENCE]}


# --- what may it do ---------------------------------------------------------------------------------------------------


class _Resource(msgspec.Struct):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _Path(msgspec.Struct):
    path: str = ""
    verb: str = ""


class _AccessSpec(msgspec.Struct):
    resource: _Resource | None = msgspec.field(default=None, name="resourceAttributes")
    path: _Path | None = msgspec.field(default=None, name="nonResourceAttributes")
    user: str = ""
    groups: list[str] | None = None
    uid: str = ""
    extra: dict[str, list[str]] | None = None


class _RulesSpec(msgspec.Struct):
    namespace: str = ""


def _may_i(asked: _Asked, spec: _AccessSpec) -> Document:
    _refuse(asked.kind, [*_spec_faults(spec), *_metadata_faults(asked.metadata, "must be empty")])
    return _decide(asked, spec, asked.request.user)


def _may_he(asked: _Asked, spec: _AccessSpec) -> Document:
    faults = [*_spec_faults(spec), *_user_faults(spec), *_metadata_faults(asked.metadata, "must be empty")]
    _refuse(asked.kind, faults)
    return _decide(asked, spec, _user(spec))


def _may_he_here(asked: _Asked, spec: _AccessSpec) -> Document:
    namespace = asked.request.route.namespace
    given = asked.metadata.get("namespace")
    if given and given != namespace:
        raise BadRequest(f"namespace on object and request are different: {given} != {namespace}")
    kept = {key: value for key, value in asked.metadata.items() if key != "namespace"}
    faults = [*_spec_faults(spec), *_user_faults(spec), *_metadata_faults(kept, "must be empty except for namespace")]
    if spec.resource is not None and spec.resource.namespace != namespace:
        field = "spec.resourceAttributes.namespace"
        faults.append(field_invalid(field, spec.resource.namespace, "must match metadata.namespace"))
    if spec.path is not None:
        shown = msgspec.to_builtins(spec.path)
        faults.append(field_invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request"))
    _refuse(asked.kind, faults)
    return _decide(asked, spec, _user(spec))


def _what_may_i(asked: _Asked, spec: _RulesSpec) -> Document:
    if not spec.namespace:
        raise BadRequest("no namespace on request")
    request = asked.request
    rules = asked.services.authorizer.rules_for(request.user, request.route.cluster, spec.namespace)
    status: Document = {
        "resourceRules": list(rules.resource_rules),
        "nonResourceRules": list(rules.path_rules),
        "incomplete": rules.incomplete,
    }
    return {**status, "evaluationError": rules.error} if rules.error else status


def _decide(asked: _Asked, spec: _AccessSpec, user: User) -> Document:
    cluster, resource = asked.request.route.cluster, spec.resource
    if resource is not None:
        attributes = Attributes(
            user,
            cluster,
            resource.verb,
            resource.group,
            resource.version or "*",
            resource.resource,
            resource.subresource,
            resource.namespace,
            resource.name,
        )
    else:
        path = spec.path or _Path()
        attributes = Attributes(user, cluster, path.verb, path=path.path)
    decision = asked.services.authorizer.authorize(attributes)
    status: Document = {"allowed": decision.allowed}
    return {**status, "reason": decision.reason} if decision.reason else status


def _user(spec: _AccessSpec) -> User:
    extra = {key: tuple(values) for key, values in (spec.extra or {}).items()}
    return User(spec.user, spec.uid, tuple(spec.groups or ()), extra)


def _spec_faults(spec: _AccessSpec) -> list[StatusCause]:
    if spec.resource is not None and spec.path is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        return [field_invalid("spec.nonResourceAttributes", msgspec.to_builtins(spec.path), detail)]
    if spec.resource is None and spec.path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [field_invalid("spec.resourceAttributes", None, detail)]
    return []


def _user_faults(spec: _AccessSpec) -> list[StatusCause]:
    if spec.user or spec.groups:
        return []
    return [field_invalid("spec.user", "", "at least one of user or group must be specified")]


def _metadata_faults(metadata: Document, detail: str) -> list[StatusCause]:
    given = {key: value for key, value in metadata.items() if key != "managedFields" and value}
    return [field_invalid("metadata", given, detail)] if given else []


def _refuse(kind: Kind, faults: list[StatusCause]) -> None:
    if faults:
        raise invalid(faults, kind=kind.kind, name="", group=kind.group)


class _Review(NamedTuple):
    spec: type
    answer: Callable[[_Asked, Any], Document]


_REVIEWS: Mapping[str, _Review] = MappingProxyType(
    {
        "SelfSubjectReview": _Review(_SelfSpec, _who_am_i),
        "TokenReview": _Review(_TokenSpec, _whose_token),
        "SelfSubjectRulesReview": _Review(_RulesSpec, _what_may_i),
        "SelfSubjectAccessReview": _Review(_AccessSpec, _may_i),
        "SubjectAccessReview": _Review(_AccessSpec, _may_he),
        "LocalSubjectAccessReview": _Review(_AccessSpec, _may_he_here),
    }
)
