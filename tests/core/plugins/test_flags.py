"""One attrs class becomes flags, variables, file keys and typed values; every mistake names its source in one line."""

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from kplane_core.errors import UsageError
from kplane_core.plugins.arguments import Arguments
from kplane_core.plugins.errors import BadConfig, FlagConflict
from kplane_core.plugins.flags import (
    Flags,
    boolean,
    choice,
    csv,
    csv_of,
    duration,
    file,
    filled_text,
    integer,
    number,
    option,
    path,
    port,
    positive_int,
    size,
    text,
    url,
)
from kplane_core.plugins.values import Config, Source, Values, load_config

SECRET = "hunter2-and-more"


@attrs.frozen
class DbOptions:
    """Every kind of option."""

    limit: int = option(10, parse=positive_int, help="how many, at most 100% of them")
    servers: tuple[str, ...] = option(("http://127.0.0.1:2379",), parse=csv_of(url), help="endpoints")
    names: tuple[str, ...] = option((), parse=csv, help="names")
    password: str = option("", secret=True, help="user password")
    pin: int = option(0, secret=True, help="a secret number")
    code: str = option("", secret=True, validator=attrs.validators.in_(("", "abc")), help="a short secret")
    durable: bool = option(False, help="wait for the disk")
    color: bool = option(True, help="be colourful")
    mode: str = option("fast", parse=choice("fast", "safe"), help="how")
    timeout: float = option(30.0, parse=duration, help="patience")
    body: int = option(3 * 2**20, parse=size, help="largest body")
    port: int = option(0, parse=port, help="where")
    ratio: float = option(0.5, help="share")
    even: int = option(2, validator=attrs.validators.in_((2, 4)), help="an even number")
    odd: str = option("x", env="ODD_ONE", help="has a variable of its own")


@attrs.frozen
class SubOptions:
    depth: int = option(1, help="how deep")


def _values(
    argv: Sequence[str] = (),
    *,
    environ: dict[str, str] | None = None,
    document: dict[str, Any] | None = None,
    options: type = DbOptions,
    backend: str | None = None,
) -> Values:
    flags = Flags("kplane-db 1.0")
    flags.add("db", options, title="db storage backend (kplane-db 1.0)", backend="db" if backend else "")
    flags.add("sub", SubOptions, toml="db.sub")
    config = Config("k.toml", document or {})
    given = Arguments("kplane test", "tests", flags.sections).parse(argv)
    config.check(flags.sections, ["other"])
    return Values(flags.sections, given, environ or {}, config, backend)


def _get(argv: Sequence[str] = (), **sources: Any) -> DbOptions:
    return _values(argv, **sources).get(DbOptions)


def _refusal(argv: Sequence[str] = (), **sources: Any) -> str:
    with pytest.raises(UsageError) as caught:
        _values(argv, **sources).check()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_without_any_source_every_value_is_the_default() -> None:
    assert _get() == DbOptions()


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() -> None:
    file_only: dict[str, Any] = {"document": {"db": {"limit": 2}}}
    with_environment: dict[str, Any] = {**file_only, "environ": {"KPLANE_DB_LIMIT": "3"}}
    assert _get().limit == 10
    assert _get(**file_only).limit == 2
    assert _get(**with_environment).limit == 3
    assert _get(["--db-limit", "4"], **with_environment).limit == 4


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--db-limit=7"], "limit", 7),
        (["--db-limit", "7"], "limit", 7),
        (["--db-servers", "http://a:1,https://b"], "servers", ("http://a:1", "https://b")),
        (["--db-servers=http://a:1", "--db-servers=http://b:2"], "servers", ("http://a:1", "http://b:2")),
        (["--db-durable"], "durable", True),
        (["--db-durable=true"], "durable", True),
        (["--db-no-durable"], "durable", None),
        (["--no-db-durable"], "durable", False),
        (["--no-db-color"], "color", False),
        (["--db-color=false"], "color", False),
        (["--db-color=0"], "color", False),
        (["--db-password="], "password", ""),
        (["--db-password", "a b=c,d"], "password", "a b=c,d"),
        (["--db-mode", "safe"], "mode", "safe"),
        (["--db-timeout=1h30m"], "timeout", 5400.0),
        (["--db-timeout=0"], "timeout", 0.0),
        (["--db-timeout=250ms"], "timeout", 0.25),
        (["--db-body=512KiB"], "body", 512 * 1024),
        (["--db-ratio=-1.5e3"], "ratio", -1500.0),
        (["--db-ratio", "-1"], "ratio", -1.0),
    ],
)
def test_what_a_flag_gives(argv: list[str], field: str, value: object) -> None:
    if value is None:
        assert "unknown flag" in _refusal(argv)
    else:
        assert getattr(_get(argv), field) == value


