"""Installed plugins, good and bad: each bad one is told of, and stops no other."""

import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from kplane_core.plugins.discovery import PluginStatus
from kplane_core.plugins.errors import (
    BlockedPlugin,
    BrokenPlugin,
    DuplicateBackend,
    FlagConflict,
    IncompatiblePlugin,
    InvalidPlugin,
    UnknownBackend,
)
from kplane_core.plugins.flags import Flags

MARK = "from kplane_core.plugins.hookspecs import hookimpl\n"

BROKEN = {
    "import error": ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    "syntax error": ("def (", "SyntaxError: "),
    "raises at import": ("raise RuntimeError('first line\\nsecond line')", "RuntimeError: first line"),
    "no hook": ("x = 1", "it implements no hook: decorate its functions with @hookimpl"),
    "unmarked hook": (
        MARK + "def kplane_register_backends(registry): pass\n@hookimpl\ndef kplane_add_flags(flags): pass",
        "kplane_register_backends is not marked: decorate it with @hookimpl",
    ),
    "hook typo": (
        MARK + "@hookimpl\ndef kplane_regster_backends(registry): pass",
        "unknown hook 'kplane_regster_backends'. Did you mean 'kplane_register_backends'?",
    ),
    "unknown argument": (
        MARK + "@hookimpl\ndef kplane_register_backends(registry, colour): pass",
        "PluginValidationError: ",
    ),
    "async hook": (
        MARK + "@hookimpl\nasync def kplane_register_backends(registry): pass",
        "kplane_register_backends is an async function: hooks are plain functions",
    ),
    "raises in its hook": (
        MARK + "@hookimpl\ndef kplane_register_backends(registry): raise KeyError('driver')",
        "KeyError: 'driver'",
    ),
    "registers nothing": (
        MARK + "@hookimpl\ndef kplane_register_backends(registry): pass",
        "the entry point 'bad' must register a backend of that name; it registers: none",
    ),
    "builds stores itself": (
        MARK + "@hookimpl\ndef kplane_build_store(backend, connection, resource): return 1",
        "kplane_build_store may only be wrapped: use @hookimpl(wrapper=True)",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_told_of_and_leaves_the_others_alone(
    site: Any, plugin_source: Callable[[str], str], kind: str
) -> None:
    source, reason = BROKEN[kind]
    site.install("kplane-bad", source, name="bad", version="0.4.1")
    site.install("kplane-good", plugin_source("good"), name="good")
    plugins = site.discover()
    plugins.load_all()
    bad, good = plugins.loaded
    assert (bad.name, bad.status, good.name, good.status) == ("bad", PluginStatus.BROKEN, "good", PluginStatus.OK)
    with pytest.raises(BrokenPlugin) as caught:
        plugins.select("bad")
    assert str(caught.value).startswith(f"kplane-bad 0.4.1 failed to load: {reason}")
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None
    assert plugins.select("good").name == "good"
    assert plugins.problems == (bad,)


def test_only_the_selected_plugin_is_imported(site: Any, plugin_source: Callable[[str], str]) -> None:
    site.install("kplane-slow", "raise AssertionError('imported without need')", name="slow")
    chosen = site.install("kplane-chosen", plugin_source("chosen"), name="chosen")
    plugins = site.discover()
    assert {one.status for one in plugins.loaded} == {PluginStatus.NOT_LOADED}
    assert chosen not in sys.modules
    assert plugins.select("chosen").summary == "a backend for tests"
    assert [one.status for one in plugins.loaded] == [PluginStatus.OK, PluginStatus.NOT_LOADED]


def test_an_alias_is_found_by_asking_every_plugin(site: Any, plugin_source: Callable[[str], str]) -> None:
    source = plugin_source("etcd").replace("name=NAME", "name=NAME, aliases=('etcd3',)")
    site.install("kplane-with-alias", source, name="etcd")
    assert site.discover().select("etcd3").name == "etcd"


def test_an_unknown_backend_lists_also_what_is_installed_and_not_loaded(
    site: Any, plugin_source: Callable[[str], str]
) -> None:
    site.install("kplane-one", plugin_source("one"), name="one")
    with pytest.raises(UnknownBackend, match=r"installed: one\. Did you mean 'one'\?"):
        site.discover().select("onne")


def test_another_plugin_api_is_incompatible(site: Any, plugin_source: Callable[[str], str]) -> None:
    site.install("kplane-next", plugin_source("next").replace("name=NAME", "name=NAME, api=2"), name="next")
    plugins = site.discover()
    with pytest.raises(IncompatiblePlugin, match=r"kplane-next 1\.2\.3 .* API 2, this kplane-core speaks 1"):
        plugins.select("next")
    assert plugins.loaded[0].status is PluginStatus.INCOMPATIBLE


def test_two_distributions_that_claim_one_name_are_both_reported_and_neither_wins(
    site: Any, plugin_source: Callable[[str], str]
) -> None:
    site.install("kplane-first", plugin_source("same"), name="same", version="1.0")
    site.install("kplane-second", plugin_source("same"), name="same", version="2.0")
    plugins = site.discover()
    with pytest.raises(DuplicateBackend, match=r"kplane-first 1\.0 and kplane-second 2\.0"):
        plugins.select("same")
    assert [one.status for one in plugins.loaded] == [PluginStatus.DUPLICATE] * 2
    assert "kplane_first" not in sys.modules
    resolved = site.discover(disabled=["kplane-second"])
    assert resolved.select("same").name == "same"


@pytest.mark.parametrize("order", [("aa", "bb"), ("bb", "aa")])
def test_a_plugin_cannot_take_the_name_of_another_whatever_the_order(
    site: Any, plugin_source: Callable[[str], str], order: tuple[str, str]
) -> None:
    site.install("kplane-aa", plugin_source("aa").replace("name=NAME", "name=NAME, aliases=('bb',)"), name="aa")
    site.install("kplane-bb", plugin_source("bb"), name="bb")
    plugins = site.discover()
    for name in order:
        plugins.load(name)
    assert [(one.name, one.status) for one in plugins.loaded] == [
        ("aa", PluginStatus.DUPLICATE),
        ("bb", PluginStatus.OK),
    ]
    assert plugins.select("bb").name == "bb"


@pytest.mark.parametrize(
    "options",
    [
        {"disabled": ["off"]},
        {"disabled": ["kplane-off"]},
        {"environ": {"KPLANE_DISABLE_PLUGINS": " other, off "}},
    ],
)
def test_a_blocked_plugin_is_never_imported(site: Any, options: dict[str, Any]) -> None:
    site.install("kplane-off", "raise AssertionError('imported although switched off')", name="off")
    plugins = site.discover(**options)
    plugins.load_all()
    assert [one.status for one in plugins.loaded] == [PluginStatus.BLOCKED]
    assert plugins.problems == ()
    assert plugins.backend_names() == ()
    with pytest.raises(BlockedPlugin, match="'off' is switched off by --no-plugin"):
        plugins.select("off")


def test_a_blocked_name_that_is_not_installed_is_told(site: Any) -> None:
    assert site.discover(disabled=["typo"]).unknown_blocked == ("typo",)


def test_strict_mode_raises_with_the_cause(site: Any, plugin_source: Callable[[str], str]) -> None:
    site.install("kplane-bad", "import nowhere_to_be_found", name="bad")
    site.install("kplane-good", plugin_source("good"), name="good")
    with pytest.raises(BrokenPlugin) as caught:
        site.discover(environ={"KPLANE_STRICT_PLUGINS": "1"}).load_all()
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    site.discover(environ={"KPLANE_STRICT_PLUGINS": "0"}).load_all()


def test_strict_mode_raises_for_duplicates(site: Any, plugin_source: Callable[[str], str]) -> None:
    site.install("kplane-first", plugin_source("same"), name="same")
    site.install("kplane-second", plugin_source("same"), name="same")
    with pytest.raises(DuplicateBackend):
        site.discover(environ={"KPLANE_STRICT_PLUGINS": "1"}).load_all()


def test_what_a_plugin_prints_goes_to_stderr(
    site: Any, plugin_source: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    noisy = f"print('hello from import')\n{plugin_source('noisy')}\n    print('hello from hook')"
    site.install("kplane-noisy", noisy, name="noisy")
    assert site.discover().select("noisy").name == "noisy"
    out, err = capsys.readouterr()
    assert out == ""
    assert "hello from import" in err
    assert "hello from hook" in err


def test_a_failed_plugin_leaves_no_backend_behind(site: Any, plugin_source: Callable[[str], str]) -> None:
    source = f"{plugin_source('half')}\n    raise OSError('after registering')"
    site.install("kplane-half", source, name="half")
    plugins = site.discover()
    plugins.load_all()
    assert plugins.backends.names() == ()


EXTENSION = MARK + textwrap.dedent(
    """
    import attrs
    from kplane_core.plugins.flags import option

    @attrs.frozen
    class Options:
        rate: float = option(0.1, help="share of requests that are traced")

    async def check():
        return None

    @hookimpl
    def kplane_add_flags(flags):
        flags.add("tracing", Options)

    @hookimpl(wrapper=True)
    def kplane_build_store(resource):
        inner = yield
        return ("traced", resource, inner)

    @hookimpl
    def kplane_add_health_checks(checks):
        checks.add("tracing", check)
    """
)


class _Connection:
    def store(self, resource: object) -> object:
        return ("store", resource)


def test_an_extension_wraps_stores_and_adds_flags_and_checks(site: Any, plugin_source: Callable[[str], str]) -> None:
    site.install("kplane-tracing", EXTENSION, name="tracing", group="kplane.extensions")
    site.install("kplane-good", plugin_source("good"), name="good")
    plugins = site.discover()
    backend = plugins.select("good")
    connection: Any = _Connection()
    resource: Any = "pods"
    assert plugins.build_store(backend, connection, resource) == ("store", "pods")
    plugins.load_extensions()
    assert plugins.build_store(backend, connection, resource) == ("traced", "pods", ("store", "pods"))
    flags = Flags()
    plugins.add_flags(flags)
    assert [(section.settings[0].flag, section.owner) for section in flags.sections] == [
        ("--tracing-rate", "kplane-tracing 1.2.3")
    ]
    assert [(check.name, check.owner) for check in plugins.health_checks()] == [("tracing", "kplane-tracing 1.2.3")]


def test_flags_that_two_plugins_contribute_name_both(site: Any) -> None:
    site.install("kplane-tracing", EXTENSION, name="tracing", group="kplane.extensions")
    site.install("kplane-rival", EXTENSION, name="rival", group="kplane.extensions")
    plugins = site.discover()
    plugins.load_all()
    with pytest.raises(FlagConflict, match=r"--tracing-rate is contributed by kplane-rival 1\.2\.3 and by kplane-trac"):
        plugins.add_flags(Flags())


def test_a_plugin_that_fails_in_a_later_hook_becomes_broken(site: Any, plugin_source: Callable[[str], str]) -> None:
    late = f"{plugin_source('late')}\n@hookimpl\ndef kplane_add_flags(flags): raise ZeroDivisionError('late')"
    site.install("kplane-late", late, name="late")
    plugins = site.discover()
    assert plugins.select("late").name == "late"
    plugins.add_flags(Flags())
    with pytest.raises(BrokenPlugin, match="ZeroDivisionError: late"):
        plugins.select("late")


def test_a_broken_plugin_wraps_nothing(site: Any, plugin_source: Callable[[str], str]) -> None:
    broken = EXTENSION.replace('checks.add("tracing", check)', "raise OSError")
    site.install("kplane-tracing", broken, name="tracing", group="kplane.extensions")
    site.install("kplane-good", plugin_source("good"), name="good")
    plugins = site.discover()
    backend = plugins.select("good")
    plugins.load_extensions()
    connection: Any = _Connection()
    resource: Any = "pods"
    assert plugins.build_store(backend, connection, resource) == ("traced", "pods", ("store", "pods"))
    assert len(plugins.health_checks()) == 0
    assert plugins.build_store(backend, connection, resource) == ("store", "pods")
    assert [one.name for one in plugins.problems] == ["tracing"]


def test_a_wrapper_that_loses_the_store_is_told(site: Any, plugin_source: Callable[[str], str]) -> None:
    broken = EXTENSION.replace('return ("traced", resource, inner)', "return None")
    site.install("kplane-tracing", broken, name="tracing", group="kplane.extensions")
    site.install("kplane-good", plugin_source("good"), name="good")
    plugins = site.discover()
    backend = plugins.select("good")
    plugins.load_extensions()
    connection: Any = _Connection()
    resource: Any = "pods"
    with pytest.raises(InvalidPlugin, match="returned no store"):
        plugins.build_store(backend, connection, resource)


def test_health_checks_with_one_name_make_the_second_owner_broken(site: Any) -> None:
    site.install("kplane-tracing", EXTENSION, name="tracing", group="kplane.extensions")
    site.install("kplane-rival", EXTENSION, name="rival", group="kplane.extensions")
    plugins = site.discover()
    plugins.load_all()
    assert len(plugins.health_checks()) == 1
    told = "health check 'tracing' is contributed by kplane-rival 1.2.3 and by kplane-tracing 1.2.3"
    assert [str(one.error) for one in plugins.problems] == [f"kplane-tracing 1.2.3 failed to load: {told}"]
