"""One timer, owned."""

import asyncio
from collections.abc import Callable


class Alarm:
    """At most one pending call of `action` on the event loop; whoever owns the alarm disarms it.

    Args:
        action: called without arguments, on the loop that armed the alarm.
    """

    __slots__ = ("_action", "_handle", "_loop")

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._handle: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def armed(self) -> bool:
        """Whether a call is pending on the running event loop.

        An engine may outlive a loop (one `asyncio.run` after the other); what the old loop promised is void.
        """
        return self._handle is not None and self._loop is asyncio.get_running_loop()

    def arm(self, delay: float) -> None:
        """Call the action after `delay` seconds, instead of at any time set before."""
        self.disarm()
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(delay, self._ring)

    def due_within(self, delay: float) -> bool:
        """Return whether the pending call comes no later than `delay` seconds from now."""
        handle = self._handle
        return handle is not None and self.armed and handle.when() <= asyncio.get_running_loop().time() + delay

    def disarm(self) -> None:
        """Forget the pending call, if any."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop = None

    def _ring(self) -> None:
        self._handle = self._loop = None
        self._action()