@pytest.mark.parametrize(
    ("table", "field", "value"),
    [
        ({"limit": 7}, "limit", 7),
        ({"limit": "7"}, "limit", 7),
        ({"servers": ["http://a:1", "http://b:2"]}, "servers", ("http://a:1", "http://b:2")),
        ({"servers": "http://a:1,http://b:2"}, "servers", ("http://a:1", "http://b:2")),
        ({"names": ["a,b", "c"]}, "names", ("a,b", "c")),
        ({"durable": True}, "durable", True),
        ({"ratio": 1}, "ratio", 1.0),
        ({"ratio": 0.25}, "ratio", 0.25),
        ({"timeout": "5m"}, "timeout", 300.0),
        ({"body": 100}, "body", 100),
    ],
)
def test_what_a_file_gives(table: dict[str, Any], field: str, value: object) -> None:
    assert getattr(_get(document={"db": table}), field) == value


REFUSED = [
    ("limit", "0", "must be at least 1, not 0"),
    ("limit", "-1", "must be at least 1, not -1"),
    ("limit", "", "is empty"),
    ("limit", " ", "is empty"),
    ("limit", "ten", "not a whole number: 'ten'"),
    ("limit", "1_0", "not a whole number: '1_0'"),
    ("limit", "\N{ARABIC-INDIC DIGIT ONE}", "not a whole number: '\N{ARABIC-INDIC DIGIT ONE}'"),
    ("limit", "1.5", "not a whole number: '1.5'"),
    ("limit", "9" * 30, f"must be at most 9223372036854775807, not {'9' * 30}"),
    ("limit", "9" * 9999, f"must be at most 9223372036854775807, not {'9' * 60}…"),
    ("limit", "-" + "9" * 9999, f"must be at least 1, not -{'9' * 59}…"),
    ("servers", "", "is empty"),
    ("servers", ",", "has an empty item: ','"),
    ("servers", "http://a:1,,http://b:1", "has an empty item: 'http://a:1,,http://b:1'"),
    ("servers", "localhost:2379", "not a URL: 'localhost:2379'"),
    ("servers", "http://", "not a URL, its host or port cannot be read: 'http://'"),
    ("servers", "http://a:99999", "not a URL, its host or port cannot be read: 'http://a:99999'"),
    ("durable", "maybe", "neither true nor false: 'maybe'"),
    ("durable", "", "is empty"),
    ("mode", "", "is empty"),
    ("mode", "fats", "must be one of fast, safe, not 'fats'. Did you mean 'fast'?"),
    ("timeout", "", "is empty"),
    ("timeout", "5", "needs a unit, for example 5s: '5'"),
    ("timeout", "-5", "must not be negative: '-5'"),
    ("timeout", "-5m", "must not be negative: '-5m'"),
    ("timeout", "five", "not a duration such as 30s, 5m or 1h30m: 'five'"),
    ("timeout", "5m5", "not a duration such as 30s, 5m or 1h30m: '5m5'"),
    ("timeout", "99999999h", "longer than ten years: '99999999h'"),
    ("timeout", "9" * 400 + "h", f"longer than ten years: '{'9' * 60}…'"),
    ("body", "-1", "not a size such as 512KiB or 3MiB: '-1'"),
    ("body", "3 apples", "not a size such as 512KiB or 3MiB: '3 apples'"),
    ("body", "9" * 400, f"too large: '{'9' * 60}…'"),
    ("port", "-1", "must be at least 0, not -1"),
    ("port", "65536", "must be at most 65535, not 65536"),
    ("ratio", "nan", "not a number: 'nan'"),
    ("ratio", "1e999", "too large: '1e999'"),
    ("even", "3", "'even' must be in (2, 4) (got 3)"),
    ("names", "a\0b", "contains a NUL character"),
]


