"""The file with the administrators' tokens: what it may hold, what is said of mistakes, and what never is."""

import logging
from contextlib import closing
from pathlib import Path

import pytest

from kplane_apiserver.commands import security
from kplane_apiserver.commands.options import ServeOptions
from kplane_apiserver.credentials.tokens import AdminTokens, load_admin_tokens
from kplane_apiserver.settings import Settings, wall_clock
from kplane_apiserver.wire.listening import listen
from kplane_core.errors import UsageError


def _file(folder, text, mode=0o600):
    path = folder / "tokens.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def test_lines_are_read_as_kubernetes_reads_them(tmp_path):
    text = 'abc,alice,1\n\n"with,comma",bob,2,"admins,others"\r\nlast,carol,3,admins\n'
    tokens = load_admin_tokens(_file(tmp_path, text))
    assert tokens.user_of(b"Bearer abc") == "alice"
    assert tokens.user_of(b"bearer with,comma") == "bob"
    assert tokens.user_of(b"Bearer last") == "carol"
    for wrong in (b"", b"Bearer", b"Bearer ", b"abc", b"Basic abc", b"Bearer alice", b"Bearer ABC", b"Bearer \xff"):
        assert tokens.user_of(wrong) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no line"),
        ("\n\n", "has no line"),
        ("hush,alice\n", "line 1 has 2 columns"),
        ("a,b,c\n,alice,1\n", "line 2 has an empty token"),
        ("hush,,1\n", "line 1 has an empty user"),
        ("hush,a,1\nhush,b,2\n", "line 2 has a token that stands in the file already"),
        (b"hush\xff,a,1\n", "is not a text file"),
    ],
)
def test_a_mistake_is_named_by_its_line_and_no_token_is_shown(tmp_path, text, complaint):
    with pytest.raises(UsageError) as caught:
        load_admin_tokens(_file(tmp_path, text))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
    shown = [str(caught.value), repr(caught.value), repr(caught.value.__context__)]
    assert not any("hush" in one for one in shown)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(UsageError, match=r"--admin-token-file /no/such: No such file"):
        load_admin_tokens(Path("/no/such"))


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_a_file_that_others_can_reach_is_warned_of(tmp_path, caplog, mode, warned):
    with caplog.at_level(logging.WARNING):
        load_admin_tokens(_file(tmp_path, "hush,alice,1\n", mode))
    assert ("use mode 600" in caplog.text) is warned
    assert "hush" not in caplog.text


def test_tokens_show_themselves_nowhere():
    tokens = AdminTokens([("hush", "alice")])
    assert "hush" not in repr(tokens)
    assert "hush" not in repr(Settings(cross_cluster_readers=tokens))


def test_reading_across_clusters_takes_both_the_flag_and_the_file(tmp_path):
    path = _file(tmp_path, "hush,alice,1\n")
    with pytest.raises(UsageError, match="--admin-token-file"):
        security.check(ServeOptions(allow_cross_cluster_reads=True))
    with closing(listen("127.0.0.1", 0)) as listener:
        options = ServeOptions(allow_cross_cluster_reads=True, admin_token_file=path)
        security.check(options)
        readers = security.secure(options, listener, wall_clock).readers
        assert readers.user_of(b"Bearer hush") == "alice"
        assert security.secure(ServeOptions(admin_token_file=path), listener, wall_clock).readers is None
        assert security.secure(ServeOptions(), listener, wall_clock).readers is None
