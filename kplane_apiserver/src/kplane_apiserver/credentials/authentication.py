"""From a bearer token to a user: what every source of tokens offers."""

from typing import Protocol

from kplane_apiserver.identity import User

_BEARER = b"bearer "


class Authenticator(Protocol):
    """Knows whose a token is, from memory: it is asked for every request."""

    def user_of(self, token: bytes, cluster: str, /) -> User | None:
        """Return the user whose token it is; None when it is unknown, or not good for the cluster.

        Args:
            token: the token as it came; may be empty.
            cluster: the cluster in which it is used; EVERY_CLUSTER takes a token that is good for all.
        """
        ...


def bearer_token(authorization: bytes) -> bytes:
    """Return the token in an Authorization header; empty when it carries another credential, or none."""
    if authorization[: len(_BEARER)].lower() != _BEARER:
        return b""
    return authorization[len(_BEARER) :].strip()