@pytest.mark.parametrize(("field", "given", "complaint"), REFUSED)
def test_a_refused_value_names_the_flag_the_variable_or_the_key(field: str, given: str, complaint: str) -> None:
    assert _refusal([f"--db-{field}={given}"]) == f"--db-{field}: {complaint}"
    assert _refusal(environ={f"KPLANE_DB_{field.upper()}": given}) == f"KPLANE_DB_{field.upper()}: {complaint}"
    assert _refusal(document={"db": {field: given}}) == f"k.toml: [db] {field}: {complaint}"


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"limit": True}, "[db] limit: must not be a boolean"),
        ({"limit": 1.5}, "[db] limit: must not be a number"),
        ({"limit": [1]}, "[db] limit: must not be a list"),
        ({"limit": {"x": 1}}, "[db] limit: must not be a table"),
        ({"limit": {}}, "[db] limit: must not be a table"),
        ({"limits": {"x": 1}}, "unknown table [db.limits]"),
        ({"password": 12}, "[db] password: the value is refused (not shown, it is secret)"),
        ({"durable": 1}, "[db] durable: must not be a number"),
        ({"names": []}, "[db] names: is empty"),
        ({"names": [True]}, "[db] names: must not contain a boolean"),
        ({"names": [["a"]]}, "[db] names: must not contain a list"),
        ({"limt": 1}, "[db] unknown key 'limt'. Did you mean 'limit'?"),
        ({"zzz": 1}, "[db] unknown key 'zzz'"),
    ],
)
def test_a_file_with_the_wrong_type_or_key_is_refused(table: dict[str, Any], complaint: str) -> None:
    assert _refusal(document={"db": table}) == f"k.toml: {complaint}"


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"dbs": {"limit": 1}}, "k.toml: unknown table [dbs]. Did you mean 'db'?"),
        ({"db": 3}, "k.toml: db: must be a table, written [db]"),
        ({"loose": 3}, "k.toml: unknown key 'loose'"),
    ],
)
def test_a_file_with_an_unknown_table_is_refused(document: dict[str, Any], complaint: str) -> None:
    assert _refusal(document=document) == complaint


def test_a_table_may_lie_within_another() -> None:
    assert _values(document={"db": {"sub": {"depth": 7}}}).get(SubOptions).depth == 7
    assert _refusal(document={"db": {"sub": {"dept": 7}}}) == (
        "k.toml: [db.sub] unknown key 'dept'. Did you mean 'depth'?"
    )
    assert _refusal(document={"db": {"sub": 7}}) == "k.toml: db.sub: must be a table, written [db.sub]"


def test_tables_of_others_are_left_alone() -> None:
    assert _get(document={"other": {"anything": [1], "below": {"x": 1}}, "empty": {}, "db": {"limit": 3}}).limit == 3


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--db-limit=1", "--db-limit=2"], "--db-limit: given twice"),
        (["--db-durable", "--no-db-durable"], "--db-durable: given twice"),
        (["--db-limit"], "--db-limit: needs a value; one that begins with a dash is written --db-limit=VALUE"),
        (["--db-limit", "--db-durable"], "--db-limit: needs a value; one that begins with a dash is written "),
        (["--db-limt=1"], "unknown flag --db-limt. Did you mean '--db-limit'?"),
        (["--db-lim=1"], "unknown flag --db-lim. Did you mean '--db-limit'?"),
        (["--no-db-colour"], "unknown flag --no-db-colour. Did you mean '--no-db-color'?"),
        (["--no-db-color=true"], "--no-db-color: ignored explicit argument 'true'"),
        (["stray"], "unexpected argument 'stray': kplane test takes flags only; kplane test --help lists them"),
        (["--zzzzzzzzzzz"], "unknown flag --zzzzzzzzzzz; kplane test --help lists those there are"),
        (["--db-du"], "unknown flag --db-du. Did you mean '--db-durable'?"),
        (["--db-zz"], "unknown flag --db-zz; kplane test --help"),
        (["-q"], "unknown flag -q"),
    ],
)
def test_a_mistyped_command_line_is_refused(argv: list[str], complaint: str) -> None:
    assert _refusal(argv).startswith(complaint)


@pytest.mark.parametrize(
    "sources",
    [
        {"argv": [f"--db-pin={SECRET}"]},
        {"environ": {"KPLANE_DB_PIN": SECRET}},
        {"document": {"db": {"pin": SECRET}}},
        {"argv": [f"--db-code={SECRET}"]},
    ],
)
def test_a_refused_secret_is_never_shown(sources: dict[str, Any]) -> None:
    with pytest.raises(BadConfig) as caught:
        _values(**sources).check()
    assert "the value is refused (not shown, it is secret)" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_accepted_secret_is_never_shown() -> None:
    values = _values([f"--db-password={SECRET}"])
    assert values.get(DbOptions).password == SECRET
    assert SECRET not in repr(values.get(DbOptions))
    assert SECRET not in repr(values.shown())
    assert next(row.text for row in values.shown() if row.flag == "--db-password") == "***"


