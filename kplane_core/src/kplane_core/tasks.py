"""Ending a background task, for whoever owns one."""

import asyncio
from typing import Any


async def end_task(task: "asyncio.Future[Any] | None") -> None:
    """Cancel a task and return when it has ended; no task is as good as one that has.

    Awaiting it below `suppress(CancelledError)` would also swallow a cancellation of the caller, who then never ends.

    Raises:
        Exception: the task had failed; whoever ends it is the first to hear of that.
    """
    if task is None:
        return
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.result()
