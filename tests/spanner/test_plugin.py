"""The plugin: what describing it costs, and what its flags refuse."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from kplane_core.errors import Unreachable
from kplane_core.plugins.capabilities import Supported
from kplane_core.plugins.discovery import discover
from kplane_spanner import connecting, emulator
from kplane_spanner.plugin import SpannerOptions

KPLANE = Path(sys.executable).with_name("kplane")


THERE = ("--spanner-project=p", "--spanner-instance=i", "--spanner-database=db")


def serve(*flags):
    """Run `kplane serve` with the backend, which must refuse to start."""
    command = [KPLANE, "serve", "--port", "0", "--storage-backend", "spanner", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_describing_the_backend_imports_neither_google_nor_grpc():
    code = (
        "import sys, kplane_spanner.plugin, kplane_spanner.command\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('google', 'grpc') "
        "or name.startswith(('kplane_core.engine', 'kplane_spanner.engine'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_backend_declares_everything_supported():
    backend = discover().select("spanner")
    assert backend.name == "spanner"
    assert all(isinstance(support, Supported) for support in backend.capabilities.values())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--spanner-project"),
        (["--spanner-project=p", "--spanner-instance=i"], "--spanner-database"),
        (["--spanner-project=p", "--spanner-instance=i", "--spanner-database=D B"], "--spanner-database"),
        (
            [*THERE, "--spanner-max-sessions=0"],
            "max-sessions",
        ),
        (
            [*THERE, "--spanner-history-retention=8d"],
            "retention",
        ),
        (
            [*THERE, "--spanner-history-retention=1s"],
            "retention",
        ),
        (
            [*THERE, "--spanner-watch-poll-interval=0"],
            "poll",
        ),
        (
            [
                "--spanner-project=p",
                "--spanner-instance=i",
                "--spanner-database=db",
                "--spanner-credentials-file=/no/file",
            ],
            "credentials",
        ),
        (
            [*THERE, "--spanner-create-instance"],
            "emulator only",
        ),
    ],
)
def test_a_wrong_flag_is_one_line_that_names_it(flags, message):
    done = serve(*flags)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert message in line


def test_unusable_credentials_are_one_line_without_their_content(tmp_path):
    secret = tmp_path / "key.json"
    secret.write_text('{"type": "service_account", "private_key": "hunter2"}')
    done = serve(
        "--spanner-project=p", "--spanner-instance=i", "--spanner-database=db", f"--spanner-credentials-file={secret}"
    )
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert str(secret) in line
    assert "hunter2" not in done.stderr + done.stdout


def test_a_credentials_file_that_points_elsewhere_is_not_followed(tmp_path):
    """It could name a program to run."""
    file = tmp_path / "key.json"
    file.write_text('{"type": "external_account", "credential_source": {"executable": {"command": "touch x"}}}')
    done = serve(*THERE, f"--spanner-credentials-file={file}")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "GOOGLE_APPLICATION_CREDENTIALS" in line


def test_a_service_account_opens_a_secure_channel(tmp_path, monkeypatch):
    """Nothing is sent before the first call, so that this needs no network."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    file = tmp_path / "key.json"
    account = {"type": "service_account", "private_key": pem, "client_email": "a@b", "token_uri": "http://127.0.0.1:1/"}
    file.write_text(json.dumps(account))
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)
    monkeypatch.setattr(connecting, "_HOST", "127.0.0.1:1")
    options = SpannerOptions(project="p", instance="i", database="db", credentials_file=file, timeout=1.0)

    async def scenario():
        with pytest.raises(Unreachable, match=r"projects/p/instances/i/databases/db"):
            await connecting.open_database(options, deadline=3.0)

    asyncio.run(scenario())


def test_an_unreachable_spanner_is_one_line():
    flags = [
        "--spanner-project=p",
        "--spanner-instance=i",
        "--spanner-database=db",
        "--spanner-emulator-host=127.0.0.1:1",
    ]
    done = serve(*flags)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("kplane: error: storage backend 'spanner' cannot be reached: ")
    assert "StorageError" not in line  # the words of the API, which an operator has no use for
    assert "127.0.0.1:1" in line


def test_required_flags_are_only_required_of_the_selected_backend():
    done = subprocess.run([KPLANE, "backends"], capture_output=True, text=True, timeout=60, check=True)
    assert "spanner" in done.stdout
    required = {field.name for field in attrs.fields(SpannerOptions) if field.default is attrs.NOTHING}
    assert required == {"project", "instance", "database"}


def test_the_emulator_is_found_where_the_documentation_says(tmp_path, monkeypatch):
    """The variable first, then PATH, then the Google Cloud CLI; nowhere is an error that says how to get it."""
    named, on_path, of_gcloud = (tmp_path / name for name in ("named", "path", "sdk"))
    folder = of_gcloud / "bin" / "cloud_spanner_emulator"
    for program in (named / "mine", on_path / "emulator_main", folder / "emulator_main", of_gcloud / "bin" / "gcloud"):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    link = tmp_path / "links"
    link.mkdir()
    (link / "gcloud").symlink_to(of_gcloud / "bin" / "gcloud")

    monkeypatch.setenv("PATH", f"{on_path}:{link}")
    monkeypatch.setenv("KPLANE_SPANNER_EMULATOR", str(named / "mine"))
    assert emulator.find_program() == named / "mine"
    monkeypatch.setenv("KPLANE_SPANNER_EMULATOR", str(named / "gone"))
    with pytest.raises(emulator.NoEmulator):
        emulator.find_program()
    monkeypatch.delenv("KPLANE_SPANNER_EMULATOR")
    assert emulator.find_program() == on_path / "emulator_main"
    monkeypatch.setenv("PATH", str(link))
    assert emulator.find_program() == folder / "emulator_main"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(emulator, "_candidates", lambda: iter([tmp_path / "none"]))
    with pytest.raises(emulator.NoEmulator, match="gcloud components install cloud-spanner-emulator"):
        emulator.find_program()


def test_an_emulator_that_does_not_start_says_why(tmp_path, monkeypatch):
    program = tmp_path / "emulator_main"
    program.write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("KPLANE_SPANNER_EMULATOR", str(program))
    with pytest.raises(emulator.KplaneError, match="did not start: no luck"):
        emulator.Emulator().start()
