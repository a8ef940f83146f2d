"""Paging: what a list request means, and tokens that cannot be bent."""

import base64
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kplane_core.errors import BadRequest
from kplane_core.storage.paging import ListPlan, decode_continue, encode_continue, plan_list

# A busy machine is no failure.
PATIENT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

PREFIX = "/registry/pods/"
V = "meta.k8s.io/v1"


def token(document):
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


# --- tokens ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "rv", "full"),
    [
        ("key", 1, "/registry/pods/key"),
        ("/key", 1, "/registry/pods/key"),
        ("/", 1, "/registry/pods/"),
        ("ns/a\0", -1, "/registry/pods/ns/a\0"),
        ("ns/..a", 2**63 - 2, "/registry/pods/ns/..a"),
    ],
)
def test_good_tokens_name_a_key_below_the_prefix(start, rv, full):
    """The cacher writes a leading slash, the store none; both mean the same."""
    assert decode_continue(token({"v": V, "rv": rv, "start": start}), PREFIX) == (full, rv)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"v": "", "rv": 1, "start": "key"}, "server does not recognize this encoded version"),
        ({"v": "v1", "rv": 1, "start": "key"}, "server does not recognize this encoded version"),
        ({"v": "", "rv": 0, "start": ""}, "server does not recognize this encoded version"),
        ({"v": V, "rv": 0, "start": "key"}, "incorrect encoded start resourceVersion"),
        ({"v": V, "start": "key"}, "incorrect encoded start resourceVersion"),
        ({"v": V, "rv": 1, "start": ""}, "encoded start key empty"),
        ({"v": V, "rv": 1}, "encoded start key empty"),
        ({"v": V, "rv": 1, "start": "../key"}, "continue key is not valid"),
        ({"v": V, "rv": 1, "start": "./key"}, "continue key is not valid"),
        ({"v": V, "rv": 1, "start": "./../key"}, "continue key is not valid"),
        ({"v": V, "rv": 1, "start": "key/../.."}, "continue key is not valid"),
        ({"v": V, "rv": 1, "start": "key/"}, "continue key is not valid"),
        ({"v": V, "rv": 1, "start": "//key"}, "continue key is not valid"),
        ({"v": V, "rv": 1, "start": "a/./b"}, "continue key is not valid"),
        ({"v": V, "rv": "1", "start": "key"}, "continue key is not valid"),
        ({"v": V, "rv": 2**63, "start": "key"}, "continue key is not valid"),
        ({"v": V, "rv": -(2**63) - 1, "start": "key"}, "continue key is not valid"),
        ({"v": V, "rv": 1, "start": "\ud800"}, "continue key is not valid"),
        ([], "continue key is not valid"),
        (b"{", "continue key is not valid"),
        (b"\xff", "continue key is not valid"),
        (b'{"x":' + b"[" * 100_000, "continue key is not valid"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_bad_tokens_are_a_bad_request_that_says_why(document, why):
    with pytest.raises(BadRequest) as caught:
        decode_continue(token(document), PREFIX)
    assert str(caught.value) == f"invalid continue token: {why}"
    assert caught.value.status().code == 400


@pytest.mark.parametrize("text", ["!", "a", "eyJ2", "€", "e30=e30=", "e30.", " "])
def test_text_that_is_no_token_is_a_bad_request(text):
    with pytest.raises(BadRequest, match="invalid continue token"):
        decode_continue(text, PREFIX)


def test_a_token_is_the_documents_exact_bytes():
    """Tokens travel between replicas and releases."""
    made = encode_continue("/registry/pods/ns/a\0", PREFIX, 42)
    assert "=" not in made
    decoded = base64.urlsafe_b64decode(made + "=" * (-len(made) % 4))
    assert decoded == b'{"v":"meta.k8s.io/v1","rv":42,"start":"ns/a\\u0000"}'


SEGMENT = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=8).filter(
    lambda text: text not in {".", ".."}
)


