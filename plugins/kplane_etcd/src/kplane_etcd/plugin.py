"""The `etcd` storage backend, as kplane finds it; the client itself is imported when it is connected."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kplane_core.errors import UsageError
from kplane_core.plugins.backends import Backend, Backends
from kplane_core.plugins.capabilities import Capability, Support, Supported
from kplane_core.plugins.flags import Parser, csv_of, duration, file, filled_text, option, positive_int
from kplane_core.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from kplane_core.engine.factory import Connection

_NOT_NEGATIVE = attrs.validators.ge(0)
_POSITIVE = attrs.validators.gt(0)
_SCHEMES: Final = ("http", "https", "unix")


def _server(text: str) -> str:
    """Return the URL of one server; what has no scheme is taken as a host."""
    # Imported here: --help needs no URLs.
    from urllib.parse import urlsplit  # noqa: PLC0415

    url = text.strip()
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"the host or port of {text!r} cannot be read") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"{text!r} begins with neither {', '.join(f'{name}://' for name in _SCHEMES)}")
    if parts.username or parts.password or "@" in url:
        raise ValueError("a server's URL holds no user: use --etcd-username and --etcd-password-file")
    if parts.scheme == "unix":
        if not parts.netloc + parts.path:
            raise ValueError(f"{text!r} names no socket")
        return url
    if not host or port == 0 or any(letter.isspace() for letter in url):
        raise ValueError(f"the host or port of {text!r} cannot be read")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"{text!r} has more than a host and a port")
    return url.rstrip("/")


def _prefix(text: str) -> str:
    """Return the prefix with a leading and without a trailing slash, as Kubernetes reads it."""
    prefix = "/" + text.strip("/")
    if "\0" in prefix or any(part in {".", "..", ""} for part in prefix.split("/")[1:]):
        raise ValueError(f"{text!r} is no path of plain names, such as /registry")
    return prefix


def _check_servers(_options: object, _attribute: object, servers: tuple[str, ...]) -> None:
    if not servers:
        raise ValueError("names no server")
    if len({url.startswith("https://") for url in servers}) > 1:
        raise ValueError("mixes https:// with servers that are not encrypted")


server: Final = Parser(_server, "URL")


@attrs.frozen
class EtcdOptions:
    """The options of the etcd backend, under the names that Kubernetes gives them where it has them.

    Attributes:
        servers: where the members listen.
        prefix: what precedes every key.
        cafile: certificates of the authorities that may vouch for etcd.
        certfile: our own certificate.
        keyfile: its key.
        server_name: the name in etcd's certificate, where it is not the one in the URL.
        username: whom to log in as.
        password_file: a file with the password.
        compaction_interval: seconds between compactions; 0 leaves them to others.
        healthcheck_timeout: seconds for the health check.
        readycheck_timeout: seconds for the readiness check.
        db_metric_poll_interval: seconds between looks at the members' size; 0 for none.
        dial_timeout: seconds for the first contact.
        request_timeout: seconds for one request, and for a broken watch to be resumed.
        lease_reuse_duration: seconds by which a lease may be longer than asked.
        lease_max_object_count: records per lease.
    """

    servers: tuple[str, ...] = option(
        ("http://127.0.0.1:2379",),
        parse=csv_of(server, "URL,..."),
        validator=_check_servers,
        help="where the members of etcd listen",
    )
    prefix: str = option("/registry", parse=Parser(_prefix, "PATH"), help="what precedes every key")
    cafile: Path | None = option(None, parse=file, help="authorities that may vouch for etcd, in PEM")
    certfile: Path | None = option(None, parse=file, help="certificate to show to etcd, in PEM")
    keyfile: Path | None = option(None, parse=file, help="key of that certificate, in PEM")
    server_name: str = option("", parse=filled_text, help="name in etcd's certificate, if it is not the URL's")
    username: str = option("", parse=filled_text, help="user to log in as")
    password_file: Path | None = option(None, parse=file, help="file with that user's password")
    compaction_interval: float = option(
        300.0, parse=duration, validator=_NOT_NEGATIVE, help="time between compactions; 0 leaves them to others"
    )
    healthcheck_timeout: float = option(2.0, parse=duration, validator=_POSITIVE, help="time for the health check")
    readycheck_timeout: float = option(2.0, parse=duration, validator=_POSITIVE, help="time for the readiness check")
    db_metric_poll_interval: float = option(
        30.0, parse=duration, validator=_NOT_NEGATIVE, help="time between looks at the database's size; 0 for none"
    )
    dial_timeout: float = option(20.0, parse=duration, validator=_POSITIVE, help="time for the first contact")
    request_timeout: float = option(10.0, parse=duration, validator=_POSITIVE, help="time for one request to etcd")
    lease_reuse_duration: float = option(
        60.0,
        parse=duration,
        validator=_NOT_NEGATIVE,
        help="time by which objects may outlive their TTL to share a lease",
    )
    lease_max_object_count: int = option(
        1000, parse=positive_int, validator=_POSITIVE, help="objects that share one lease, at most"
    )

    def __attrs_post_init__(self) -> None:
        """Refuse what does not fit together.

        Raises:
            ValueError: names the flags.
        """
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("the options --etcd-certfile and --etcd-keyfile go together")
        if bool(self.username) != (self.password_file is not None):
            raise ValueError("the options --etcd-username and --etcd-password-file go together")
        encrypted = self.servers[0].startswith("https://")
        for flag, value in (("cafile", self.cafile), ("certfile", self.certfile), ("server-name", self.server_name)):
            if value and not encrypted:
                raise ValueError(
                    f"of the options, --etcd-{flag} needs https:// in --etcd-servers, not {self.servers[0]}"
                )

    def credentials(self) -> tuple[str, str]:
        """Return user name and password, read from its file anew.

        Raises:
            UsageError: the file cannot be read.
        """
        assert self.password_file is not None
        try:
            return self.username, self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--etcd-password-file: {str(self.password_file)!r} cannot be read") from error


CAPABILITIES: Final[dict[Capability, Support]] = {
    Capability.TTL: Supported("etcd ends a lease up to a second late, and none sooner than about two seconds"),
    Capability.COMPACTION: Supported(),
    Capability.PROGRESS_NOTIFY: Supported("from etcd 3.5.13 (3.4.31) on; below, consistent lists go to etcd itself"),
    Capability.CONSISTENT_LIST: Supported(),
    Capability.EXACT_RV_LIST: Supported(),
    Capability.CONTINUE_TOKEN: Supported(),
    Capability.HISTORY_WINDOW: Supported("one to two times --etcd-compaction-interval"),
    Capability.INITIAL_EVENTS: Supported(),
    Capability.PERSISTENCE: Supported(),
    Capability.MULTI_WRITER: Supported(),
}


async def connect(options: EtcdOptions) -> "Connection":
    """Return a connection to etcd that has been answered.

    Raises:
        Unreachable: no member answered in time, or none lets us in.
        UsageError: a file cannot be used.
    """
    # Describing the backend, as --help does, must not load gRPC.
    from kplane_etcd.connecting import connect_etcd  # noqa: PLC0415

    return await connect_etcd(options)


@hookimpl
def kplane_register_backends(registry: Backends) -> None:
    """Register the `etcd` backend; `etcd3` is the name that Kubernetes gives it."""
    registry.register(
        Backend(
            name="etcd",
            aliases=("etcd3",),
            summary="an existing etcd, one member or a cluster, laid out as Kubernetes lays it out",
            options=EtcdOptions,
            capabilities=CAPABILITIES,
            connect=connect,
        )
    )
