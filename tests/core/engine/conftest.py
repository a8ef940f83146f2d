"""What the tests of the engine room share: an engine that a test can get in the way of."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kplane_core.engine import EngineStore
from kplane_core.storage import Resource
from kplane_memory.engine import MemoryEngine


class HookedEngine:
    """A memory engine, with the calls counted and a hook before each.

    Attributes:
        real: the engine behind; a test that writes to it is another API server.
        calls: the method and arguments of each call.
        before: awaited with the method's name before the call goes on; may raise.
        after: given each answer; what it returns is answered instead.
    """

    def __init__(self, real: MemoryEngine) -> None:
        self.real = real
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.before: Callable[[str], Any] | None = None
        self.after: Callable[[str, Any], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.real, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            if self.before is not None:
                outcome = self.before(name)
                if outcome is not None:
                    await outcome
            answer = await method(*args, **kwargs)
            return answer if self.after is None else self.after(name, answer)

        return call

    def count(self, name: str) -> int:
        return sum(1 for called, _, _ in self.calls if called == name)


@pytest.fixture
def run(run_jumping: Callable[[Coroutine[Any, Any, None]], None]) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a scenario on an event loop whose time jumps; see `run_jumping`."""
    return run_jumping


@pytest.fixture
def engine() -> HookedEngine:
    return HookedEngine(MemoryEngine(progress_interval=0))


@pytest.fixture
def store_of(engine: HookedEngine) -> Callable[..., EngineStore]:
    """Make a store of pods on the engine; keywords go to the resource."""

    def store_of(**resource: Any) -> EngineStore:
        settings: dict[str, Any] = {"kind": "Pod"} | resource
        return EngineStore(engine, Resource("pods", "/pods/", **settings))  # type: ignore[arg-type]

    return store_of


@pytest.fixture
def store(store_of: Callable[..., EngineStore]) -> EngineStore:
    return store_of()


@pytest.fixture
def pod() -> Callable[..., dict[str, Any]]:
    """Make a pod; keywords are its labels."""

    def pod(name: str = "a", **labels: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": name, "namespace": "ns"}
        if labels:
            metadata["labels"] = labels
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}

    return pod
