"""The flags: Kubernetes' names, typed, refused in one clear line."""

from pathlib import Path

import attrs
import importlib_metadata
import pytest

from kplane_core.errors import UsageError
from kplane_core.plugins.arguments import Arguments
from kplane_core.plugins.backends import Backends
from kplane_core.plugins.flags import Flags
from kplane_core.plugins.values import Config, Values
from kplane_etcd.plugin import EtcdOptions, kplane_register_backends


@pytest.fixture
def backends() -> Backends:
    backends = Backends("kplane-etcd 0")
    kplane_register_backends(backends)
    return backends


@pytest.fixture
def parse(backends):
    """A function from command-line arguments to options."""

    def parsed(*arguments: str, document=None, environ=None) -> EtcdOptions:
        flags = Flags()
        backends.add_flags(flags)
        sections = list(flags.sections)
        given = Arguments("kplane serve", "test", sections).parse(list(arguments))
        values = Values(sections, given, environ or {}, Config("k.toml", document or {}), "etcd")
        return values.get(EtcdOptions)

    return parsed


def test_the_distribution_declares_the_plugin_and_its_harness() -> None:
    declared = {
        (entry.group, entry.name, entry.value) for entry in importlib_metadata.distribution("kplane-etcd").entry_points
    }
    assert declared == {
        ("kplane.backends", "etcd", "kplane_etcd.plugin"),
        ("kplane.conformance", "etcd", "kplane_etcd.conformance:harness"),
    }


def test_both_names_of_kubernetes_select_it(backends) -> None:
    assert backends.get("etcd") is backends.get("etcd3")


def test_nothing_has_to_be_given(parse) -> None:
    options = parse()
    assert options.servers == ("http://127.0.0.1:2379",)
    assert options.prefix == "/registry"
    assert (options.compaction_interval, options.healthcheck_timeout, options.readycheck_timeout) == (300, 2, 2)
    assert options.db_metric_poll_interval == 30


def test_the_names_are_those_of_kubernetes(backends) -> None:
    flags = Flags()
    backends.add_flags(flags)
    names = {setting.flag for section in flags.sections for setting in section.settings}
    assert names >= {
        "--etcd-servers", "--etcd-cafile", "--etcd-certfile", "--etcd-keyfile", "--etcd-prefix",
        "--etcd-compaction-interval", "--etcd-healthcheck-timeout", "--etcd-readycheck-timeout",
        "--etcd-db-metric-poll-interval",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://a:1,http://b:2", ("http://a:1", "http://b:2")),
        ("10.0.0.1:2379", ("http://10.0.0.1:2379",)),
        ("https://etcd.example/", ("https://etcd.example",)),
        ("http://[::1]:2379", ("http://[::1]:2379",)),
        ("unix:///run/kine.sock", ("unix:///run/kine.sock",)),
    ],
)
def test_servers_are_read_as_urls(parse, given, expected) -> None:
    assert parse(f"--etcd-servers={given}").servers == expected
    assert parse(document={"etcd": {"servers": given.split(",")}}).servers == expected
    assert parse(environ={"KPLANE_ETCD_SERVERS": given}).servers == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--etcd-servers=ftp://a:1",), "begins with neither http://"),
        (("--etcd-servers=http://a:1/path",), "more than a host and a port"),
        (("--etcd-servers=http://a:0",), "cannot be read"),
        (("--etcd-servers=http://a:99999",), "cannot be read"),
        (("--etcd-servers=http://",), "cannot be read"),
        (("--etcd-servers=",), "is empty"),
        (("--etcd-servers=http://a:1,",), "empty item"),
        (("--etcd-servers=http://a:1,https://b:2",), "mixes https"),
        (("--etcd-servers=unix://",), "no socket"),
        (("--etcd-prefix=/a//b",), "no path of plain names"),
        (("--etcd-prefix=/../x",), "no path of plain names"),
        (("--etcd-prefix=/",), "no path of plain names"),
        (("--etcd-cafile=/nowhere/ca.pem",), "no such file"),
        (("--etcd-compaction-interval=-1s",), "etcd-compaction-interval"),
        (("--etcd-healthcheck-timeout=0",), "etcd-healthcheck-timeout"),
        (("--etcd-request-timeout=0",), "etcd-request-timeout"),
        (("--etcd-lease-max-object-count=0",), "etcd-lease-max-object-count"),
        (("--etcd-username=root",), "--etcd-password-file go together"),
        ((f"--etcd-password-file={__file__}",), "--etcd-password-file go together"),
        ((f"--etcd-certfile={__file__}", "--etcd-servers=https://a"), "--etcd-keyfile go together"),
        ((f"--etcd-cafile={__file__}",), "needs https://"),
        (("--etcd-server-name=x",), "needs https://"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(parse, given, message) -> None:
    with pytest.raises(UsageError) as caught:
        parse(*given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("server", ["http://root:hunter2@etcd:2379", "root:hunter2@etcd:2379", "https://hunter2@etcd"])
def test_a_password_in_a_url_is_refused_and_not_repeated(parse, server) -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"--etcd-servers={server}")
    assert "hunter2" not in str(caught.value)
    assert "--etcd-password-file" in str(caught.value)


def test_a_password_is_read_from_its_file_each_time_and_stands_in_no_text(parse, tmp_path: Path) -> None:
    """R46: any character is fine; a changed password is found without a restart."""
    file = tmp_path / "password"
    file.write_text(")<@/% \n")
    options = parse("--etcd-username=root", f"--etcd-password-file={file}")
    assert options.credentials() == ("root", ")<@/% ")
    file.write_text("new")
    assert options.credentials() == ("root", "new")
    assert "new" not in repr(options).replace(str(tmp_path), "")
    file.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        options.credentials()


def test_a_flag_is_no_attribute_by_accident() -> None:
    assert all(attribute.metadata for attribute in attrs.fields(EtcdOptions))
