"""The kubeconfig that `kplane serve` writes: our contexts in, everybody else's left alone."""

import stat
import threading

import pytest
import yaml

from kplane_apiserver.credentials.kubeconfig import Credentials, trust_in, write_kubeconfig
from kplane_core.errors import UsageError

URL = "http://127.0.0.1:8080"


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_a_new_file_has_a_context_per_cluster_and_the_first_is_current(tmp_path):
    path = tmp_path / "config"
    write_kubeconfig(path, URL, ["c1", "c10"])
    config = read(path)
    assert config["current-context"] == "kplane-c1"
    assert {entry["name"]: entry["cluster"]["server"] for entry in config["clusters"]} == {
        "kplane-c1": f"{URL}/clusters/c1/control-plane",
        "kplane-c10": f"{URL}/clusters/c10/control-plane",
    }
    assert [entry["context"]["cluster"] for entry in config["contexts"]] == ["kplane-c1", "kplane-c10"]
    assert config["kind"] == "Config"
    assert config["apiVersion"] == "v1"


def test_the_file_is_readable_by_its_owner_only(tmp_path):
    path = tmp_path / "config"
    path.write_text("", encoding="utf-8")
    path.chmod(0o644)
    write_kubeconfig(path, URL, ["c1"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["config"], "no temporary file stays"


def test_entries_of_others_and_the_current_context_stay(tmp_path):
    path = tmp_path / "config"
    theirs = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {"colors": True},
        "current-context": "prod",
        "clusters": [{"name": "prod", "cluster": {"server": "https://prod.example"}}],
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "me"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(theirs), encoding="utf-8")
    write_kubeconfig(path, URL, ["c1"])
    config = read(path)
    assert config["current-context"] == "prod"
    assert config["preferences"] == {"colors": True}
    for section in ("clusters", "contexts", "users"):
        assert config[section][0] == theirs[section][0]
        assert len(config[section]) == 2


def test_writing_again_replaces_our_entries_and_adds_none(tmp_path):
    path = tmp_path / "config"
    write_kubeconfig(path, URL, ["c1", "c2"])
    write_kubeconfig(path, "http://127.0.0.1:9090", ["c1"])
    config = read(path)
    assert [entry["name"] for entry in config["clusters"]] == ["kplane-c1", "kplane-c2"]
    assert config["clusters"][0]["cluster"]["server"] == "http://127.0.0.1:9090/clusters/c1/control-plane"
    assert len(config["users"]) == 1


def test_a_link_keeps_pointing_at_its_file(tmp_path):
    target = tmp_path / "real"
    link = tmp_path / "link"
    link.symlink_to(target)
    write_kubeconfig(link, URL, ["c1"])
    assert link.is_symlink()
    assert read(target)["current-context"] == "kplane-c1"


@pytest.mark.parametrize(
    "content",
    [
        "key: [",
        "just text",
        "kind: Pod\n",
        "kind: Config\nclusters: {a: b}\n",
        "kind: Config\nusers: [1]\n",
        "[]",
        b"\xff",
    ],
    ids=["no-yaml", "a-text", "a-pod", "map-for-list", "number-for-entry", "a-list", "no-utf8"],
)
def test_a_file_that_is_no_kubeconfig_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "config"
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(raw)
    with pytest.raises(UsageError, match="config") as caught:
        write_kubeconfig(path, URL, ["c1"])
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == raw


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot write the kubeconfig .*nowhere/config: No such file"):
        write_kubeconfig(tmp_path / "nowhere" / "config", URL, ["c1"])


def test_each_server_with_tokens_has_a_user_of_its_own(tmp_path):
    path = tmp_path / "config"
    write_kubeconfig(path, "https://127.0.0.1:1", ["c1"], Credentials("one", trust_in("CA", "name")))
    write_kubeconfig(path, "https://127.0.0.1:2", ["c2"], Credentials("two"))
    config = read(path)
    assert {one["name"]: one["user"] for one in config["users"]} == {
        "kplane@127.0.0.1:1": {"token": "one"},
        "kplane@127.0.0.1:2": {"token": "two"},
    }
    assert {one["name"]: one["context"]["user"] for one in config["contexts"]} == {
        "kplane-c1": "kplane@127.0.0.1:1",
        "kplane-c2": "kplane@127.0.0.1:2",
    }
    assert config["clusters"][0]["cluster"]["certificate-authority-data"] == "Q0E="
    assert config["clusters"][0]["cluster"]["tls-server-name"] == "name"


def test_a_new_start_renews_the_token_of_every_context_of_the_server(tmp_path):
    path = tmp_path / "config"
    write_kubeconfig(path, "https://127.0.0.1:1", ["c1", "c2"], Credentials("one"))
    write_kubeconfig(path, "https://127.0.0.1:1", ["c1"], Credentials("two"))
    config = read(path)
    assert config["users"] == [{"name": "kplane@127.0.0.1:1", "user": {"token": "two"}}]
    assert [one["context"]["user"] for one in config["contexts"]] == ["kplane@127.0.0.1:1"] * 2


def test_tokens_that_no_context_uses_any_more_go_and_those_of_others_stay(tmp_path):
    path = tmp_path / "config"
    path.write_text("kind: Config\nusers: [{name: me, user: {token: t}}]\n", encoding="utf-8")
    write_kubeconfig(path, "https://127.0.0.1:1", ["c1"], Credentials("one"))
    write_kubeconfig(path, "http://127.0.0.1:2", ["c1"])
    assert [one["name"] for one in read(path)["users"]] == ["me", "kplane"]


def test_two_at_once_lose_no_context(tmp_path):
    """Each is a process of its own for the lock, which belongs to the opened folder."""
    path = tmp_path / "kubeconfig"

    def write(number):
        for turn in range(5):
            write_kubeconfig(path, "http://127.0.0.1:8080", [f"c{number}-{turn}"])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(yaml.safe_load(path.read_text(encoding="utf-8"))["contexts"]) == 20


def test_credentials_do_not_show_their_token():
    assert "hush" not in repr(Credentials("hush"))
