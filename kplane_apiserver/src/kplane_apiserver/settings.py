"""What the server can be told: the values that `kplane serve` and tests give to `ApiServer`."""

import platform
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import attrs

from kplane_apiserver.credentials.authentication import Authenticator
from kplane_apiserver.credentials.browsers import Browsers
from kplane_apiserver.credentials.tokens import AdminTokens

MIB = 1024 * 1024


def wall_clock() -> datetime:
    """Return the time of day in UTC."""
    return datetime.now(UTC)


@attrs.frozen
class Settings:
    """How the server behaves.

    Attributes:
        root_cluster: the cluster that answers requests without a `/clusters/<id>/control-plane` prefix.
        cluster_creation: `auto` creates a cluster when it is first touched, `explicit` asks for a Cluster object.
        max_body: bytes that a request body may have.
        request_timeout: seconds after which a request that is no watch is given up.
        watch_cache: whether lists and watches are served from one watch cache per resource.
        authenticator: knows the tokens; None lets everybody do everything.
        anonymous_auth: whether a request without a credential is from `system:anonymous`; else it is refused.
        authorization_mode: `AlwaysAllow` lets every user do everything; with `RBAC` the roles of each cluster decide.
        browsers: refuses web pages that send requests without a credential; None lets them in.
        cross_cluster_readers: who may list and watch over all clusters without authentication; with it, members of
            `kplane:cross-cluster-readers` and `system:masters` may too. None forbids it to everybody.
        metrics_by_cluster: whether `/metrics` tells the clusters of requests apart.
        min_watch_timeout: a watch that asks for no time ends after a random time between this and twice this.
        bookmark_interval: seconds between two bookmarks of a watch that allows them; rounded up to whole seconds.
        drain_timeout: seconds that open watches get to end when the server stops.
        event_ttl: seconds that an Event is kept.
        version: the server's own version, shown by `/version`.
        now: the time of day, for creation and deletion timestamps.
    """

    root_cluster: str = "root"
    cluster_creation: Literal["auto", "explicit"] = "auto"
    max_body: int = 3 * MIB
    request_timeout: float = 60.0
    watch_cache: bool = True
    authenticator: Authenticator | None = None
    anonymous_auth: bool = False
    authorization_mode: Literal["AlwaysAllow", "RBAC"] = "AlwaysAllow"
    browsers: Browsers | None = None
    cross_cluster_readers: AdminTokens | None = None
    metrics_by_cluster: bool = False
    min_watch_timeout: float = 1800.0
    bookmark_interval: float = 60.0
    drain_timeout: float = 2.0
    event_ttl: int = 3600
    version: str = "0.1.0"
    now: Callable[[], datetime] = wall_clock


def timestamp(moment: datetime) -> str:
    """Return `moment` as Kubernetes writes times: UTC, whole seconds, `Z`."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="seconds")[:19] + "Z"  # many times faster than strftime, and asked on every write


def version_document(settings: Settings) -> dict[str, str]:
    """Return what `/version` says: the Kubernetes version whose API is spoken, and what really runs."""
    return {
        "major": "1",
        "minor": "35",
        # A semantic version, as helm and kubectl demand; what follows the plus sign names this server.
        "gitVersion": f"v1.35.0+kplane-{settings.version}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{_machine()}",
    }


def _machine() -> str:
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
