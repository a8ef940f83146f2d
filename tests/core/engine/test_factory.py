"""One connection: a compaction loop that keeps going, checks that are shared, and nothing left after closing."""

import asyncio

import pytest

from kplane_core.engine import CompactionPolicy, EngineConnection, EngineUnreachable
from kplane_core.engine.factory import Probe
from kplane_core.errors import InternalError, Unreachable
from kplane_core.storage import Resource

PODS = Resource("pods", "/pods/", kind="Pod")


async def write_for(engine, seconds, step=10.0):
    """Write once per step; return (time, revision) of each write."""
    loop = asyncio.get_running_loop()
    log = []
    for number in range(int(seconds / step)):
        written = await engine.real.write(f"/registry/x/{number}", b"x", expect=0)
        log.append((loop.time(), written.revision))
        await asyncio.sleep(step)
    return log


def watch_compactions(engine):
    """Note the loop's time and the revision of each compaction that is tried."""
    tried = []
    loop = asyncio.get_running_loop()
    real = engine.real.compact

    async def compact(revision):
        tried.append((loop.time(), revision))
        await real(revision)

    engine.real.compact = compact
    return tried


# --- compaction ------------------------------------------------------------------------------------------


def test_history_is_kept_for_one_to_two_intervals(run, engine):
    async def scenario():
        connection = EngineConnection(engine, compaction=CompactionPolicy(interval=300))
        await connection.start()
        compactions = watch_compactions(engine)
        log = await write_for(engine, 3000)
        await connection.aclose()
        assert len(compactions) in {8, 9}, "the first round only looks"
        for at, revision in compactions:
            newest_kept = max(written for written, made in log if made <= revision)
            assert 300 <= at - newest_kept <= 310
        revisions = [revision for _, revision in compactions]
        assert revisions == sorted(set(revisions))

    run(scenario())


def test_two_connections_compact_one_database_in_turn_and_both_know(run, engine):
    async def scenario():
        policy = CompactionPolicy(interval=300, poll=15)
        first, second = (EngineConnection(engine, compaction=policy) for _ in range(2))
        for connection in (first, second):
            await connection.start()
            await asyncio.sleep(100)
        compactions = watch_compactions(engine)
        log = await write_for(engine, 3000)
        assert len(compactions) >= 10
        for at, revision in compactions:
            newest_dropped = max((written for written, made in log if made < revision), default=0)
            assert at - newest_dropped >= 300, "one interval of history is always there"
        revisions = [revision for _, revision in compactions]
        assert revisions == sorted(revisions)
        await asyncio.sleep(15)
        known = {connection.store(PODS).compact_revision() for connection in (first, second)}
        assert known == {await engine.real.compacted()}
        for connection in (first, second):
            await connection.aclose()

    run(scenario())


def test_a_compaction_by_others_is_known_after_one_look(run, engine):
    async def scenario():
        connection = EngineConnection(engine, compaction=CompactionPolicy(interval=0, poll=15))
        await connection.start()
        written = await engine.real.write("/x", b"x", expect=0)
        await engine.real.compact(written.revision)
        assert connection.store(PODS).compact_revision() == 0
        await asyncio.sleep(16)
        assert connection.store(PODS).compact_revision() == written.revision
        assert engine.count("compact") == 0, "an interval of 0 leaves compaction to others"
        await connection.aclose()

    run(scenario())


@pytest.mark.parametrize("error", [EngineUnreachable("away"), InternalError("odd"), OSError("a driver's own")])
@pytest.mark.parametrize("method", ["compacted", "revision", "compact"])
def test_the_loop_survives_a_failing_database_without_hurry(run, engine, caplog, method, error):
    """It neither stops for good (kine#414) nor asks without a pause."""

    async def scenario():
        failing = True

        def before(name):
            assert len(engine.calls) < 1000, "the database is asked without a pause"
            if failing and name == method:
                raise error

        engine.before = before
        connection = EngineConnection(engine, compaction=CompactionPolicy(interval=300, poll=15))
        await connection.start()
        await write_for(engine, 1500)
        assert connection.store(PODS).compact_revision() == 0
        assert len(engine.calls) < 3 * 1500 / 15
        assert "compaction failed and will be tried again" in caplog.text
        failing = False
        await write_for(engine, 900)
        assert connection.store(PODS).compact_revision() > 0
        await connection.aclose()

    run(scenario())


def test_the_known_compaction_never_decreases(run, engine):
    async def scenario():
        connection = EngineConnection(engine)
        for number in range(4):
            await engine.real.write(f"/{number}", b"x", expect=0)
        await connection.compact(4)
        engine.after = lambda name, answer: 2 if name == "compacted" else answer
        assert await connection.observe_compaction() == 4
        assert connection.store(PODS).compact_revision() == 4
        await connection.aclose()

    run(scenario())


