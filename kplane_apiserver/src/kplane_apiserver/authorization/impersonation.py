"""Acting as somebody else: the Impersonate-* headers, each part of which the authorizer must allow."""

from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from kplane_apiserver.authorization.questions import Attributes, Authorizer, not_allowed
from kplane_apiserver.identity import ANONYMOUS_NAME, AUTHENTICATED, UNAUTHENTICATED, User
from kplane_apiserver.wire.http import Request
from kplane_core.errors import BadRequest

PREFIX = b"impersonate-"

_USER = b"impersonate-user"
_GROUP = b"impersonate-group"
_UID = b"impersonate-uid"
_EXTRA = b"impersonate-extra-"
_GROUP_NAME = "authentication.k8s.io"
_ACCOUNT = "system:serviceaccount:"
_ACCOUNTS = "system:serviceaccounts"
_VERB = "impersonate"


def impersonated(request: Request, requestor: User, authorizer: Authorizer) -> User:
    """Return the user that a request with Impersonate-* headers acts as.

    Args:
        request: the request.
        requestor: who it really is from.
        authorizer: must allow the requestor each part.

    Raises:
        BadRequest: the headers name no user, or are no text.
        ApiError: 403; a part is not allowed.
    """
    headers = [(name, value) for name, value in request.scope["headers"] if name.startswith(PREFIX)]
    name = next(iter(_values(headers, _USER)), "")
    groups, uid = list(_values(headers, _GROUP)), next(iter(_values(headers, _UID)), "")
    extra = _extra(headers)
    if not name:
        if groups or uid or extra:
            raise BadRequest("groups, a UID or extra fields were to be impersonated without a user")
        return requestor
    for attributes in _questions(requestor, request.route.cluster, name, groups, uid, extra):
        decision = authorizer.authorize(attributes)
        if not decision.allowed:
            raise not_allowed(attributes, decision.reason)
    return User(name, uid, tuple(_completed(name, groups)), {key: tuple(values) for key, values in extra.items()})


def _values(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> Iterator[str]:
    return (_text(value) for name, value in headers if name == wanted)


def _extra(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    extra: dict[str, list[str]] = {}
    for name, value in headers:
        if name.startswith(_EXTRA):
            extra.setdefault(unquote(_text(name[len(_EXTRA) :])), []).append(_text(value))
    return extra


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadRequest("an Impersonate header is not UTF-8 text") from None


def _questions(
    requestor: User, cluster: str, name: str, groups: Iterable[str], uid: str, extra: dict[str, list[str]]
) -> Iterator[Attributes]:
    account = _account(name)
    if account is None:
        yield Attributes(requestor, cluster, _VERB, resource="users", name=name)
    else:
        yield Attributes(requestor, cluster, _VERB, resource="serviceaccounts", namespace=account[0], name=account[1])
    for group in groups:
        yield Attributes(requestor, cluster, _VERB, resource="groups", name=group)
    if uid:
        yield Attributes(requestor, cluster, _VERB, _GROUP_NAME, "v1", "uids", name=uid)
    for key, values in extra.items():
        for value in values:
            yield Attributes(requestor, cluster, _VERB, _GROUP_NAME, "v1", "userextras", subresource=key, name=value)


def _account(name: str) -> tuple[str, str] | None:
    """Return the namespace and the name of the service account that a user's name stands for, if it does."""
    if not name.startswith(_ACCOUNT):
        return None
    namespace, colon, account = name.removeprefix(_ACCOUNT).partition(":")
    return (namespace, account) if colon and namespace and account and ":" not in account else None


def _completed(name: str, groups: list[str]) -> list[str]:
    """Return the groups, with those that follow from the name."""
    account = _account(name)
    if account is not None and not groups:
        groups = [_ACCOUNTS, f"{_ACCOUNTS}:{account[0]}"]
    known = {AUTHENTICATED, UNAUTHENTICATED} if name != ANONYMOUS_NAME else {UNAUTHENTICATED}
    if known.isdisjoint(groups):
        groups = [*groups, UNAUTHENTICATED if name == ANONYMOUS_NAME else AUTHENTICATED]
    return groups
