"""From parsed options to a running server, and the few words on the terminal."""

import asyncio
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing, suppress

import attrs

from kplane_apiserver.commands import security
from kplane_apiserver.commands.options import EXPLICIT, RBAC, ServeOptions
from kplane_apiserver.commands.security import Security
from kplane_apiserver.credentials.kubeconfig import context_name, write_kubeconfig
from kplane_apiserver.serve import HttpLimits, log_to_stderr, new_event_loop, serve, tune_collector
from kplane_apiserver.server import ApiServer
from kplane_apiserver.settings import Settings, wall_clock
from kplane_apiserver.wire.listening import listen
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
    security.check(options)
    listener = listen(options.bind_address, options.port, exposed=security.exposed(options))
    with closing(listener), asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            runner.run(_serve(parsed, options, listener))
        except (asyncio.CancelledError, KeyboardInterrupt):
            return _INTERRUPTED
    return 0


async def _serve(parsed: Parsed, options: ServeOptions, listener: socket.socket) -> None:
    backend = parsed.selected
    secured = security.secure(options, listener, wall_clock)
    transformer_for, settings = _transformers(options), _settings(options, secured)
    async with AsyncExitStack() as stack:
        try:
            connection = await backend.connect(parsed.backend_options)
        except Unreachable as error:
            raise UsageError(f"storage backend {backend.name!r} cannot be reached: {error.detail or error}") from error
        stack.push_async_callback(connection.aclose)

        def build_store(resource: Resource) -> Store:
            resource = attrs.evolve(resource, transformer=transformer_for(resource.group_resource))
            return parsed.plugins.build_store(backend, connection, resource)

        api = ApiServer(connection, build_store, settings, health_checks=parsed.plugins.health_checks())
        stack.push_async_callback(api.aclose)
        await api.start()
        for cluster in options.context_clusters:
            await api.ensure_cluster(cluster)
        write_kubeconfig(options.kubeconfig, secured.url, options.context_clusters, secured.credentials)
        tune_collector()
        await serve(
            api,
            listener,
            limits=HttpLimits(max_header_size=options.max_header_size),
            on_ready=lambda: _say(_greeting(options, backend, secured)),
            context=secured.tls.context if secured.tls is not None else None,
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


def _settings(options: ServeOptions, secured: Security) -> Settings:
    return Settings(
        root_cluster=options.root_control_plane_name,
        cluster_creation="explicit" if options.cluster_creation == EXPLICIT else "auto",
        max_body=options.max_request_body,
        request_timeout=options.request_timeout,
        min_watch_timeout=options.watch_timeout,
        watch_cache=options.watch_cache,
        event_ttl=round(options.event_ttl),
        authenticator=secured.authenticator,
        authorization_mode="RBAC" if options.authorization_mode == RBAC else "AlwaysAllow",
        anonymous_auth=options.anonymous_auth,
        browsers=secured.browsers,
        cross_cluster_readers=secured.readers,
        metrics_by_cluster=options.metrics_cluster_label,
    )


def _greeting(options: ServeOptions, backend: Backend, secured: Security) -> str:
    """Return where the server listens, what it serves, and what to type next."""
    persistence = backend.capabilities[Capability.PERSISTENCE]
    storage = f"{backend.name}: {persistence.reason}" if isinstance(persistence, Unsupported) else backend.name
    clusters = options.context_clusters
    others = "others are made when first touched"
    if options.cluster_creation == EXPLICIT:
        others = f"others: create a Cluster object in {options.root_control_plane_name}"
    kubeconfig = f"--kubeconfig {shlex.quote(str(options.kubeconfig))}"
    next_command = f"kubectl {kubeconfig} --context {context_name(clusters[0])} get namespaces"
    if _keeps_kubectl_out(options):
        next_command = f"kplane cluster list {kubeconfig}"
    return "\n".join(
        [
            f"kplane serves {secured.url}",
            *(f"WARNING: {text}" for text in _warnings(options)),
            "",
            f"  storage     {storage}",
            f"  clusters    {', '.join(clusters)} ({others})",
            f"  users       {_users(options)}",
            f"  kubeconfig  {options.kubeconfig}",
            "",
            "Next, in another terminal:",
            "",
            f"  {next_command}",
            "",
            "Ctrl-C stops it.",
        ]
    )


def _users(options: ServeOptions) -> str:
    """Return in a few words who may do what."""
    if not options.authenticates:
        return "whoever reaches the server may do everything"
    known = [f"tokens of {options.token_auth_file}"] if options.token_auth_file is not None else []
    anonymous = ["requests without a token"] if options.anonymous_auth else []
    may = "the roles of each cluster decide" if options.authorization_mode == RBAC else "each may do everything"
    return f"{' and '.join([*known, *anonymous])}; {may}"


def _warnings(options: ServeOptions) -> Iterator[str]:
    if options.insecure_allow_remote and not options.authenticates:
        yield "there is no authentication: whoever reaches this address may do everything"
    if _keeps_kubectl_out(options):
        yield "without TLS tokens can be read on their way, and kubectl sends none; Python clients do"


def _keeps_kubectl_out(options: ServeOptions) -> bool:
    """Whether kubectl cannot be a user of this server, because it keeps its token to itself without TLS."""
    return options.authenticates and not options.speaks_tls


def _say(text: str) -> None:
    # Whoever started the server may have closed the pipe; the clients do not care.
    with suppress(BrokenPipeError, ValueError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
