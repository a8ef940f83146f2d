"""The options of `kplane serve`: each is a flag, a variable `KPLANE_SERVE_...` and a key below `[serve]`."""

import ipaddress
import re
from pathlib import Path
from typing import TypeVar

import attrs

from kplane_core.plugins.flags import (
    Parser,
    choice,
    csv_of,
    duration,
    file,
    filled_text,
    option,
    path,
    port,
    size,
)
from kplane_core.plugins.parsers import quoted

_HOST_NAME = re.compile(
    r"(?=.{1,253}$)(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)

N = TypeVar("N", int, float)

AUTO = "auto"
EXPLICIT = "explicit"
OFF = "off"
ALWAYS_ALLOW = "AlwaysAllow"
RBAC = "RBAC"

_SMALLEST_BODY = 1024
_SMALLEST_HEAD = 1024
_LARGEST_HEAD = 16 * 1024 * 1024
_SHORTEST_WAIT = 0.1


def _cluster_id(text: str) -> str:
    """Return the text if it can name a virtual cluster."""
    # Only a given value needs it.
    from kplane_core.multicluster.keylayout import InvalidClusterId, validate_cluster_id  # noqa: PLC0415

    try:
        return validate_cluster_id(text)
    except InvalidClusterId as error:
        raise ValueError(error.causes[0].message) from error


cluster_id: Parser[str] = Parser(_cluster_id, "NAME")


def _host_name(text: str) -> str:
    """Return the text, in lower case, if it can name a host."""
    name = text.strip().lower()
    if _HOST_NAME.fullmatch(name):
        return name
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        raise ValueError(f"neither a host name nor an address: {quoted(text)}") from None


host_name: Parser[str] = Parser(_host_name, "NAME")


def _bounded(parser: Parser[N], low: N, high: N | None = None) -> Parser[N]:
    """Return the parser with bounds, in words of its own units."""

    def convert(text: str) -> N:
        value = parser(text)
        if value < low:
            raise ValueError(f"must be at least {parser.show(low)}, not {text}")
        if high is not None and value > high:
            raise ValueError(f"must be at most {parser.show(high)}, not {text}")
        return value

    return attrs.evolve(parser, convert=convert)


@attrs.frozen
class ServeOptions:
    """How `kplane serve` listens, what it serves and what it refuses.

    Attributes:
        bind_address: the address to listen on; one that is not loopback needs authentication and TLS, or
            `insecure_allow_remote`.
        port: the TCP port; 0 lets the system choose a free one.
        insecure_allow_remote: others can reach the server unprotected, and that is meant.
        token_auth_file: the file with the users' tokens; with it, requests need one.
        anonymous_auth: requests without a credential are from `system:anonymous`.
        authorization_mode: whether the roles of each cluster decide who may do what.
        tls: `auto` speaks TLS where there is a certificate or authentication, `off` never.
        tls_cert_file: the server's certificate, followed by those that lead to its authority.
        tls_private_key_file: the key of the certificate.
        cert_dir: where a certificate for development is kept, when no other is given.
        tls_san: further names that the certificate for development is for.
        kubeconfig: the file that gets the contexts.
        cluster: the virtual clusters that are made at the start and get a context.
        root_control_plane_name: the cluster that requests without `/clusters/...` reach.
        cluster_creation: `auto` makes a cluster when it is first touched, `explicit` by its object only.
        max_request_body: bytes; a larger body is answered with 413.
        max_header_size: bytes of request line and headers together; more is answered with 431.
        request_timeout: seconds; a request other than a watch that takes longer is answered with 504.
        watch_timeout: seconds; a watch without timeoutSeconds ends after this long to twice as long.
        watch_cache: lists and watches are served from one watch cache per resource.
        event_ttl: seconds that an Event is kept.
        allow_cross_cluster_reads: administrators may list and watch over all clusters; needs a file of tokens.
        admin_token_file: the file with the tokens of those who may read across clusters.
        metrics_cluster_label: the metrics of requests tell clusters apart.
        encryption_provider_config: the file that says which resources are encrypted at rest, and how.
    """

    bind_address: str = option("127.0.0.1", parse=filled_text, help="address to listen on", metavar="ADDRESS")
    port: int = option(8080, parse=port, help="TCP port; 0 chooses a free one")
    insecure_allow_remote: bool = option(
        default=False,
        help="listen on an address that others can reach, although authentication or TLS is missing",
    )
    token_auth_file: Path | None = option(
        None,
        parse=file,
        help='users\' bearer tokens, one per line: token,user,uid[,"groups"[,cluster]]; kplane token makes them',
    )
    anonymous_auth: bool = option(
        default=False,
        help="take requests without a credential for those of system:anonymous",
    )
    authorization_mode: str = option(
        ALWAYS_ALLOW,
        parse=choice(ALWAYS_ALLOW, RBAC),
        help="let every user do everything, or what the roles and bindings of each cluster allow",
    )
    tls: str = option(
        AUTO,
        parse=choice(AUTO, OFF),
        help="speak TLS where there is a certificate or authentication, or never",
    )
    tls_cert_file: Path | None = option(
        None, parse=file, help="the server's certificate in PEM, followed by those that lead to its authority"
    )
    tls_private_key_file: Path | None = option(None, parse=file, help="the key of the certificate in PEM")
    cert_dir: Path = option(
        Path("kplane-certs"),
        parse=path,
        help="folder of a certificate for development, made where TLS is spoken and no other is given",
        metavar="DIR",
    )
    tls_san: tuple[str, ...] = option(
        (),
        parse=csv_of(host_name, metavar="NAME"),
        help="host name or address that the certificate for development is for too; repeatable",
    )
    kubeconfig: Path = option(
        Path("kplane.kubeconfig"),
        parse=path,
        help="file that gets a context kplane-NAME per cluster; other contexts in it stay",
        metavar="FILE",
    )
    cluster: tuple[str, ...] = option(
        (),
        parse=csv_of(cluster_id, metavar="NAME"),
        help="virtual cluster to make at the start and to put into the kubeconfig; repeatable (default: the root)",
    )
    root_control_plane_name: str = option(
        "root",
        parse=cluster_id,
        help="cluster that requests without /clusters/NAME/control-plane reach",
    )
    cluster_creation: str = option(
        AUTO,
        parse=choice(AUTO, EXPLICIT),
        help="make a cluster when it is first touched, or only when its object is created in the root cluster",
    )
    max_request_body: int = option(3 * 1024 * 1024, parse=_bounded(size, _SMALLEST_BODY), help="largest request body")
    max_header_size: int = option(
        64 * 1024,
        parse=_bounded(size, _SMALLEST_HEAD, _LARGEST_HEAD),
        help="largest request line and headers together",
    )
    request_timeout: float = option(
        60.0, parse=_bounded(duration, _SHORTEST_WAIT), help="longest time for a request that is not a watch"
    )
    watch_timeout: float = option(
        1800.0,
        parse=_bounded(duration, 1.0),
        help="a watch without timeoutSeconds ends after this long to twice as long",
    )
    watch_cache: bool = option(
        default=True,
        help="serve lists and watches from one cache per resource, not from the database",
    )
    event_ttl: float = option(3600.0, parse=_bounded(duration, 1.0), help="how long an Event is kept")
    allow_cross_cluster_reads: bool = option(
        default=False,
        help="let administrators list and watch over all clusters, below /clusters/*/control-plane",
    )
    admin_token_file: Path | None = option(
        None,
        parse=file,
        help='bearer tokens of those who may read across clusters, one per line: token,user,uid[,"groups"]',
    )
    metrics_cluster_label: bool = option(
        default=False,
        help="label the metrics of requests with their cluster: many more series",
    )
    encryption_provider_config: Path | None = option(
        None,
        parse=file,
        help="Kubernetes EncryptionConfiguration: which resources are encrypted at rest, and how",
    )

    @property
    def authenticates(self) -> bool:
        """Whether requests need a credential, or are from somebody known to have none."""
        return self.token_auth_file is not None or self.anonymous_auth

    @property
    def speaks_tls(self) -> bool:
        """Whether the server speaks TLS."""
        return self.tls != OFF and (self.tls_cert_file is not None or self.authenticates)

    @property
    def context_clusters(self) -> tuple[str, ...]:
        """The clusters that get a context: those asked for, once each, or else the root cluster."""
        return tuple(dict.fromkeys(self.cluster)) or (self.root_control_plane_name,)
