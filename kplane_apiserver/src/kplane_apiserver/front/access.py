"""The gate before everything else: who a request is from, as whom it acts, and whether it may.

It stands before the cluster is touched, so that a request that is not let in can neither make a cluster nor learn which
ones there are.
"""

from typing import Protocol

from kplane_apiserver.apierrors import unauthorized
from kplane_apiserver.authorization.impersonation import PREFIX, impersonated
from kplane_apiserver.authorization.questions import AlwaysAllow, Attributes, Authorizer, attributes_of, not_allowed
from kplane_apiserver.credentials.authentication import Authenticator, bearer_token
from kplane_apiserver.credentials.browsers import Browsers
from kplane_apiserver.identity import ANONYMOUS, UNAUTHENTICATED, reads_across_clusters
from kplane_apiserver.requests.health import PATHS as HEALTH_PATHS
from kplane_apiserver.settings import Settings
from kplane_apiserver.wire.http import Request
from kplane_apiserver.wire.routes import EVERY_CLUSTER

UNAUTHORIZED = "Unauthorized"
"""All that a stranger is told, whatever was wrong."""

_FROM_BROWSERS = frozenset({b"host", b"origin", b"sec-fetch-site"})


class Gate(Protocol):
    """Lets requests in, or not."""

    def admit(self, request: Request) -> None:
        """Return when the request may be answered; its user is set.

        Raises:
            ApiError: 401 or 403.
        """
        ...

    def may_make(self, request: Request) -> bool:
        """Return whether a request that was admitted may make its cluster by touching it."""
        ...


class OpenGate:
    """The gate of a server without authentication: everybody may do everything, but web pages of others may not.

    Args:
        authorizer: asked about impersonation.
        browsers: refuses web pages; None lets them in.
    """

    def __init__(self, authorizer: Authorizer, browsers: Browsers | None) -> None:
        self._authorizer = authorizer
        self._browsers = browsers

    def admit(self, request: Request) -> None:
        """Let the request in, unless a web page of others sent it."""
        host = origin = site = b""
        impersonating = False
        for name, value in request.scope["headers"]:
            if name in _FROM_BROWSERS:
                if name == b"host":
                    host = value
                elif name == b"origin":
                    origin = value
                else:
                    site = value
            elif name.startswith(PREFIX):
                impersonating = True
        if self._browsers is not None:
            self._browsers.check(host, origin, site)
        if impersonating:
            request.user = impersonated(request, ANONYMOUS, self._authorizer)

    def may_make(self, _request: Request) -> bool:
        """Return True."""
        return True


class Access:
    """The gate of a server with authentication.

    Args:
        authenticator: knows the tokens.
        authorizer: decides who may do what.
        root_cluster: whose health anybody may ask for.
        anonymous: whether a request without a credential is let through to the authorizer.
        browsers: refuses web pages that send no credential; None lets them in.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        *,
        root_cluster: str,
        anonymous: bool = False,
        browsers: Browsers | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._asks = not isinstance(authorizer, AlwaysAllow)
        self._root = root_cluster
        self._anonymous = anonymous
        self._browsers = browsers

    def admit(self, request: Request) -> None:
        """Authenticate the request, let it act as somebody else, and ask whether it may.

        Raises:
            ApiError: 401 for a credential that is missing or not good for this cluster, 403 for what is not allowed.
        """
        authorization: bytes | None = None
        impersonating = False
        for name, value in request.scope["headers"]:
            if name == b"authorization":
                authorization = value if authorization is None else authorization
            elif name.startswith(PREFIX):
                impersonating = True
        cluster = request.route.cluster
        if authorization is not None:
            user = self._authenticator.user_of(bearer_token(authorization), cluster)
            if user is None:
                raise unauthorized(UNAUTHORIZED)
            request.user = user
        elif self._is_health(request):
            return
        else:
            self._admit_stranger(request)
        if impersonating and self._may_impersonate(request):
            request.user = impersonated(request, request.user, self._authorizer)
        # Reads across clusters have a rule of their own: no cluster's roles speak for the others.
        if self._asks and cluster != EVERY_CLUSTER:
            self._authorize(request)

    def may_make(self, request: Request) -> bool:
        """Return whether the request may make its cluster by touching it: not without a credential or that right.

        Raises:
            ApiError: 403 for a request about objects, which cannot be answered without the cluster.
        """
        user = request.user
        if not self._asks:
            allowed = UNAUTHENTICATED not in user.groups
        else:
            name = request.route.cluster
            wanted = Attributes(user, self._root, "create", "kplane.dev", "v1", "clusters", name=name)
            allowed = self._authorizer.authorize(wanted).allowed
        if not allowed and request.route.resource:
            raise not_allowed(attributes_of(request, user), "")
        return allowed

    def _admit_stranger(self, request: Request) -> None:
        if not self._anonymous or request.route.cluster == EVERY_CLUSTER:
            raise unauthorized(UNAUTHORIZED)
        if self._browsers is not None:
            header = request.header
            self._browsers.check(header(b"host"), header(b"origin"), header(b"sec-fetch-site"))

    def _may_impersonate(self, request: Request) -> bool:
        """Return whether the request acts as somebody else, as far as that is not the authorizer's to say.

        A group that lets its members read across clusters is nobody's to take, and who is not one of them is refused by
        that rule, as himself. Who gave no credential is not made a user by those who allow everything: users make
        clusters.

        Raises:
            ApiError: 401 for the latter.
        """
        if not self._asks and UNAUTHENTICATED in request.user.groups:
            raise unauthorized(UNAUTHORIZED)
        return request.route.cluster != EVERY_CLUSTER or reads_across_clusters(request.user)

    def _is_health(self, request: Request) -> bool:
        """Return whether it is the question of a load balancer, which anybody may ask of the server as a whole."""
        route = request.route
        if len(route.path) != 1 or route.cluster != self._root or request.method != "GET":
            return False
        return route.path[0] in HEALTH_PATHS and "verbose" not in request.query

    def _authorize(self, request: Request) -> None:
        attributes = attributes_of(request, request.user)
        decision = self._authorizer.authorize(attributes)
        if not decision.allowed:
            raise not_allowed(attributes, decision.reason)


def gate_for(settings: Settings, authorizer: Authorizer) -> Gate:
    """Return the gate that the settings ask for.

    Args:
        settings: how the server behaves.
        authorizer: decides who may do what.
    """
    if settings.authenticator is None:
        return OpenGate(authorizer, settings.browsers)
    return Access(
        settings.authenticator,
        authorizer,
        root_cluster=settings.root_cluster,
        anonymous=settings.anonymous_auth,
        browsers=settings.browsers,
    )
