"""Field reports on the compaction loop of a connection: it learns from others, and goes on after a failure."""

from typing import Any, Final

from kplane_conformance.case import Capability, Hook, Layer, case
from kplane_conformance.context import Context
from kplane_conformance.objects import pod
from kplane_core.engine.factory import CompactionPolicy, EngineConnection
from kplane_core.engine.interface import Engine, EngineUnreachable

_OFTEN: Final = 0.05


class LentEngine:
    """Delegates to an engine that somebody else closes; its first compactions can be made to fail.

    Args:
        engine: the engine.
        failures: so many compactions fail.
    """

    def __init__(self, engine: Engine, failures: int = 0) -> None:
        self._engine = engine
        self.failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def compact(self, revision: int) -> None:
        """Compact, or fail."""
        if self.failures:
            self.failures -= 1
            raise EngineUnreachable("the database is locked")
        await self._engine.compact(revision)

    async def aclose(self) -> None:
        """Leave the engine open: it is only lent."""


@case(
    "R11.others",
    requires=[Capability.COMPACTION],
    hooks=[Hook.COMPACT, Hook.ENGINE],
    layers=[Layer.STORE],
)
async def compactions_of_others(ctx: Context) -> None:
    """A store learns up to where another server has compacted, and never believes in less than before."""
    connection = EngineConnection(
        LentEngine(ctx.engine), path_prefix=ctx.root, compaction=CompactionPolicy(0.0, _OFTEN)
    )
    await connection.start()
    try:
        store, writer = connection.store(ctx.resource), await ctx.store()
        known = store.compact_revision()
        for number in range(3):
            written = await ctx.update(writer, pod("foo", node=f"n{number}"))
            await ctx.compact(written.revision, writer)
            await ctx.eventually(
                lambda: store.compact_revision() >= writer.compact_revision(), "the other server learns of it"
            )
            assert store.compact_revision() >= known, "the compaction revision went down"
            known = store.compact_revision()
    finally:
        await connection.aclose()


@case("R11", requires=[Capability.COMPACTION], hooks=[Hook.ENGINE], layers=[Layer.STORE])
async def r11_compaction_goes_on(ctx: Context) -> None:
    """A compaction loop whose first compactions failed tries again, and history is dropped in the end."""
    engine = LentEngine(ctx.engine, failures=2)
    connection = EngineConnection(engine, path_prefix=ctx.root, compaction=CompactionPolicy(_OFTEN, _OFTEN))
    await connection.start()
    try:
        store = connection.store(ctx.resource)
        first = await ctx.put(store, pod("foo"))
        await ctx.update(store, pod("foo", node="n"))
        await ctx.eventually(lambda: engine.failures == 0, "the loop compacts although it failed before")
        last = await ctx.update(store, pod("foo", node="m"))
        await ctx.eventually(lambda: store.compact_revision() > first.revision, "the history is dropped")
        ctx.expect_same((await ctx.list(store)).items, [last], "the list")
    finally:
        await connection.aclose()
