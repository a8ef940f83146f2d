"""The `kplane` command as an operator meets it: pages, one-line errors, exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kplane_core import cli
from kplane_core.plugins.errors import PROVIDERS

COMMAND = """
import attrs
from kplane_core.plugins.commands import Command
from kplane_core.plugins.flags import option, port

@attrs.frozen
class Options:
    port: int = option(8080, parse=port, help="where to listen")
    fail: bool = option(False, help="fail in some way")

def configure(flags):
    flags.add("", Options, title="greeting", env="KPLANE_GREET_", toml="greet")

def run(parsed):
    if parsed.options(Options).fail:
        raise KeyboardInterrupt
    backend = parsed.selected
    print(backend.name, parsed.backend_options, parsed.options(Options).port)
    return 7

command = Command("greet", "greet the selected backend", configure, run, selects_backend=True)
"""

Source = Callable[[str], str]


@pytest.fixture
def command_site(site: Any, plugin_source: Source) -> Any:
    """A folder with the command `greet` and the backends `alpha` and `beta`."""
    site.install("kplane-greet", COMMAND, name="greet", group="kplane.commands")
    site.install("kplane-alpha", plugin_source("alpha"), name="alpha")
    site.install("kplane-beta", plugin_source("beta"), name="beta", version="2.0")
    return site


def _run(capsys: pytest.CaptureFixture[str], *argv: str, **environ: str) -> tuple[int, str, str]:
    code = cli.main(argv, environ)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.usefixtures("command_site")
def test_a_command_gets_its_own_options_and_the_selected_backend_with_its_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = _run(capsys, "greet", "--storage-backend=alpha", "--alpha-limit=3", "--port", "9")
    assert (code, out, err) == (7, "alpha Options(limit=3, password='', token=0) 9\n", "")
    code, out, _ = _run(capsys, "--storage-backend", "beta", "greet", KPLANE_BETA_LIMIT="4", KPLANE_GREET_PORT="1")
    assert (code, out) == (7, "beta Options(limit=4, password='', token=0) 1\n")


@pytest.mark.usefixtures("command_site")
def test_a_config_file_selects_and_configures(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    config = tmp_path / "k.toml"
    config.write_text("storage_backend = 'beta'\n[beta]\nlimit = 5\n[alpha]\nlimit = 6\n[greet]\nport = 2\n")
    for argv, environ in ((["--config", str(config)], {}), ([], {"KPLANE_CONFIG": str(config)})):
        code, out, _ = _run(capsys, "greet", *argv, **environ)
        assert (code, out) == (7, "beta Options(limit=5, password='', token=0) 2\n")
    code, out, _ = _run(capsys, "backends", "--json", "--config", str(config))
    assert code == 0
    config.write_text("no_plugin = ['alpha']\n")
    code, out, _ = _run(capsys, "backends", "--json", "--config", str(config))
    assert {row["name"]: row["status"] for row in json.loads(out)}["alpha"] == "blocked"


MISTAKES = [
    (
        ["greet", "--storage-backend=alpha", "--beta-limit=1"],
        "--beta-limit belongs to the beta storage backend (kplane",
    ),
    (["greet", "--storage-backend=gamma"], "unknown storage backend 'gamma'; installed: alpha, beta"),
    (["greet", "--storage-backend=alpah"], "Did you mean 'alpha'?"),
    (["greet", "--storage-backend=delta"], "pip install kplane-delta"),
    (["greet", "--storage-backend="], "--storage-backend: is empty"),
    (["greet", "--storage-backend=alpha", "--storage-backend=alpha"], "--storage-backend: given twice"),
    (["greet", "--storage-backend"], "--storage-backend: needs a value"),
    (["greet", "--storage-backend=alpha", "--no-plugin=alpha"], "plugin 'alpha' is switched off by --no-plugin"),
    (["greet", "--storage-backend=alpha", "--alpha-limit=0"], "--alpha-limit: must be at least 1, not 0"),
    (["greet", "--storage-backend=alpha", "--fail", "--alpha-limit=0"], "--alpha-limit: must be at least 1, not 0"),
    (["greet", "--storage-backend=alpha", "--prot=1"], "unknown flag --prot. Did you mean '--port'?"),
    (["greet", "--storage-backend=alpha", "--config=/nowhere"], "--config: cannot read '/nowhere'"),
    (["greet", "--config="], "--config: is empty"),
    (["greeet"], "unknown command 'greeet'; installed: backends, "),
    (["--storage-bakend=alpha", "greet"], "unknown flag --storage-bakend before the command"),
    (["--config", "greet"], "no command is given"),
    (["backends", "--storage-backend=alpha"], "unknown flag --storage-backend"),
]


@pytest.mark.usefixtures("command_site")
@pytest.mark.parametrize(("argv", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: list[str], message: str
) -> None:
    monkeypatch.setitem(PROVIDERS, "delta", "kplane-delta")  # all that kplane really provides may be installed here
    code, out, err = _run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("kplane: error: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.usefixtures("command_site")
def test_help_of_a_command_shows_every_backend_under_its_own_heading(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "greet", "--help")
    assert (code, err) == (0, "")
    for expected in (
        "usage: kplane greet [flags]",
        "greeting:\n  Variables begin with KPLANE_GREET_, the table in the config file is [greet].",
        "alpha storage backend (kplane-alpha 1.2.3):\n  a backend for tests",
        "beta storage backend (kplane-beta 2.0):",
        "--beta-limit N",
        "--storage-backend NAME",
    ):
        assert expected in out


def test_help_survives_broken_backends_and_names_them(command_site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command_site.install("kplane-bad", "import nowhere_to_be_found", name="bad")
    code, out, _ = _run(capsys, "greet", "--help", "--storage-backend=bad")
    assert code == 0
    assert "--alpha-limit" in out
    assert "not shown:\n  bad: kplane-bad 1.2.3 failed to load: ModuleNotFoundError: No module named" in out


def test_one_broken_command_hides_no_other(command_site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command_site.install("kplane-bad", "1 / 0", name="bad", group="kplane.commands")
    command_site.install("kplane-odd", "command = 3", name="odd", group="kplane.commands")
    command_site.install("kplane-again", COMMAND, name="twice", group="kplane.commands")
    command_site.install("kplane-against", COMMAND, name="twice", group="kplane.commands")
    code, out, _ = _run(capsys, "--help")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert "greet the selected backend" in rows["greet"]
    assert "list the installed storage backends" in rows["backends"]
    assert "kplane-bad 1.2.3 failed to load: ZeroDivisionError: division by zero" in rows["bad"]
    assert "kplane_odd:command is no Command named 'odd'" in rows["odd"]
    assert "provided by kplane-again 1.2.3 and kplane-against 1.2.3" in rows["twice"]
    assert _run(capsys, "bad")[0] == 2


def test_backends_lists_every_plugin_with_what_is_wrong(
    command_site: Any, plugin_source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    command_site.install("kplane-bad", "def (", name="bad", version="0.4.1")
    command_site.install("kplane-next", plugin_source("next").replace("name=NAME", "name=NAME, api=2"), name="next")
    code, out, err = _run(capsys, "backends")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split(maxsplit=4) for line in out.splitlines()}
    assert rows["NAME"] == ["NAME", "DISTRIBUTION", "VERSION", "STATUS", "ABOUT"]
    assert rows["alpha"] == ["alpha", "kplane-alpha", "1.2.3", "ok", "a backend for tests"]
    assert rows["bad"][:4] == ["bad", "kplane-bad", "0.4.1", "broken"]
    assert rows["bad"][4].startswith("kplane-bad 0.4.1 failed to load: SyntaxError: ")
    assert rows["next"][3] == "incompatible"
    assert "Traceback" not in out
    _, out, _ = _run(capsys, "backends", "-v")
    assert "SyntaxError: invalid syntax" in out
    assert "bad (kplane-bad 0.4.1): broken" in out
    _, out, _ = _run(capsys, "backends", "--json")
    documents = {document["name"]: document for document in json.loads(out)}
    assert documents["alpha"]["capabilities"]["ttl"] is True
    assert documents["bad"]["error"].startswith("kplane-bad 0.4.1 failed to load")


def test_a_broken_extension_is_a_warning_and_nothing_more(
    command_site: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    command_site.install("kplane-bad", "1 / 0", name="bad", group="kplane.extensions")
    code, _, err = _run(capsys, "greet", "--storage-backend=alpha", "--no-plugin=tpyo")
    assert code == 7
    assert err == (
        "kplane: warning: switched off, but not installed: tpyo\n"
        "kplane: warning: kplane-bad 1.2.3 failed to load: ZeroDivisionError: division by zero\n"
    )


def test_strict_mode_makes_any_broken_plugin_fatal(command_site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command_site.install("kplane-bad", "1 / 0", name="bad")
    assert _run(capsys, "greet", "--storage-backend=alpha")[0] == 7
    code, out, err = _run(capsys, "greet", "--storage-backend=alpha", KPLANE_STRICT_PLUGINS="1")
    assert (code, out) == (2, "")
    assert "kplane-bad 1.2.3 failed to load: ZeroDivisionError" in err


@pytest.mark.usefixtures("command_site")
def test_an_empty_list_of_disabled_plugins_disables_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, "greet", "--storage-backend=alpha", KPLANE_DISABLE_PLUGINS="")[0] == 7
    assert _run(capsys, "greet", "--storage-backend=alpha", KPLANE_DISABLE_PLUGINS=" beta,")[0] == 7
    assert _run(capsys, "greet", "--storage-backend=alpha", KPLANE_DISABLE_PLUGINS="beta,alpha")[0] == 2


@pytest.mark.usefixtures("command_site")
def test_an_interrupt_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, "greet", "--storage-backend=alpha", "--fail") == (130, "", "")


@pytest.mark.usefixtures("command_site")
def test_secrets_are_in_no_message(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "greet", "--storage-backend=alpha", "--alpha-token=hunter2")
    assert (code, out) == (2, "")
    assert err == "kplane: error: --alpha-token: the value is refused (not shown, it is secret)\n"


def test_version_and_the_page_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "--version")
    assert (code, out.split()[0]) == (0, "kplane")
    code, out, err = _run(capsys)
    assert (code, out) == (2, "")
    assert err.startswith("usage: kplane COMMAND [flags]")


def test_a_plugin_that_prints_does_not_disturb_json(site: Any, plugin_source: Source) -> None:
    site.install("kplane-noisy", f"print('noise')\n{plugin_source('noisy')}", name="noisy")
    done = site.kplane("backends", "--json")
    assert "noisy" in {document["name"] for document in json.loads(done.stdout)}
    assert done.stderr == "noise\n"
    assert done.returncode == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_causes_no_traceback(unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kplane_core", "backends", "-v"],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


HEAVY = ("asyncio", "msgspec", "kplane_core.engine", "kplane_core.storage", "kplane_memory.engine")
LAZY = ("pluggy", "importlib_metadata", "importlib.metadata", "argparse")


def test_importing_the_command_imports_neither_engine_nor_event_loop() -> None:
    # Without site-packages' start-up files: they import some of these before any of our code runs.
    code = f"""
import sys
sys.path[:] = {sys.path!r}
import kplane_core.cli
print([name for name in {HEAVY + LAZY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_listing_backends_imports_no_driver_and_no_event_loop() -> None:
    code = f"""
import sys
import kplane_core.cli
assert kplane_core.cli.main(["backends", "-v"]) == 0
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
