"""Ending tasks: nothing of theirs is left, and nothing of their owner's is swallowed."""

import asyncio
import contextlib

import pytest

from kplane_core.tasks import end_task


async def _stubborn(released: asyncio.Event) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await released.wait()


def test_a_task_has_ended_when_the_call_returns_and_again_harms_nothing(run_jumping) -> None:
    async def scenario() -> None:
        task = asyncio.create_task(asyncio.Event().wait())
        await end_task(task)
        assert task.cancelled()
        await end_task(task)
        await end_task(None)

    run_jumping(scenario())


def test_what_a_task_failed_with_is_told(run_jumping) -> None:
    async def fail() -> None:
        raise ValueError("of the task")

    async def scenario() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="of the task"):
            await end_task(task)

    run_jumping(scenario())


def test_the_caller_can_be_cancelled_while_the_task_takes_its_time(run_jumping) -> None:
    async def scenario() -> None:
        released = asyncio.Event()
        task = asyncio.create_task(_stubborn(released))
        await asyncio.sleep(0)
        caller = asyncio.create_task(end_task(task))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert not task.done()
        released.set()
        await end_task(task)

    run_jumping(scenario())