@pytest.mark.parametrize("tail", ["", ")<@/%", "@:/["])
@pytest.mark.parametrize("head", ["", "a@", "a#", "a?", "a/"])
def test_credentials_within_a_url_are_never_shown(head: str, tail: str) -> None:
    password = f"{head}{SECRET}{tail}"
    for given in (
        f"user:{password}@host",
        f"http://user:{password}@",
        f"http://user:{password}@host:99999",
        f"http ://user:{password}@host",
    ):
        assert SECRET not in _refusal([f"--db-servers={given}"])


def test_credentials_of_a_good_url_are_hidden_in_reports() -> None:
    values = _values([f"--db-servers=http://user:{SECRET}@host:1"])
    assert next(row.text for row in values.shown() if row.flag == "--db-servers") == "http://***@host:1"


def test_each_value_remembers_where_it_came_from() -> None:
    values = _values(["--db-limit=1"], environ={"KPLANE_DB_RATIO": "1", "ODD_ONE": "y"}, document={"db": {"port": 1}})
    sources = {row.flag: row.source for row in values.shown()}
    assert sources["--db-limit"] == Source("flag", "--db-limit")
    assert sources["--db-ratio"] == Source("environment", "KPLANE_DB_RATIO")
    assert sources["--db-odd"] == Source("environment", "ODD_ONE")
    assert sources["--db-port"] == Source("file", "k.toml: [db] port")
    assert sources["--db-mode"] == Source("default", "default")


def test_the_variables_that_kubernetes_sets_for_a_service_are_not_taken_for_ours() -> None:
    assert _get(environ={"KPLANE_DB_PORT": "tcp://10.0.0.1:80"}).port == 0
    assert _refusal(environ={"KPLANE_DB_PORT": "http"}).startswith("KPLANE_DB_PORT: not a whole number")


@attrs.frozen
class NeedyOptions:
    database: str = option(required=True, parse=filled_text, help="which")


def test_a_required_value_is_asked_for_only_when_its_backend_is_selected() -> None:
    _values(options=NeedyOptions, backend="another").check()
    assert _refusal(options=NeedyOptions, backend="db") == (
        "--db-database is required; also accepted: KPLANE_DB_DATABASE, or database in [db] of the config file"
    )
    assert _values(["--db-database=x"], options=NeedyOptions, backend="db").get(NeedyOptions).database == "x"


def test_a_flag_of_a_backend_that_is_not_selected_names_both() -> None:
    assert _refusal(["--db-limit=1"], backend="memory") == (
        "--db-limit belongs to the db storage backend (kplane-db 1.0), but the selected storage backend is 'memory'"
    )


def test_variables_and_tables_of_a_backend_that_is_not_selected_are_left_alone() -> None:
    _values(environ={"KPLANE_DB_LIMIT": "x"}, document={"db": {"limit": "x"}}, backend="memory").check()


@attrs.frozen
class PairOptions:
    low: int = option(1, help="low")
    high: int = option(2, help="high")

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")


def test_values_that_do_not_fit_together_name_their_section() -> None:
    assert _refusal(["--db-low=3"], options=PairOptions) == "db storage backend (kplane-db 1.0): low 3 is above high 2"


def _wordy(given: str) -> str:
    raise UsageError(f"first\nsecond {given}")


def test_a_parser_of_ones_own_may_raise_any_error_of_kplane_at_any_length() -> None:
    wordy = attrs.make_class("wordy", {"x": option("", parse=_wordy, help="x")})
    assert _refusal(["--db-x=a"], options=wordy) == "--db-x: first second a"
    assert len(_refusal([f"--db-x={'a' * 5000}"], options=wordy)) < 300
    assert SECRET not in _refusal([f"--db-x=http://me:{SECRET}@host"], options=wordy)


def test_options_without_a_prefix_have_names_of_their_own() -> None:
    flags = Flags("kplane-apiserver 1.0")
    flags.add("", PairOptions, title="server", env="KPLANE_SERVE_", toml="serve")
    low = flags.sections[0].settings[0]
    assert (low.flag, low.env, flags.sections[0].toml, low.key) == ("--low", "KPLANE_SERVE_LOW", "serve", "low")
    values = Values(flags.sections, {}, {"KPLANE_SERVE_LOW": "0"}, Config("k.toml", {"serve": {"high": 9}}))
    assert values.get(PairOptions) == PairOptions(low=0, high=9)


