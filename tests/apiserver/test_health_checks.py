"""Checks that plugins contribute: where they run, and that none of them can hold up or break the answer."""

import asyncio

import httpx
import pytest

from kplane_apiserver.requests import health
from kplane_apiserver.server import ApiServer
from kplane_core.engine.factory import EngineConnection
from kplane_core.errors import KplaneError
from kplane_core.plugins.checks import HealthChecks
from kplane_memory.engine import MemoryEngine


def _ask(checks, *paths):
    async def scenario():
        connection = EngineConnection(MemoryEngine())
        async with ApiServer(connection, health_checks=checks) as api:
            transport = httpx.ASGITransport(api.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://kplane") as client:
                answers = [await client.get(path) for path in paths]
        await connection.aclose()
        return answers

    return asyncio.run(scenario())


async def _good():
    pass


async def _broken():
    raise ZeroDivisionError("a secret from within")


async def _refusing():
    raise KplaneError("the quota is used up")


async def _endless():
    await asyncio.Event().wait()


def test_a_check_of_a_plugin_stands_in_readyz_and_a_live_one_in_livez_too():
    checks = HealthChecks("thing 1.0")
    checks.add("quota", _good)
    checks.add("watchdog", _good, live=True)
    ready, live, one = _ask(checks, "/readyz?verbose", "/livez?verbose", "/readyz/quota")
    assert ready.status_code == live.status_code == one.status_code == 200
    assert "[+]quota ok" in ready.text
    assert "[+]watchdog ok" in ready.text
    assert "[+]watchdog ok" in live.text
    assert "quota" not in live.text


@pytest.mark.parametrize("check", [_broken, _refusing])
def test_whatever_a_check_raises_makes_the_server_not_ready_and_is_not_told(check, caplog):
    checks = HealthChecks("thing 1.0")
    checks.add("quota", check)
    ready, excluded, live = _ask(checks, "/readyz", "/readyz?exclude=quota", "/livez")
    assert ready.status_code == 500
    assert "[-]quota failed: reason withheld" in ready.text
    assert "secret" not in ready.text
    assert "quota" in caplog.text
    assert excluded.status_code == live.status_code == 200


def test_a_check_that_does_not_end_is_given_up(monkeypatch):
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.05)
    checks = HealthChecks("thing 1.0")
    checks.add("slow", _endless)
    (ready,) = _ask(checks, "/readyz")
    assert ready.status_code == 500
    assert "[-]slow failed" in ready.text


def test_readyz_says_that_the_caches_are_ready():
    (ready,) = _ask((), "/readyz?verbose")
    assert "[+]watch-caches ok\n" in ready.text
