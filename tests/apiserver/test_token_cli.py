"""`kplane token`: what it puts into the file, what it prints, and that it never shows a token again."""

import stat
import threading

import pytest
import yaml

from kplane_apiserver.commands.tokens_cli import run
from kplane_apiserver.commands.tokens_command import TokenOptions
from kplane_apiserver.credentials.kubeconfig import Credentials, write_kubeconfig
from kplane_apiserver.credentials.tokens import load_tokens
from kplane_core.errors import UsageError

FLAG = "--token-auth-file"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens.csv"


@pytest.fixture
def kplane(path, tmp_path, capsys):
    """Run `kplane token` with words and options, and return what it prints."""

    def call(*words, **options):
        given = {"token_auth_file": path, "kubeconfig": tmp_path / "kubeconfig", **options}
        assert run(TokenOptions(**given), words) == 0
        return capsys.readouterr().out

    return call


def test_a_new_token_is_printed_once_and_stands_in_a_file_for_its_owner_only(kplane, path):
    token = kplane("create", user="alice", cluster="c1", group=("dev", "ops"), uid="7").strip()
    assert len(token) > 40
    (line,) = load_tokens(path, FLAG)
    assert (line.token, line.user, line.uid, line.groups, line.cluster) == (token, "alice", "7", ("dev", "ops"), "c1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["tokens.csv"]
    assert kplane("create", user="alice", cluster="c1").strip() != token
    assert len(load_tokens(path, FLAG)) == 2


def test_what_stood_in_the_file_stays_as_it_was(kplane, path):
    before = 'a , alice,1\r\n\n"b",bob,2,"x,y",c1'
    path.write_text(before, encoding="utf-8", newline="")
    path.chmod(0o644)
    kplane("create", user='car"ol, jr.', all_clusters=True)
    assert path.read_text(encoding="utf-8").startswith(f"{before}\n".replace("\r\n", "\n"))
    assert load_tokens(path, FLAG)[-1].user == 'car"ol, jr.'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_list_shows_whose_and_where_but_no_token(kplane, path):
    first = kplane("create", user="alice", cluster="c1", group=("dev", "ops")).strip()
    second = kplane("create", user="bob", all_clusters=True).strip()
    listed = kplane("list")
    assert [line.split()[1:] for line in listed.splitlines()] == [
        ["USER", "GROUPS", "CLUSTER"],
        ["alice", "dev,ops", "c1"],
        ["bob", "<none>", "<all>"],
    ]
    assert {len(line.split()[0]) for line in listed.splitlines()[1:]} == {4}
    for token in (first, second):
        assert token not in listed
        assert token[7:15] not in listed
    assert "bob" not in kplane("list", user="alice")
    assert "alice" not in kplane("list", all_clusters=True)
    assert kplane("list", cluster="c2") == f"{path} has no such token\n"


def test_tokens_are_deleted_by_id_user_or_cluster(kplane, path):
    for user, cluster in (("alice", "c1"), ("alice", "c2"), ("bob", "c1"), ("carol", "c3")):
        kplane("create", user=user, cluster=cluster)
    gone = kplane("list", user="carol").splitlines()[1].split()[0]
    assert kplane("delete", gone) == f"token {gone} of carol deleted\n"
    assert kplane("delete", user="alice", cluster="c2").endswith(" of alice deleted\n")
    assert [(line.user, line.cluster) for line in load_tokens(path, FLAG)] == [("alice", "c1"), ("bob", "c1")]
    assert len(kplane("delete", cluster="c1").splitlines()) == 2
    assert path.read_text(encoding="utf-8") == ""


def test_a_deletion_leaves_the_other_lines_as_they_are(kplane, path):
    path.write_text('a , alice,1\r\n\n"b",bob,2,"x,y",c1\nc,carol,3', encoding="utf-8", newline="")
    path.chmod(0o600)
    kplane("delete", user="bob")
    assert path.read_bytes() == b"a , alice,1\r\n\nc,carol,3\n", "and the last one has its end"


@pytest.mark.parametrize(
    ("words", "options", "complaint"),
    [
        ((), {}, "a verb is needed; there are create, list, delete"),
        (("make",), {}, "no such verb 'make'"),
        (("create", "alice"), {}, "what is made or listed is told by flags"),
        (("create",), {"cluster": "c1"}, "whose token"),
        (("create",), {"user": "alice"}, "either --cluster NAME or --all-clusters"),
        (("create",), {"user": "alice", "cluster": "c1", "all_clusters": True}, "either --cluster NAME or --all"),
        (("create",), {"user": "alice", "cluster": "a/b"}, "--cluster"),
        (("create",), {"user": "alice", "cluster": "c1", "group": ("a,b",)}, "no comma"),
        (("create",), {"user": "alice", "cluster": "c1", "output": "kubeconfig"}, "no server: .* does not exist"),
        (("delete",), {}, "which"),
        (("delete", "0000"), {}, "is no token's ID"),
        (("delete",), {"user": "eve"}, "has no such token"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(kplane, path, words, options, complaint):
    kplane("create", user="alice", cluster="c1")
    before = path.read_bytes()
    with pytest.raises(UsageError, match=complaint) as caught:
        kplane(*words, **options)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_a_file_that_is_none_of_tokens_is_left_alone(kplane, path):
    path.write_text("hush\n", encoding="utf-8")
    for words, options in (
        (("create",), {"user": "a", "cluster": "c1"}),
        (("list",), {}),
        (("delete",), {"user": "a"}),
    ):
        with pytest.raises(UsageError, match="line 1 has 1 columns") as caught:
            kplane(*words, **options)
        assert "hush" not in str(caught.value)
    assert path.read_text(encoding="utf-8") == "hush\n"


def test_a_file_that_is_not_there_is_made_by_create_only(kplane, path):
    for words, options in ((("list",), {}), (("delete",), {"user": "a"})):
        with pytest.raises(UsageError, match="there is no such file; kplane token create makes it"):
            kplane(*words, **options)
    with pytest.raises(UsageError, match="No such file"):
        kplane("create", user="a", cluster="c1", token_auth_file=path / "nowhere" / "file")
    assert not path.exists()


def test_two_at_once_lose_no_token(path):
    """Each is a process of its own for the lock, which belongs to the opened folder."""

    def create(number):
        for _ in range(10):
            run(TokenOptions(token_auth_file=path, user=f"u{number}", all_clusters=True), ("create",))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(load_tokens(path, FLAG)) == 40


def test_a_kubeconfig_for_the_user_names_the_server_and_its_authority(kplane, tmp_path):
    trust = {"certificate-authority-data": "Q0E=", "tls-server-name": "kplane.example"}
    write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:8443", ["c1"], Credentials("admin-token", trust))
    made = yaml.safe_load(kplane("create", user="alice", cluster="c2", output="kubeconfig"))
    assert made["current-context"] == "kplane-c2-alice"
    (cluster,), (user,) = made["clusters"], made["users"]
    assert cluster["cluster"] == {"server": "https://127.0.0.1:8443/clusters/c2/control-plane", **trust}
    assert user["user"]["token"].startswith("kplane_")
    everywhere = yaml.safe_load(kplane("create", user="bob", all_clusters=True, output="kubeconfig"))
    assert everywhere["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:8443"


def test_a_context_can_be_added_to_the_kubeconfig_of_the_server(kplane, tmp_path):
    file = tmp_path / "kubeconfig"
    write_kubeconfig(file, "https://127.0.0.1:8443", ["c1"], Credentials("admin-token", {}))
    token = kplane("create", user="alice", cluster="c1", add_context=True).strip()
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert document["current-context"] == "kplane-c1"
    assert [one["name"] for one in document["contexts"]] == ["kplane-c1", "kplane-c1-alice"]
    assert {one["name"]: one["user"]["token"] for one in document["users"]} == {
        "kplane@127.0.0.1:8443": "admin-token",
        "kplane-c1-alice@127.0.0.1:8443": token,
    }
