"""Calls to etcd: which member, which token, how long, and what may be sent again."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import attrs
import grpc
import grpc.aio

from kplane_core.engine.interface import EngineUnreachable
from kplane_core.errors import KplaneError
from kplane_etcd import wire
from kplane_etcd.endpoints import Endpoint
from kplane_etcd.errors import translate, wants_new_token, wants_user, was_never_sent
from kplane_etcd.methods import AUTHENTICATE, Kind, Method
from kplane_etcd.metrics import Metrics

Answer = TypeVar("Answer")

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
_ATTEMPT: Final = 3.0
"""Seconds after which a read turns to another member, where there is one."""
_CLOSED: Final = "the connection to etcd is closed"

Credentials = Callable[[], tuple[str, str]]
"""Returns user name and password; asked again for every new token, so that a changed password is found."""


@attrs.frozen
class _Failed:
    """An attempt that failed: on which member, as whom, and how."""

    endpoint: Endpoint
    metadata: tuple[tuple[str, str], ...]
    error: grpc.aio.AioRpcError


def noticed(task: asyncio.Task[Any]) -> None:
    """Take note of how a shared task ended: whoever waited for it may be gone by then."""
    if not task.cancelled():
        task.exception()


class Transport:
    """Sends calls to one of several members.

    One member serves until it fails; then the next one does. Every call has a deadline. A read is tried until then. A
    write is sent once: it is tried again only while it is certain that etcd has not seen it.

    Attributes:
        metrics: what was counted.
        timeout: seconds that a call may take.

    Args:
        endpoints: the members; closed with the transport.
        timeout: seconds that a call may take.
        credentials: who we are; None where etcd asks for nobody.
    """

    def __init__(
        self, endpoints: Sequence[Endpoint], *, timeout: float = 10.0, credentials: Credentials | None = None
    ) -> None:
        self.metrics = Metrics()
        self.timeout = timeout
        self._endpoints = tuple(endpoints)
        self._current = 0
        self._credentials = credentials
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._renewal: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The members."""
        return self._endpoints

    @property
    def attempt_timeout(self) -> float:
        """Seconds after which something that may be repeated turns to another member, where there is one."""
        return min(self.timeout, _ATTEMPT) if len(self._endpoints) > 1 else self.timeout

    @property
    def closed(self) -> bool:
        """Whether `aclose` was called."""
        return self._closed

    # --- unary calls --------------------------------------------------------------------------------------------------

    async def call(
        self,
        method: Method[Answer],
        request: Any,
        *,
        size: int = 0,
        timeout: float = 0.0,  # noqa: ASYNC109
    ) -> Answer:
        """Call a method and return the response.

        Args:
            method: which.
            request: its request.
            size: bytes of the value in it, for the message if it is too large.
            timeout: seconds, in place of the transport's own.

        Raises:
            KplaneError: it failed; see `errors.translate`.
        """
        started = time.perf_counter()
        endpoint = self._endpoints[self._current]
        allowed = timeout or self.timeout
        if self._closed or (self._credentials and not self._metadata):
            await self._prepare(allowed)
        limit, metadata = self._attempt(method, allowed), self._metadata
        call = endpoint.call(method)(request, timeout=limit, metadata=metadata)
        try:
            answer: Answer = await call
        except grpc.aio.AioRpcError as error:
            failed = _Failed(endpoint, metadata, error)
            answer = await self._again(method, request, failed, started + allowed, allowed, size)
        except asyncio.CancelledError:
            await call.code()  # gRPC cancels the call with the caller; this waits until nothing of it runs
            self._unless_closed()
            raise
        self.metrics.answered(method.name, time.perf_counter() - started)
        return answer

    async def _again(
        self,
        method: Method[Answer],
        request: Any,
        failed: _Failed,
        deadline: float,
        allowed: float,
        size: int,
    ) -> Answer:
        """Go on with a call that failed once."""
        endpoint, metadata, error = failed.endpoint, failed.metadata, failed.error
        renewed, pause, tried = False, _FIRST_PAUSE, 1
        while True:
            left = deadline - time.perf_counter()
            if wants_new_token(error) and self._credentials and not renewed:
                renewed = True
                await self._renew(metadata)
            elif left > pause and self._may_repeat(method, error):
                endpoint = self._turn_from(endpoint)
                tried += 1
                if tried > len(self._endpoints):  # all of them failed: give them time
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self.metrics.failed(method.name)
                raise translate(error, write=method.kind is Kind.WRITE, timeout=allowed, size=size) from error
            limit = self._attempt(method, max(deadline - time.perf_counter(), 0.001))
            try:
                self._unless_closed()
                metadata = self._metadata
                answer: Answer = await endpoint.call(method)(request, timeout=limit, metadata=metadata)
            except grpc.aio.AioRpcError as again:
                error = again
            except asyncio.CancelledError:
                self._unless_closed()
                raise
            else:
                return answer

    def _attempt(self, method: Method[Any], left: float) -> float:
        """Return how long one attempt may take: a member that does not answer must not use up a read's time."""
        return min(left, _ATTEMPT) if method.kind is Kind.READ and len(self._endpoints) > 1 else left

    def _may_repeat(self, method: Method[Any], error: grpc.aio.AioRpcError) -> bool:
        if was_never_sent(error):
            return True
        away = error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
        return away and method.kind is Kind.READ

    def _turn_from(self, endpoint: Endpoint) -> Endpoint:
        """Return the member to ask after `endpoint` failed, and let the next calls begin with it."""
        if endpoint is self._endpoints[self._current] and len(self._endpoints) > 1:
            self._current = (self._current + 1) % len(self._endpoints)
            self.metrics.failed_over += 1
        return self._endpoints[self._current]

    async def ask(self, endpoint: Endpoint, method: Method[Answer], request: Any, *, within: float) -> Answer:
        """Call a method of one certain member, once; a second time with a token, where it turns out to need one.

        Args:
            endpoint: which member.
            method: which method; one that needed no token before etcd 3.6.
            request: its request.
            within: seconds.

        Raises:
            KplaneError: it failed.
        """
        self._unless_closed()
        metadata = self._metadata
        try:
            try:
                answer: Answer = await endpoint.call(method)(request, timeout=within, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                if self._credentials is None or not (wants_new_token(error) or wants_user(error)):
                    raise
                await self._renew(metadata)
                answer = await endpoint.call(method)(request, timeout=within, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise translate(error, write=method.kind is Kind.WRITE, timeout=within) from error
        except asyncio.CancelledError:
            self._unless_closed()
            raise
        return answer

    # --- streams ------------------------------------------------------------------------------------------------------

    async def watch_stream(self) -> tuple[Any, Endpoint]:
        """Return a new watch stream on the member that serves now, and that member.

        Raises:
            KplaneError: no token could be had.
        """
        if self._closed or (self._credentials and not self._metadata):
            await self._prepare(self.timeout)
        endpoint = self._endpoints[self._current]
        # A member that has lost its leader ends the stream: another one may know better.
        return endpoint.watch((("hasleader", "true"), *self._metadata)), endpoint

    def lost(self, endpoint: Endpoint) -> None:
        """Note that a stream of this member ended badly, so that the next one is opened elsewhere."""
        self._turn_from(endpoint)

    def turn(self) -> None:
        """Let the next calls begin with another member."""
        self._turn_from(self._endpoints[self._current])

    async def renew_token(self) -> None:
        """Get a new token, because the present one is refused.

        Raises:
            KplaneError: none could be had.
        """
        await self._renew(self._metadata)

    # --- who we are ---------------------------------------------------------------------------------------------------

    async def _prepare(self, timeout: float) -> None:  # noqa: ASYNC109 - the caller's own deadline
        self._unless_closed()
        try:
            async with asyncio.timeout(timeout):
                await self._renew(())
        except TimeoutError as error:
            raise EngineUnreachable(f"etcd gave no token within {timeout:g} s") from error

    async def _renew(self, refused: tuple[tuple[str, str], ...]) -> None:
        """Replace the refused token, once for all calls that wait for it."""
        if self._metadata != refused or self._credentials is None:
            return
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._authenticate(self._credentials), name="kplane-etcd-token")
            self._renewal.add_done_callback(noticed)
        try:
            await asyncio.shield(self._renewal)
        except asyncio.CancelledError:
            self._unless_closed()
            raise

    async def _authenticate(self, credentials: Credentials) -> None:
        name, password = credentials()
        request = wire.AuthenticateRequest(name=name, password=password)
        failure: KplaneError = EngineUnreachable("no member of etcd is known")
        for _ in self._endpoints:
            endpoint = self._endpoints[self._current]
            try:
                call = endpoint.call(AUTHENTICATE)
                answer = await call(request, timeout=self.timeout)
            except grpc.aio.AioRpcError as error:
                failure = translate(error, write=False, timeout=self.timeout)
                if not self._may_repeat(AUTHENTICATE, error):
                    raise failure from None
                self._turn_from(endpoint)
            else:
                self._metadata = (("token", answer.token),)
                return
        raise failure

    # --- the end ------------------------------------------------------------------------------------------------------

    def _unless_closed(self) -> None:
        """Raise if the transport was closed; then a call that was cancelled was cancelled by that.

        Raises:
            EngineUnreachable: it was closed, and nobody cancels the calling task.
        """
        task = asyncio.current_task()
        if self._closed and (task is None or not task.cancelling()):
            raise EngineUnreachable(_CLOSED)

    async def aclose(self) -> None:
        """Close all channels; running calls fail with EngineUnreachable."""
        self._closed = True
        if self._renewal is not None:
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError, KplaneError):
                await self._renewal
        for endpoint in self._endpoints:
            await endpoint.aclose()
