"""What a request asks to be allowed, and who decides: the question in Kubernetes' terms, and the two answers to all."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from kplane_apiserver.identity import User
from kplane_apiserver.wire.http import Request
from kplane_core.errors import ApiError, Status, Subject

_VERBS: Mapping[str, str] = MappingProxyType({"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"})
_NAME_FIELD = "metadata.name="


class Attributes(msgspec.Struct, frozen=True):
    """A question: may this user do that?

    Attributes:
        user: who asks.
        cluster: the virtual cluster in which it would happen.
        verb: get, list, watch, create, update, patch, delete, deletecollection, or another that a review asks for;
            of a path that names no resource, the HTTP method in lower case.
        group: the API group; empty for the core group.
        version: the version within the group.
        resource: the plural; empty for a path that names no resource.
        subresource: what follows the name, if anything.
        namespace: the namespace; empty for all of them and for what lies in none. Of a namespace itself, its name.
        name: the object's name, or the one name that a list or watch selects.
        path: the path below the cluster's prefix, of a request that names no resource.
    """

    user: User
    cluster: str
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    """The answer.

    Attributes:
        allowed: whether it may happen.
        reason: why, for a review and for the refusal's message; may be empty.
    """

    allowed: bool
    reason: str = ""


class Rules(NamedTuple):
    """What a user may do in a namespace.

    Attributes:
        resource_rules: rules as in a Role, each with verbs, apiGroups, resources and maybe resourceNames.
        path_rules: rules as in a ClusterRole, each with verbs and nonResourceURLs.
        incomplete: whether there may be more.
        error: what is wrong with bindings or roles that may be the user's; empty when nothing is.
    """

    resource_rules: Sequence[Mapping[str, Any]]
    path_rules: Sequence[Mapping[str, Any]]
    incomplete: bool = False
    error: str = ""


class Authorizer(Protocol):
    """Decides what may happen, from memory: it is asked for every request."""

    def authorize(self, attributes: Attributes) -> Decision:
        """Return whether it may happen."""
        ...

    def rules_for(self, user: User, cluster: str, namespace: str) -> Rules:
        """Return what the user may do in a namespace, for SelfSubjectRulesReview."""
        ...


class AlwaysAllow:
    """Allows everything to everybody."""

    def authorize(self, _attributes: Attributes) -> Decision:
        """Allow it."""
        return Decision(allowed=True, reason="the server authorizes every request")

    def rules_for(self, _user: User, _cluster: str, _namespace: str) -> Rules:
        """Return the rules that allow everything."""
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return Rules([everything], [{"verbs": ["*"], "nonResourceURLs": ["*"]}])


def attributes_of(request: Request, user: User) -> Attributes:
    """Return what a request asks to be allowed.

    The verb and the name follow upstream's RequestInfo: a list or watch that selects one name asks about that name.
    """
    route, method = request.route, request.method
    if not route.resource:
        return Attributes(user, route.cluster, request.scope["method"].lower(), path="/" + "/".join(route.path))
    verb, name = _VERBS.get(method, "get"), route.name
    if name and verb == "get" and not route.subresource and _watches(request):
        verb = "watch"  # upstream has no watch of one name by its path
    if not name and method in {"GET", "DELETE"}:
        verb = _collection_verb(request)
        name = _selected_name(request.query.get("fieldSelector", ""))
    namespace = route.namespace
    if route.resource == "namespaces" and not route.group and route.name:
        namespace = route.name
    return Attributes(
        user, route.cluster, verb, route.group, route.version, route.resource, route.subresource, namespace, name
    )


def check_create(authorizer: Authorizer, request: Request, **other: str) -> None:
    """Return if a request of another kind may also create what it makes; an apply is asked for that as well.

    Args:
        authorizer: decides.
        request: the request.
        other: what differs from what the request itself asks, for example `name`.

    Raises:
        ApiError: 403.
    """
    attributes = msgspec.structs.replace(attributes_of(request, request.user), verb="create", **other)
    decision = authorizer.authorize(attributes)
    if not decision.allowed:
        raise not_allowed(attributes, decision.reason)


def _collection_verb(request: Request) -> str:
    if request.method == "DELETE":
        return "deletecollection"
    return "watch" if _watches(request) else "list"


def _watches(request: Request) -> bool:
    # A HEAD is answered as a list or get, whatever it says.
    return bool(request.scope["query_string"]) and request.scope["method"] == "GET" and request.flag("watch")


def _selected_name(selector: str) -> str:
    """Return the one name that a field selector asks for; empty when it asks otherwise."""
    for term in selector.split(","):
        if term.startswith(_NAME_FIELD):
            return term.removeprefix(_NAME_FIELD).removeprefix("=")
    return ""


def not_allowed(attributes: Attributes, reason: str) -> ApiError:
    """Return the 403 for what the authorizer did not allow, worded as upstream words it."""
    user, verb = attributes.user.name, attributes.verb
    if not attributes.resource:
        subject, detail = "forbidden", f'User "{user}" cannot {verb} path "{attributes.path}"'
    else:
        named = f' "{attributes.name}"' if attributes.name else ""
        subject = f"{Subject(attributes.resource, attributes.group).qualified()}{named} is forbidden"
        part = f"/{attributes.subresource}" if attributes.subresource else ""
        where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
        resource, group = f"{attributes.resource}{part}", attributes.group
        detail = f'User "{user}" cannot {verb} resource "{resource}" in API group "{group}" {where}'
    message = f"{subject}: {detail}: {reason}" if reason else f"{subject}: {detail}"
    return ApiError(
        Status(403, "Forbidden", message, name=attributes.name, group=attributes.group, kind=attributes.resource)
    )
