"""`kplane new-backend`: from nothing to a list of what is left to write."""

import ast
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from kplane_core.engine.interface import Engine
from kplane_core.engine.unwritten import METHODS, unwritten, unwritten_methods
from kplane_core.errors import UsageError
from kplane_core.scaffold.render import Names, rendered, write


def kplane(folder, *arguments, site=None):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("KPLANE_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={**env, "PYTHONPATH": str(site or "")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder in which `rock-db` was made and installed; returns it and where pip put the distribution."""
    folder = tmp_path_factory.mktemp("stranger")
    done = kplane(folder, "kplane_core", "new-backend", "rock-db")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kplane-rock-db: 12 files\n")
    pip = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", "site"]
    installed = kplane(folder, *pip, "./kplane-rock-db")
    assert installed.returncode == 0, installed.stderr
    return folder


def suite(made, *arguments):
    command = ["pytest", "-p", "no:cacheprovider", "-q", "--pyargs", "kplane_conformance", "--kplane-backend=rock-db"]
    return kplane(made, *command, *arguments, site=made / "site")


def test_right_after_the_installation_the_backend_is_listed(made):
    done = kplane(made, "kplane_core", "backends", site=made / "site")
    assert re.search(r"^rock-db +kplane-rock-db +0\.1\.0 +ok ", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_right_after_the_installation_the_suite_says_which_methods_are_unwritten_one_line_each(made):
    done = suite(made)
    assert done.returncode == 4
    listed = re.findall(r"^  (\w+) +(docs/reference/engine\.md#\w+) +(\S.*)$", done.stderr, re.MULTILINE)
    assert [name for name, _, _ in listed] == list(METHODS)
    assert "backend 'rock-db': 10 of 10 engine methods are still unwritten" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 12


def test_a_single_case_runs_and_names_the_method_that_it_needs(made):
    done = suite(made, "--kplane-case=engine.read.absent")
    assert done.returncode == 1
    assert "is not written yet: docs/reference/engine.md#" in done.stdout


def test_a_method_that_is_written_is_no_longer_listed(made):
    engine = made / "site" / "kplane_rock_db" / "engine.py"
    before = engine.read_text("utf-8")
    written = before.replace("    @unwritten\n    async def size", "    async def size")
    assert written != before
    engine.write_text(written, "utf-8")
    try:
        done = suite(made)
    finally:
        engine.write_text(before, "utf-8")
    assert "9 of 10 engine methods are still unwritten" in done.stderr
    assert "#size" not in done.stderr


def test_the_tests_that_come_with_it_pass(made):
    done = kplane(made / "kplane-rock-db", "pytest", "-q", "-p", "no:cacheprovider", site=made / "site")
    assert done.returncode == 0, done.stdout


def test_it_is_there_for_the_server_with_its_flags(made):
    done = kplane(made, "kplane_core", "serve", "--help", site=made / "site")
    assert "rock-db storage backend (kplane-rock-db 0.1.0)" in done.stdout
    assert "--rock-db-compact-interval" in done.stdout


def test_every_file_is_what_it_should_be():
    names = Names("rock-db")
    files = {str(path): text for path, text in rendered(names)}
    assert set(files) == {
        ".github/workflows/ci.yml",
        ".gitignore",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/kplane_rock_db/__init__.py",
        "src/kplane_rock_db/conformance.py",
        "src/kplane_rock_db/conformance.toml",
        "src/kplane_rock_db/engine.py",
        "src/kplane_rock_db/plugin.py",
        "src/kplane_rock_db/py.typed",
        "tests/test_plugin.py",
    }
    for path, text in files.items():
        assert "$" not in text.replace("${{ matrix.python }}", ""), path
        if path.endswith(".py"):
            ast.parse(text)
            assert max(map(len, text.splitlines())) <= 120, path
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["entry-points"]["kplane.backends"] == {"rock-db": "kplane_rock_db.plugin"}
    assert yaml.safe_load(files[".github/workflows/ci.yml"])["jobs"]["test"]["steps"]
    assert tomllib.loads(files["src/kplane_rock_db/conformance.toml"]) == {}


def test_the_engine_of_the_scaffold_has_the_signatures_of_the_protocol(tmp_path, monkeypatch):
    """Each of the ten methods is there, typed and documented, in the order in which they are best written."""
    write(Names("thing"), tmp_path / "made")
    monkeypatch.syspath_prepend(str(tmp_path / "made" / "src"))
    from kplane_thing.engine import ThingEngine  # noqa: PLC0415 - it was not there before

    assert [method.name for method in unwritten_methods(ThingEngine)] == list(METHODS)
    for name in (*METHODS, "compacted"):
        own, promised = getattr(ThingEngine, name), getattr(Engine, name)
        assert inspect.signature(own) == inspect.signature(promised), name
        assert inspect.getdoc(own)


def test_a_lone_engine_method_can_be_unwritten():
    class Half:
        @unwritten
        async def read(self, key: str) -> None:
            """Promise."""

        async def compact(self) -> None: ...

    assert {"read", "compact"} <= {method.name for method in unwritten_methods(Half)}, "compacted is missing"
    with pytest.raises(NotImplementedError, match=r"read is not written yet: docs/reference/engine\.md#read"):
        Half().read("a")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("memory", "the name 'memory' is taken by kplane-memory "),
        ("sqlite", "the name 'sqlite' is taken by kplane-sqlite"),
        ("etcd3", "the name 'etcd3' is taken by kplane-etcd"),
        ("spanner", "the name 'spanner' is taken by kplane-spanner"),
        ("class", "'class' is a word of Python's own"),
        ("Rock", "'Rock' cannot be a backend's name: use lower-case letters, digits and single dashes"),
        ("rock_db", "cannot be a backend's name"),
        ("../rock", "cannot be a backend's name"),
        ("rock-", "cannot be a backend's name"),
    ],
)
def test_a_name_that_cannot_be_is_one_line_and_leaves_nothing(tmp_path, name, message):
    done = kplane(tmp_path, "kplane_core", "new-backend", name)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_never_touched(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(UsageError, match="exists and is left as it is; name another folder by --directory"):
        write(Names("rock-db"), folder)
    assert list(folder.iterdir()) == []
    done = kplane(tmp_path, "kplane_core", "new-backend", "rock-db", "--directory", str(folder))
    assert done.returncode == 2
    file = tmp_path / "file"
    file.write_text("precious", "utf-8")
    with pytest.raises(UsageError):
        write(Names("rock-db"), file)
    assert file.read_text("utf-8") == "precious"
    with pytest.raises(UsageError, match="cannot be made: No such file or directory"):
        write(Names("rock-db"), Path(tmp_path / "nowhere" / "deep"))


def test_help_shows_that_it_takes_a_name(tmp_path):
    assert kplane(tmp_path, "kplane_core", "new-backend", "--help").stdout.startswith(
        "usage: kplane new-backend NAME [flags]\n"
    )
