"""From parsed options to a running server, and the few words on the terminal."""

import asyncio
import shlex
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, closing, suppress

import attrs

from kplane_apiserver.kubeconfig import context_name, write_kubeconfig
from kplane_apiserver.listening import base_url, listen
from kplane_apiserver.options import EXPLICIT, ServeOptions
from kplane_apiserver.serve import HttpLimits, log_to_stderr, new_event_loop, serve, tune_collector
from kplane_apiserver.server import ApiServer
from kplane_apiserver.settings import Settings
from kplane_apiserver.tokens import AdminTokens, load_admin_tokens
from kplane_core.errors import Unreachable, UsageError
from kplane_core.plugins.backends import Backend
from kplane_core.plugins.capabilities import Capability, Unsupported
from kplane_core.plugins.commands import Parsed
from kplane_core.storage import IDENTITY, Resource, Store, Transformer

_INTERRUPTED = 130


def launch(parsed: Parsed) -> int:
    """Serve until a signal says stop.

    Returns:
        The exit code: 0 after a clean stop, 130 when a second signal cut it short.

    Raises:
        UsageError: the address, the kubeconfig or the backend cannot be had.
    """
    options = parsed.options(ServeOptions)
    log_to_stderr()
    listener = listen(options.bind_address, options.port, allow_remote=options.insecure_allow_remote)
    with closing(listener), asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            runner.run(_serve(parsed, options, listener))
        except (asyncio.CancelledError, KeyboardInterrupt):
            return _INTERRUPTED
    return 0


async def _serve(parsed: Parsed, options: ServeOptions, listener: socket.socket) -> None:
    backend = parsed.selected
    transformer_for, settings = _transformers(options), _settings(options)
    async with AsyncExitStack() as stack:
        try:
            connection = await backend.connect(parsed.backend_options)
        except Unreachable as error:
            raise UsageError(f"storage backend {backend.name!r} cannot be reached: {error}") from error
        stack.push_async_callback(connection.aclose)

        def build_store(resource: Resource) -> Store:
            resource = attrs.evolve(resource, transformer=transformer_for(resource.group_resource))
            return parsed.plugins.build_store(backend, connection, resource)

        api = ApiServer(connection, build_store, settings, health_checks=parsed.plugins.health_checks())
        stack.push_async_callback(api.aclose)
        await api.start()
        for cluster in options.context_clusters:
            await api.ensure_cluster(cluster)
        url = base_url(listener)
        write_kubeconfig(options.kubeconfig, url, options.context_clusters)
        tune_collector()
        await serve(
            api,
            listener,
            limits=HttpLimits(max_header_size=options.max_header_size),
            on_ready=lambda: _say(_greeting(options, backend, url)),
        )
        _say("kplane stopped")


def _transformers(options: ServeOptions) -> Callable[[str], Transformer]:
    """Return what tells a resource's transformer: the encryption configuration, where there is one.

    Raises:
        UsageError: the file cannot be used.
    """
    if options.encryption_provider_config is None:
        return lambda _: IDENTITY
    from kplane_core.storage.encryption_config import load_encryption_config  # noqa: PLC0415 - few need the ciphers

    return load_encryption_config(options.encryption_provider_config).transformer_for


def _cross_cluster_readers(options: ServeOptions) -> AdminTokens | None:
    """Return who may read across clusters.

    Raises:
        UsageError: it is allowed and nobody could do it, or the file with the tokens cannot be used.
    """
    tokens = load_admin_tokens(options.admin_token_file) if options.admin_token_file is not None else None
    if not options.allow_cross_cluster_reads:
        return None
    if tokens is None:
        raise UsageError("--allow-cross-cluster-reads: needs --admin-token-file FILE with the tokens of those who may")
    return tokens


def _settings(options: ServeOptions) -> Settings:
    return Settings(
        root_cluster=options.root_control_plane_name,
        cluster_creation="explicit" if options.cluster_creation == EXPLICIT else "auto",
        max_body=options.max_request_body,
        request_timeout=options.request_timeout,
        min_watch_timeout=options.watch_timeout,
        watch_cache=options.watch_cache,
        event_ttl=round(options.event_ttl),
        cross_cluster_readers=_cross_cluster_readers(options),
        metrics_by_cluster=options.metrics_cluster_label,
    )


def _greeting(options: ServeOptions, backend: Backend, url: str) -> str:
    """Return where the server listens, what it serves, and what to type next."""
    persistence = backend.capabilities[Capability.PERSISTENCE]
    storage = f"{backend.name}: {persistence.reason}" if isinstance(persistence, Unsupported) else backend.name
    clusters = options.context_clusters
    others = "others are made when first touched"
    if options.cluster_creation == EXPLICIT:
        others = f"others: create a Cluster object in {options.root_control_plane_name}"
    next_command = (
        f"kubectl --kubeconfig {shlex.quote(str(options.kubeconfig))} "
        f"--context {context_name(clusters[0])} get namespaces"
    )
    lines = [
        f"kplane serves {url}",
        "",
        f"  storage     {storage}",
        f"  clusters    {', '.join(clusters)} ({others})",
        f"  kubeconfig  {options.kubeconfig}",
        "",
        "Next, in another terminal:",
        "",
        f"  {next_command}",
        "",
        "Ctrl-C stops it.",
    ]
    if options.insecure_allow_remote:
        lines.insert(1, "WARNING: there is no authentication: whoever reaches this address may do everything")
    return "\n".join(lines)


def _say(text: str) -> None:
    # Whoever started the server may have closed the pipe; the clients do not care.
    with suppress(BrokenPipeError, ValueError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