@attrs.frozen
class _Switch:
    x: bool = option(False)


@attrs.frozen
class _NoX:
    no_a_x: str = option("")


@attrs.frozen
class _Variable:
    y: str = option("", env="KPLANE_A_X")


@pytest.mark.parametrize(
    ("section", "options", "what"), [("a", _Switch, "--a-x"), ("", _NoX, "--no-a-x"), ("b", _Variable, "KPLANE_A_X")]
)
def test_two_owners_of_one_name_are_both_named(section: str, options: type, what: str) -> None:
    flags = Flags("first 1.0")
    flags.add("a", _Switch)
    with pytest.raises(FlagConflict, match=rf"{what} is contributed by first 1\.0 and by second 2\.0"):
        flags.owned_by("second 2.0").add(section, options)
    assert len(flags.sections) == 1


def test_an_option_needs_a_default_or_required_and_a_known_type() -> None:
    with pytest.raises(TypeError, match="default or required"):
        option(help="nothing")
    unclear = attrs.make_class("unclear", {"x": option({}, help="a mapping")}, frozen=True)
    with pytest.raises(TypeError, match="parse="):
        Flags().add("a", unclear)
    with pytest.raises(TypeError, match="is not an attrs class"):
        Flags().add("a", dict)
    plain = attrs.make_class("plain", {"x": attrs.field(default=1)})
    with pytest.raises(TypeError, match=r"plain\.x is not made by option"):
        Flags().add("a", plain)


def test_help_shows_every_flag_with_its_default_and_no_secret() -> None:
    flags = Flags()
    secret = attrs.make_class("secret", {"key": option(SECRET, secret=True, help="a key")})
    flags.add("db", DbOptions, title="db storage backend (kplane-db 1.0)", description="a database for tests")
    flags.add("s", secret)
    page = Arguments("kplane test", "tests", flags.sections).help()
    assert "db storage backend (kplane-db 1.0):\n  a database for tests" in page
    for section in flags.sections:
        for setting in section.settings:
            assert f"no-]{setting.flag[2:]} " in page or f"  {setting.flag} " in page
    assert "at most 100% of them (default 10)" in page
    assert "--[no-]db-color" in page
    assert "  --db-durable " in page
    assert "(default 30s)" in page
    assert "(default 3MiB)" in page
    assert "env ODD_ONE" in page
    assert SECRET not in page


def test_files_and_paths(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.write_text("")
    assert file(str(here)) == here
    assert path(str(tmp_path / "not yet")) == tmp_path / "not yet"
    with pytest.raises(ValueError, match="no such file"):
        file(str(tmp_path / "gone"))
    with pytest.raises(ValueError, match="is a directory"):
        file(str(tmp_path))


@pytest.mark.parametrize("parser", [boolean, integer, number, duration, size, port, url, filled_text, csv, path])
def test_blank_text_is_a_value_only_for_plain_text(parser: Any) -> None:
    with pytest.raises(ValueError, match="is empty"):
        parser("")
    assert text("") == ""


@pytest.mark.parametrize(
    ("parser", "value", "shown"),
    [
        (duration, 0.0, "0"),
        (duration, 90.0, "90s"),
        (duration, 300.0, "5m"),
        (duration, 0.25, "250ms"),
        (duration, 0.0001, "100us"),
        (size, 0, "0"),
        (size, 3 * 2**20, "3MiB"),
        (size, 1000, "1000"),
        (number, 0.5, "0.5"),
        (csv, ("a", "b"), "a,b"),
    ],
)
def test_what_is_shown_can_be_typed_again(parser: Any, value: Any, shown: str) -> None:
    assert parser.show(value) == shown
    assert parser(shown) == pytest.approx(value)


def test_a_config_file_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    good = tmp_path / "good.toml"
    good.write_text("[db]\nlimit = 3\n")
    assert load_config(str(good)).document == {"db": {"limit": 3}}
    with pytest.raises(BadConfig, match=r"^KPLANE_CONFIG: cannot read '.*gone\.toml': No such file"):
        load_config(str(tmp_path / "gone.toml"), "KPLANE_CONFIG")
    for content in (b"[db\n", b"\xff\xfe"):
        bad = tmp_path / "bad.toml"
        bad.write_bytes(content)
        with pytest.raises(BadConfig, match=r"bad\.toml: not a TOML file"):
            load_config(str(bad))
