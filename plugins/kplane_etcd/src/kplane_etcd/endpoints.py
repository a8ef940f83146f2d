"""The members of an etcd cluster: where they listen, and one channel to each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import grpc
import grpc.aio

from kplane_core.errors import UsageError
from kplane_etcd import wire
from kplane_etcd.methods import WATCH_PATH, Method

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),  # a list of a few thousand objects exceeds the default of 4 MiB
    ("grpc.max_send_message_length", -1),  # what is too large, etcd says itself
    ("grpc.enable_retries", 0),  # a write must not be sent twice; `transport` decides what is
    ("grpc.keepalive_time_ms", 10_000),  # etcd allows a ping each 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # without it a ping may go unanswered for a minute
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # how long one attempt to connect may take
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),  # connections of two clients in one process fail apart
)


@attrs.frozen
class TlsFiles:
    """Whom to trust, and who we are; all optional.

    Attributes:
        ca: certificates of the authorities that may vouch for etcd; None trusts those that gRPC brings along.
        certificate: our own certificate.
        key: its key.
        server_name: the name that etcd's certificate must carry, where it is not the one in the URL.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files.

        Raises:
            UsageError: one cannot be read.
        """
        return grpc.ssl_channel_credentials(_content(self.ca), _content(self.key), _content(self.certificate))


def _content(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if b"-----BEGIN " not in content:
        raise UsageError(f"{str(path)!r} is no PEM file: it has no line with -----BEGIN")
    return content


def target(url: str) -> str:
    """Return what gRPC calls the address of a server URL."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix:{parts.netloc}{parts.path}"
    host = parts.hostname or ""
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or 2379}"


class Endpoint:
    """One member, and the channel to it.

    Args:
        url: where it listens.
        tls: for https only.
    """

    def __init__(self, url: str, tls: TlsFiles) -> None:
        self.url = url
        options: list[tuple[str, Any]] = list(_CHANNEL_OPTIONS)
        if url.startswith("https://"):
            if tls.server_name:
                options.append(("grpc.ssl_target_name_override", tls.server_name))
            self._channel = grpc.aio.secure_channel(target(url), tls.credentials(), options)
        else:
            self._channel = grpc.aio.insecure_channel(target(url), options)
        self._calls: dict[str, Any] = {}
        self._watch: Any = self._channel.stream_stream(WATCH_PATH, wire.serialize, wire.WatchResponse.FromString)

    def call(self, method: Method[Any]) -> Any:
        """Return what calls a method on this member."""
        found = self._calls.get(method.path)
        if found is None:
            found = self._channel.unary_unary(method.path, wire.serialize, method.decode)
            self._calls[method.path] = found
        return found

    def watch(self, metadata: Sequence[tuple[str, str]]) -> Any:
        """Return a new watch stream."""
        return self._watch(metadata=metadata)

    async def aclose(self) -> None:
        """Close the channel; calls that run on it are cancelled."""
        await self._channel.close()
