"""Ready clients for one cluster, of whichever library is installed."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from kplane_core.errors import UsageError


def make_client(library: str, url: str, kubeconfig: Callable[[], Path]) -> tuple[Any, Callable[[], object] | None]:
    """Return a client of a library and, if it has to be closed from synchronous code, what closes it.

    Args:
        library: `kubernetes`, `kubernetes_asyncio`, `kr8s` or `lightkube`.
        url: the cluster's address.
        kubeconfig: writes the cluster's kubeconfig and returns where.

    Raises:
        UsageError: there is no helper for the library, or it is not installed.
    """
    make = _MAKERS.get(library)
    if make is None:
        raise UsageError(f"there is no client helper for {library!r}; there are {', '.join(_MAKERS)}")
    try:
        module = importlib.import_module(library)
    except ImportError as error:
        raise UsageError(f"{library} is not installed: pip install {library.replace('_', '-')}") from error
    return make(module, url, kubeconfig)


def _kubernetes(module: ModuleType, url: str, _: Callable[[], Path]) -> tuple[Any, Callable[[], object]]:
    client = module.client.ApiClient(_configuration(module, url))
    return client, client.close


def _kubernetes_asyncio(module: ModuleType, url: str, _: Callable[[], Path]) -> tuple[Any, None]:
    return module.client.ApiClient(_configuration(module, url)), None


def _configuration(module: ModuleType, url: str) -> Any:
    configuration = module.client.Configuration(host=url)
    configuration.proxy = None  # of the environment, which does not lead to this machine
    return configuration


def _kr8s(module: ModuleType, _: str, kubeconfig: Callable[[], Path]) -> tuple[Any, Callable[[], object]]:
    client = module.api(kubeconfig=str(kubeconfig()))

    def close() -> None:
        # The library offers no way to close a client, and a connection left open is an error in many test suites.
        session = getattr(client, "_session", None)
        synchronous = getattr(module, "_as_sync_func", None)
        if session is not None and synchronous is not None:
            synchronous(session.aclose)()

    return client, close


def _lightkube(module: ModuleType, _: str, kubeconfig: Callable[[], Path]) -> tuple[Any, Callable[[], object]]:
    # Without an entry for its user the library takes a connection for incomplete, so the file is read, not the address.
    config = importlib.import_module("lightkube.config.kubeconfig").KubeConfig.from_file(kubeconfig())
    client = module.Client(config=config, namespace="default", trust_env=False)
    return client, client.close


_MAKERS: Mapping[str, Callable[[ModuleType, str, Callable[[], Path]], tuple[Any, Callable[[], object] | None]]] = {
    "kubernetes": _kubernetes,
    "kubernetes_asyncio": _kubernetes_asyncio,
    "kr8s": _kr8s,
    "lightkube": _lightkube,
}
