"""What the tests of the engine room share: a loop whose time jumps, and an engine that a test can get in the way of."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kplane_core.engine import EngineStore
from kplane_core.storage import Resource
from kplane_memory.engine import MemoryEngine


class _Jump(selectors.DefaultSelector):
    """Instead of waiting for a time to come, jump to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("the loop would wait for ever: no timer is set and nothing else can happen")
            self.now += timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


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
def run() -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a scenario on an event loop whose time jumps from timer to timer; a scenario that hangs is an error.

    Whatever the scenario started must be gone when it ends.
    """

    async def alone(scenario: Coroutine[Any, Any, None]) -> None:
        await scenario
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    def run(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
            runner.run(alone(scenario))

    return run


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
