"""Request bodies: each form gives the same dict, and whatever cannot be read is a 400 or 415 that says why."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.apierrors import UnsupportedMediaType
from kplane_apiserver.wire.bodies import MAX_NESTING, decode_body, decode_yaml, media_type
from kplane_core.errors import BadRequest

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
FIXTURES = Path(__file__).parent / "data/protobuf"


def refusal(content_type: str, body: bytes) -> str:
    with pytest.raises(BadRequest) as caught:
        decode_body(content_type, body)
    assert caught.value.status().code == 400
    return str(caught.value)


# --- which form -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["", JSON, "application/json; charset=utf-8", "APPLICATION/JSON"])
def test_json_is_read_with_or_without_a_content_type(content_type: str) -> None:
    assert decode_body(content_type, b'{"kind":"Pod"}') == {"kind": "Pod"}


def test_yaml_and_protobuf_are_read_by_their_content_type() -> None:
    assert decode_body(YAML, b"kind: Pod\n") == {"kind": "Pod"}
    body = (FIXTURES / "namespace.bin").read_bytes()
    assert decode_body(PROTOBUF, body) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "team-a"},
    }


def test_another_content_type_is_415_and_lists_those_that_would_do() -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        decode_body("text/plain", b"{}")
    status = caught.value.status()
    assert (status.code, status.reason) == (415, "UnsupportedMediaType")
    assert status.message == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )


def test_the_media_type_is_lower_case_without_parameters() -> None:
    assert media_type(" Application/YAML ; q=1") == "application/yaml"


@pytest.mark.parametrize("content_type", [JSON, YAML, PROTOBUF, ""])
def test_an_empty_body_is_named_as_such(content_type: str) -> None:
    assert "is empty" in refusal(content_type, b"")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"[]", "an array"),
        (b'"x"', "a string"),
        (b"1", "a number"),
        (b"1.5", "a number"),
        (b"true", "a boolean"),
        (b"null", "null"),
    ],
)
@pytest.mark.parametrize("content_type", [JSON, YAML])
def test_a_body_that_is_not_an_object_is_refused(content_type: str, body: bytes, found: str) -> None:
    assert refusal(content_type, body) == f"the body of the request must be an object, not {found}"


# --- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"a":1,}', "byte 7"),
        (b'{"a": NaN}', "byte 6"),
        (b'{"a":1} x', "trailing characters (byte 9)"),
        (b"{'a':1}", "byte 1"),
        (b"\xef\xbb\xbf{}", "byte 0"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"a":1e999}', "out of range"),
        (b'{"a"', "truncated"),
    ],
)
def test_malformed_json_is_refused_with_its_position(body: bytes, words: str) -> None:
    message = refusal(JSON, body)
    assert message.startswith("the body of the request is not valid JSON: ")
    assert words in message


def test_of_a_key_given_twice_the_last_one_counts() -> None:
    assert decode_body(JSON, b'{"a":1,"a":2}') == {"a": 2}


def deep(levels: int) -> bytes:
    return b'{"a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


def test_nesting_is_read_up_to_its_limit_and_refused_beyond() -> None:
    for content_type in (JSON, YAML):
        assert decode_body(content_type, deep(MAX_NESTING))
        assert f"nested more than {MAX_NESTING} deep" in refusal(content_type, deep(MAX_NESTING + 1))


@pytest.mark.parametrize("levels", [900, 10_000, 200_000])
@pytest.mark.parametrize("content_type", [JSON, YAML])
def test_absurd_nesting_is_refused_and_does_not_crash(content_type: str, levels: int) -> None:
    assert "deep" in refusal(content_type, deep(levels)) or "depth" in refusal(content_type, deep(levels))
    assert refusal(content_type, b"[" * levels)


def test_a_wide_body_is_not_mistaken_for_a_deep_one() -> None:
    body = msgspec.json.encode({"items": [{"a": [i]} for i in range(1000)]})
    assert len(decode_body(JSON, body)["items"]) == 1000


# --- YAML -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain words", "plain words"),
        ("2001-01-01", "2001-01-01"),
        ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
        ("1:30", "1:30"),
        ("10.0.0.1", "10.0.0.1"),
        ("1.2.3", "1.2.3"),
        ("yes", True),
        ("Off", False),
        ("y", True),
        ("N", False),
        ('"yes"', "yes"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("true", True),
        ("~", None),
        ("", None),
        ("null", None),
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("0644", 420),
        ("-010", -8),
        ("0o17", 15),
        ("08", 8),
        ("0x1F", 31),
        ("0b101", 5),
        ("1_000", 1000),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000),
        ("-1.0", -1),
        ("1.5e-3", 0.0015),
        ("0x", "0x"),
        ("1e", "1e"),
        ("-", "-"),
        ("=", "="),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_a_yaml_scalar_is_read_as_upstream_reads_it(text: str, value: Any) -> None:
    if text == "-":
        text = '"-"'
    read = decode_body(YAML, f"a: {text}\n".encode())["a"]
    assert read == value
    assert type(read) is type(value)


def test_yaml_keys_are_texts() -> None:
    assert decode_body(YAML, b"1: a\ntrue: b\n1.5: c\n~: d\n'2': e") == {
        "1": "a",
        "true": "b",
        "1.5": "c",
        "null": "d",
        "2": "e",
    }


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"a: 1\n---\nb: 2\n", "another document (line 2, column 1)"),
        (b"a: [1, 2\n", "(line 2, column 1)"),
        (b"a: b: c", "(line 1, column 5)"),
        (b"a: *nowhere", "undefined alias (line 1, column 4)"),
        (b"a: !!binary aGk=", "tag:yaml.org,2002:binary is not supported"),
        (b"a: !!timestamp 2001-01-01", "is not supported"),
        (b"a: !!python/object/apply:os.system [id]", "is not supported"),
        (b"a: !custom 1", "!custom is not supported"),
        (b"a: .inf", "JSON has no such number"),
        (b"a: -.INF", "JSON has no such number"),
        (b"a: .NaN", "JSON has no such number"),
        (b"a: !!int x", "not a number"),
        (b"a: !!int {}", "expected a scalar"),
        (b"a: !!map []", "expected a mapping"),
        (b"a: !!seq {}", "expected a sequence"),
        (b"? [a]\n: b", "a key must be a scalar"),
        (b"<<: {a: 1}", "merge keys (<<) are not supported"),
        (b"a: \x00", "control characters are not allowed"),
        (b"a: \xff", "invalid leading UTF-8 octet"),
    ],
)
def test_yaml_that_json_cannot_hold_is_refused_with_its_position(body: bytes, words: str) -> None:
    message = refusal(YAML, body)
    assert message.startswith("the body of the request is not valid YAML: ")
    assert words in message


def test_an_alias_becomes_a_copy_of_its_own() -> None:
    value = decode_body(YAML, b"a: &x {c: [1]}\nb: *x\n")
    value["a"]["c"].append(2)
    assert value == {"a": {"c": [1, 2]}, "b": {"c": [1]}}


def laughs(levels: int) -> bytes:
    first = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"
    more = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join([first, *more]).encode()


def test_aliases_that_multiply_are_refused() -> None:
    assert "too large" in refusal(YAML, laughs(9))
    assert "too large" in refusal(YAML, b"a: &a " + b"x" * 10_000 + b"\nb: [" + b"*a, " * 1000 + b"]")
    assert len(decode_body(YAML, laughs(3))) == 3


def test_aliases_that_nest_deeper_than_the_text_does_are_refused() -> None:
    half = MAX_NESTING // 2 + 1
    body = b"a: &a " + b"[" * half + b"]" * half + b"\nb: " + b"[" * half + b"*a" + b"]" * half
    assert "deep" in refusal(YAML, body)
    assert "deep" in refusal(YAML, body.replace(b"[" * half, b"[" * 900).replace(b"]" * half, b"]" * 900))


def test_an_alias_to_itself_is_refused() -> None:
    assert "deep" in refusal(YAML, b"&a {b: *a}")
    assert "too large" in refusal(YAML, b"&a {b: *a, c: *a}")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=10), JSON_VALUES, max_size=4))
def test_json_read_as_yaml_is_the_same(value: dict[str, Any]) -> None:
    assert decode_yaml(msgspec.json.encode(value)) == value


@given(st.dictionaries(st.text("abcxyz-", min_size=1, max_size=10), JSON_VALUES, max_size=4))
def test_what_a_yaml_writer_writes_is_read_back(value: dict[str, Any]) -> None:
    written = yaml.dump(value, Dumper=UpstreamDumper, allow_unicode=True).encode()
    assert decode_yaml(written) == value


class UpstreamDumper(yaml.SafeDumper):
    """Quotes every text, since plain ones like `y` mean something else here than to PyYAML."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style='"')

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


UpstreamDumper.add_representer(str, UpstreamDumper.represent_str)


@given(st.binary(max_size=60), st.sampled_from([JSON, YAML, PROTOBUF]))
def test_random_bytes_are_read_or_refused(body: bytes, content_type: str) -> None:
    try:
        value = decode_body(content_type, body)
    except (BadRequest, UnsupportedMediaType):
        return
    msgspec.json.encode(value)


@given(st.text("ab:-[]{}&*!?|>'\"#%@,\n \t01.~<", max_size=40))
def test_random_yaml_is_read_or_refused(text: str) -> None:
    try:
        value = decode_body(YAML, text.encode())
    except BadRequest:
        return
    msgspec.json.encode(value)
