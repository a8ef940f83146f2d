"""Files of users' tokens: what a line may say, which token is good where, and how changes come into use."""

import logging
import os

import pytest

from kplane_apiserver.credentials.token_files import TokenFiles, TokenSource
from kplane_apiserver.credentials.tokens import TokenLine, Tokens, load_tokens, parse_tokens
from kplane_apiserver.identity import User
from kplane_core.errors import UsageError

FLAG = "--token-auth-file"


class Seconds:
    """A clock that a test turns."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def write(path, text, mode=0o600):
    path.write_text(text, encoding="utf-8", newline="")
    path.chmod(mode)
    return path


def files(path, clock=None, **source):
    return TokenFiles([TokenSource(path, FLAG, **source)], clock=clock or Seconds())


# --- lines ------------------------------------------------------------------------------------------------------------


def test_a_line_names_user_uid_groups_and_the_one_cluster():
    lines = parse_tokens(b'a,alice,1\n\nb,bob,2,"dev,ops"\r\n"c,c",carol,,,c1\nd,dave,4,dev,c1', "f")
    assert [(one.token, one.user, one.uid, one.groups, one.cluster) for one in lines] == [
        ("a", "alice", "1", (), ""),
        ("b", "bob", "2", ("dev", "ops"), ""),
        ("c,c", "carol", "", (), "c1"),
        ("d", "dave", "4", ("dev",), "c1"),
    ]
    assert [(one.start, one.end) for one in lines] == [(0, 1), (2, 3), (3, 4), (4, 5)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hush,alice\n", "line 1 has 2 columns"),
        ("a,b,c\n\nhush,alice,1,dev,c1,ops\n", "line 3 has 6 columns, .* quote the groups"),
        ("hush,alice,1,dev,not/a/cluster\n", "line 1 has a fifth column that names no cluster"),
        ("hush,alice,1,,*\n", "line 1 has a fifth column that names no cluster"),
        ('hush,"al"ice,1\n', "is not a text file with comma-separated values"),
        ('hush,"alice,1\n', "is not a text file with comma-separated values"),
    ],
)
def test_a_mistake_is_named_by_its_line_and_nothing_of_it_is_shown(text, complaint):
    with pytest.raises(UsageError, match=complaint) as caught:
        parse_tokens(text.encode(), "f")
    assert "hush" not in f"{caught.value!r}{caught.value.__context__!r}{caught.value.__cause__!r}"
    assert "alice" not in str(caught.value)


def test_no_token_shows_itself():
    line = TokenLine("hush", "alice")
    assert "hush" not in repr(line)
    assert "hush" not in repr(Tokens([line]))
    assert "hush" not in repr(TokenFiles([], [line]))


def test_a_file_without_lines_is_refused_unless_it_may_be_empty(tmp_path):
    path = write(tmp_path / "f", "\n")
    with pytest.raises(UsageError, match="has no line"):
        load_tokens(path, FLAG)
    assert load_tokens(path, FLAG, may_be_empty=True) == []


# --- whose it is, and where -------------------------------------------------------------------------------------------


def test_a_token_of_a_cluster_is_unknown_everywhere_else():
    tokens = Tokens([TokenLine("a", "alice", cluster="c1"), TokenLine("b", "bob", "7", ("dev",))])
    assert tokens.user_of(b"a", "c1") == User("alice", groups=("system:authenticated",))
    for cluster in ("c2", "root", "*", "c", "c10", "C1", ""):
        assert tokens.user_of(b"a", cluster) is None
        assert tokens.user_of(b"b", cluster) == User("bob", "7", ("dev", "system:authenticated"))
    for wrong in (b"", b"A", b"ab", b"a ", b"\xff"):
        assert tokens.user_of(wrong, "c1") is None


def test_whoever_gave_a_token_is_in_the_group_of_those_once():
    user = Tokens([TokenLine("a", "a", groups=("system:authenticated", "x", "x"))]).user_of(b"a", "c1")
    assert user.groups == ("system:authenticated", "x")


def test_a_token_in_two_files_is_that_of_the_first(tmp_path):
    first, second = write(tmp_path / "1", "t,alice,1"), write(tmp_path / "2", "t,bob,1,,c1\nu,carol,1")
    found = TokenFiles([TokenSource(first, FLAG, ("extra",)), TokenSource(second, FLAG)])
    assert found.user_of(b"t", "c2") == User("alice", "1", ("extra", "system:authenticated"))
    assert found.user_of(b"u", "c2").groups == ("system:authenticated",)


# --- changes ----------------------------------------------------------------------------------------------------------


def test_a_new_token_is_known_at_once_and_an_old_one_forgotten_within_a_second(tmp_path):
    clock, path = Seconds(), write(tmp_path / "f", "old,alice,1\n")
    found = files(path, clock)
    assert found.user_of(b"old", "c1").name == "alice"
    write(path, "newer,bob,1\n")
    assert found.user_of(b"newer", "c1").name == "bob", "no time passed"
    assert found.user_of(b"old", "c1") is None
    write(path, "newest,carol,1\n")
    assert found.user_of(b"newer", "c1").name == "bob", "nobody looks for each known token"
    clock.now += 1
    assert found.user_of(b"newer", "c1") is None


@pytest.mark.parametrize("damage", ["truncated", "unlink", "binary"])
def test_a_file_that_became_bad_leaves_the_old_tokens_and_one_line_in_the_log(tmp_path, caplog, damage):
    path = write(tmp_path / "f", "hush,alice,1\n")
    found = files(path)
    match damage:
        case "truncated":
            write(path, "hush,al")
        case "unlink":
            path.unlink()
        case "binary":
            path.write_bytes(b"hush\xff\0")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert found.user_of(b"unknown", "c1") is None
    assert found.user_of(b"hush", "c1").name == "alice"
    (record,) = caplog.records
    assert "the tokens read before stay in use" in record.getMessage()
    assert "hush" not in record.getMessage()
    write(path, "new,bob,1\n")
    assert found.user_of(b"new", "c1").name == "bob"
    assert found.user_of(b"hush", "c1") is None


SCOPED = 'scoped,alice,1,"dev",c1'


@pytest.mark.parametrize("end", range(len("scoped,alice,1"), len(SCOPED) + 1))
def test_a_line_that_is_being_written_gives_nobody_more_than_the_whole_line(tmp_path, end):
    """Its beginning is good for every cluster, or for one whose name is shorter."""
    clock, path = Seconds(), write(tmp_path / "f", "old,bob,1\n")
    found = files(path, clock)
    for part in (SCOPED[:end], f"new,carol,1\n{SCOPED[:end]}"):
        write(path, part)
        for seconds in (0, 0.5, 0.4):
            clock.now += seconds
            for cluster in ("c2", "c", "c1"):
                assert found.user_of(b"scoped", cluster) is None
        assert found.user_of(b"old", "c1").name == "bob"
    write(path, f"{SCOPED}\n")
    assert found.user_of(b"scoped", "c2") is None
    assert found.user_of(b"scoped", "c1").name == "alice", "and the whole line is known at once"


def test_a_last_line_without_its_end_counts_once_the_file_rests(tmp_path):
    clock, path = Seconds(), write(tmp_path / "f", "old,bob,1\n")
    found = files(path, clock)
    write(path, "new,carol,1\nlast,dave,1")
    assert found.user_of(b"last", "c1") is None
    clock.now += 1
    assert found.user_of(b"last", "c1").name == "dave"
    assert found.user_of(b"new", "c1").name == "carol"
    assert found.user_of(b"old", "c1") is None


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    path = write(tmp_path / "f", "old,bob,1\n")
    found = files(path)
    write(path, "half,alice,1\n")

    def load_and_lose_a_race(*given, **options):
        lines = load_tokens(*given, **options)
        write(path, "whole,alice,1,,c1\n")
        return lines

    with monkeypatch.context() as patched:
        patched.setattr("kplane_apiserver.credentials.token_files.load_tokens", load_and_lose_a_race)
        assert found.user_of(b"half", "c1") is None
    assert found.user_of(b"whole", "c1").name == "alice"
    assert found.user_of(b"half", "c1") is None


def test_an_unchanged_file_is_not_read_again(tmp_path, monkeypatch):
    path = write(tmp_path / "f", "a,alice,1\n")
    clock = Seconds()
    found = files(path, clock)
    monkeypatch.setattr("kplane_apiserver.credentials.token_files.load_tokens", None)
    for _ in range(10):
        clock.now += 1
        assert found.user_of(b"unknown", "c1") is None
        assert found.user_of(b"a", "c1").name == "alice"


def test_a_file_replaced_by_one_that_looks_alike_is_read(tmp_path):
    path = write(tmp_path / "f", "aa,alice,1\n")
    found, before = files(path), path.stat()
    other = write(tmp_path / "g", "bb,alice,1\n")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert found.user_of(b"bb", "c1").name == "alice"


def test_a_bad_file_is_refused_from_the_start(tmp_path):
    with pytest.raises(UsageError, match=r"--token-auth-file .*/f: No such file"):
        files(tmp_path / "f")
    assert files(write(tmp_path / "g", ""), may_be_empty=True).user_of(b"", "c1") is None