@PATIENT
@given(st.lists(SEGMENT, min_size=1, max_size=3), st.integers(1, 2**63 - 2) | st.just(-1) | st.just(2**63 - 2))
def test_tokens_carry_every_key_and_revision(segments, revision):
    """Revisions beyond 2^53 must not pass through a float."""
    key = PREFIX + "/".join(segments) + "\0"
    made = encode_continue(key, PREFIX, revision)
    assert decode_continue(made, PREFIX) == (key, revision)
    assert decode_continue(made, "/other/") == ("/other/" + "/".join(segments) + "\0", revision)


@PATIENT
@given(st.text(max_size=30) | st.binary(max_size=40).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_no_text_breaks_the_decoder(text):
    try:
        start, revision = decode_continue(text, PREFIX)
    except BadRequest:
        return
    assert start.startswith(PREFIX)
    assert revision


def test_a_key_outside_the_prefix_gets_no_token():
    with pytest.raises(ValueError, match="unable to encode continue"):
        encode_continue("/registry/secrets/a", PREFIX, 1)


# --- what a list means (A.9.1) ---------------------------------------------------------------------------


def plan(rv="", match="", *, recursive=True, limit=0, continue_token=""):
    return plan_list(
        prefix=PREFIX,
        recursive=recursive,
        resource_version=rv,
        match=match,
        limit=limit,
        continue_token=continue_token,
    )


AT_100 = token({"v": V, "rv": 100, "start": "key"})
NEWEST = token({"v": V, "rv": -1, "start": "key"})
RV_0 = token({"v": V, "rv": 0, "start": "key"})
KEY = "/registry/pods/key"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ListPlan()),
        ({"recursive": False}, ListPlan()),
        ({"limit": 1}, ListPlan()),
        ({"match": "NotOlderThan"}, ListPlan()),
        ({"rv": "0"}, ListPlan()),
        ({"rv": "0", "limit": 1}, ListPlan()),
        ({"rv": "0", "match": "Exact"}, ListPlan()),
        ({"rv": "200", "match": "NotOlderThan"}, ListPlan(minimum=200)),
        ({"rv": "200", "match": "NotOlderThan", "limit": 1}, ListPlan(minimum=200)),
        ({"rv": "200", "match": "Exact"}, ListPlan(at=200)),
        ({"rv": "200", "match": "Exact", "recursive": False}, ListPlan(at=200)),
        ({"rv": "200", "limit": 1, "recursive": False}, ListPlan(minimum=200)),
        ({"rv": "200"}, ListPlan(minimum=200)),
        ({"rv": "200", "limit": 1}, ListPlan(at=200)),
        ({"continue_token": AT_100}, ListPlan(start=KEY, at=100, continued=True)),
        ({"continue_token": AT_100, "rv": "0"}, ListPlan(start=KEY, at=100, continued=True)),
        ({"continue_token": AT_100, "limit": 5}, ListPlan(start=KEY, at=100, continued=True)),
        ({"continue_token": AT_100, "match": "nonsense"}, ListPlan(start=KEY, at=100, continued=True)),
        ({"continue_token": NEWEST}, ListPlan(start=KEY, continued=True)),
        ({"continue_token": "garbage", "recursive": False}, ListPlan()),
    ],
    ids=str,
)
def test_a_list_request_means(arguments, expected):
    assert plan(**arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"rv": "200", "continue_token": AT_100}, "specifying resource version is not allowed when using continue"),
        ({"rv": "x", "continue_token": AT_100}, "specifying resource version is not allowed when using continue"),
        ({"rv": "x"}, "invalid resource version: "),
        ({"rv": "-1"}, "invalid resource version: "),
        ({"rv": "x", "match": "Exact"}, "invalid resource version: "),
        ({"rv": "9" * 5000}, "invalid resource version: "),
        ({"rv": "200", "match": "Newest"}, "unknown ResourceVersionMatch value: Newest"),
        ({"rv": "0", "match": "exact"}, "unknown ResourceVersionMatch value: exact"),
        ({"continue_token": RV_0}, "invalid continue token: incorrect encoded start resourceVersion"),
        ({"continue_token": "garbage"}, "invalid continue token: "),
        ({"continue_token": "garbage", "rv": "200"}, "invalid continue token: "),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_contradictory_list_request_is_a_bad_request(arguments, why):
    with pytest.raises(BadRequest) as caught:
        plan(**arguments)
    assert str(caught.value).startswith(why)