def test_starting_twice_runs_one_loop(run, engine):
    async def scenario():
        connection = EngineConnection(engine, compaction=CompactionPolicy(interval=300))
        before = len(asyncio.all_tasks())
        await connection.start()
        await connection.start()
        assert len(asyncio.all_tasks()) == before + 1
        await connection.aclose()
        assert len(asyncio.all_tasks()) == before

    run(scenario())


def test_closing_ends_everything_and_may_be_repeated(run, engine):
    """The fixture looks for tasks that were left."""

    async def scenario():
        connection = EngineConnection(engine, compaction=CompactionPolicy(interval=300))
        await connection.start()
        watch = await connection.store(PODS).watch("/pods/")
        waiting = asyncio.create_task(watch.batch())
        await asyncio.sleep(1)
        await connection.check_health()
        for _ in range(2):
            await connection.aclose()
        assert await waiting == ()
        with pytest.raises(EngineUnreachable):
            await engine.real.check()
        for check in (connection.check_health, connection.check_ready):
            with pytest.raises(Unreachable, match="shutting down"):
                await check()

    run(scenario())


def test_a_connection_that_was_never_started_closes_too(run, engine):
    async def scenario():
        connection = EngineConnection(engine)
        assert await connection.size() == 0
        await connection.check_ready()
        await connection.aclose()

    run(scenario())


# --- checks ----------------------------------------------------------------------------------------------


class Check:
    """A check that takes its time and answers what it is told to."""

    def __init__(self, takes=0.0, error=None):
        self.takes, self.error = takes, error
        self.runs = 0

    async def __call__(self):
        self.runs += 1
        await asyncio.sleep(self.takes)
        if self.error:
            raise self.error


def test_many_askers_share_one_check_and_its_answer_stays_fresh(run):
    async def scenario():
        check = Check(takes=0.5)
        probe = Probe(check, timeout=2, fresh=1)
        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(probe())
        assert check.runs == 1
        await probe()
        assert check.runs == 1
        await asyncio.sleep(1)
        await probe()
        assert check.runs == 2
        await probe.aclose()

    run(scenario())


def test_a_failure_is_shared_for_as_long_and_then_asked_again(run):
    async def scenario():
        check = Check(error=EngineUnreachable("away"))
        probe = Probe(check, timeout=2, fresh=1)
        for _ in range(3):
            with pytest.raises(Unreachable, match="away"):
                await probe()
        assert check.runs == 1
        check.error = None
        await asyncio.sleep(1)
        await probe()
        assert check.runs == 2
        await probe.aclose()

    run(scenario())


def test_a_check_without_an_answer_is_unreachable_in_time(run):
    async def scenario():
        probe = Probe(Check(takes=3600), timeout=2)
        begun = asyncio.get_running_loop().time()
        with pytest.raises(Unreachable, match="no answer within 2 s"):
            await probe()
        assert asyncio.get_running_loop().time() == pytest.approx(begun + 2)
        await probe.aclose()

    run(scenario())


def test_an_asker_that_goes_away_leaves_the_check_to_the_others(run):
    async def scenario():
        check = Check(takes=1)
        probe = Probe(check, timeout=2)
        hasty, patient = asyncio.create_task(probe()), asyncio.create_task(probe())
        await asyncio.sleep(0.1)
        hasty.cancel()
        await asyncio.wait([hasty])
        assert hasty.cancelled()
        await patient
        assert check.runs == 1
        await probe.aclose()

    run(scenario())


def test_closing_tells_those_who_wait_and_those_who_come_later(run):
    async def scenario():
        check = Check(takes=1)
        probe = Probe(check, timeout=2)
        waiting = asyncio.create_task(probe())
        await asyncio.sleep(0.1)
        for _ in range(2):
            await probe.aclose()
        with pytest.raises(Unreachable, match="shutting down"):
            await waiting
        with pytest.raises(Unreachable, match="shutting down"):
            await probe()
        assert check.runs == 1

    run(scenario())


@pytest.mark.parametrize("error", [EngineUnreachable("away"), RuntimeError("a bug in a driver"), None])
def test_closing_does_not_raise_what_the_last_check_found(run, error):
    async def scenario():
        probe = Probe(Check(error=error))
        (outcome,) = await asyncio.gather(probe(), return_exceptions=True)
        assert (outcome is None) == (error is None)
        await probe.aclose()

    run(scenario())


def test_a_health_check_asks_the_database_at_most_once_per_half_timeout(run, engine):
    async def scenario():
        connection = EngineConnection(engine, timeout=2)
        for _ in range(20):
            await connection.check_health()
            await connection.check_ready()
            await asyncio.sleep(0.25)
        assert engine.count("check") == 5
        await connection.aclose()

    run(scenario())
