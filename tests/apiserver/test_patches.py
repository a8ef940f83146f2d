"""The four forms of patches: which are taken, JSON patch and merge patch, and that the stored object stays as it is."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.apierrors import UnsupportedMediaType
from kplane_apiserver.kinds import CustomKind, Kind, builtin_kinds
from kplane_apiserver.patches import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    apply_patch,
    patch_types,
)
from kplane_core.errors import ApiError, BadRequest

POD = builtin_kinds()["", "v1", "pods"]
WIDGET = Kind("example.com", "v1", "Widget", "widgets", "widget", "WidgetList", True, (), custom=CustomKind())


def patched(content_type: str, body: Any, live: dict[str, Any], kind: Kind = POD) -> dict[str, Any]:
    """Apply a patch and show on the way that `live` is neither changed nor shared."""
    before = copy.deepcopy(live)
    result = apply_patch(kind, content_type, msgspec.json.encode(body), live)
    assert live == before
    shared = containers(live) & containers(result)
    assert not shared
    return result


def containers(value: Any) -> set[int]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return set() if inner is None else {id(value)}.union(*map(containers, inner))


def json_patched(live: dict[str, Any], *operations: Any) -> dict[str, Any]:
    return patched(JSON_PATCH, list(operations), live)


# --- which form -------------------------------------------------------------------------------------------------------


def test_a_builtin_kind_takes_four_forms_and_a_custom_kind_three() -> None:
    assert set(patch_types(POD)) == {JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH}
    assert set(patch_types(WIDGET)) == {JSON_PATCH, MERGE_PATCH, APPLY_PATCH}


@pytest.mark.parametrize("content_type", ["application/json", "", "text/plain", "application/merge-patch"])
def test_another_content_type_is_415_and_lists_those_that_would_do(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        apply_patch(POD, content_type, b"{}", {})
    assert caught.value.status().code == 415
    for known in patch_types(POD):
        assert known in str(caught.value)


def test_a_strategic_merge_of_a_custom_kind_is_415_and_does_not_suggest_itself() -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        apply_patch(WIDGET, STRATEGIC_MERGE_PATCH, b"{}", {})
    assert "strategic" not in str(caught.value)


def test_parameters_of_the_content_type_do_not_matter() -> None:
    assert apply_patch(POD, "Application/Merge-Patch+JSON; charset=utf-8", b'{"a":1}', {}) == {"a": 1}


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH])
@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null", b"{", b"", b'{"a":' * 20_000])
def test_a_body_that_is_no_patch_is_a_bad_request(content_type: str, body: bytes) -> None:
    with pytest.raises(BadRequest):
        apply_patch(POD, content_type, body, {"a": 1})


# --- merge patch ------------------------------------------------------------------------------------------------------


# The examples of RFC 7386, Appendix A, as members of an object where they are not objects themselves.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"x": ["a", "b"]}, {"x": ["c", "d"]}, {"x": ["c", "d"]}),
        ({"x": {"a": "b"}}, {"x": ["c"]}, {"x": ["c"]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({"x": [1, 2]}, {"x": {"a": "b", "c": None}}, {"x": {"a": "b"}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_rfc_7386_shows(target: Any, patch: Any, result: Any) -> None:
    assert patched(MERGE_PATCH, patch, target) == result


SCALARS = st.booleans() | st.integers(-5, 5) | st.text("ab~/$", max_size=3)
JSON_VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text("abc", max_size=2), JSON_VALUES, max_size=4)


def difference(source: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch from one object to another."""
    patch: dict[str, Any] = dict.fromkeys(source.keys() - target.keys())
    for key, value in target.items():
        before = source.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := difference(before, value):
                patch[key] = inner
        elif key not in source or before != value or type(before) is not type(value):
            patch[key] = value
    return patch


@given(OBJECTS, OBJECTS)
def test_the_merge_patch_between_two_objects_turns_one_into_the_other(source: Any, target: Any) -> None:
    assert patched(MERGE_PATCH, difference(source, target), source) == target


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_applied_twice_changes_nothing_more(source: Any, patch: Any) -> None:
    once = patched(MERGE_PATCH, patch, source)
    assert patched(MERGE_PATCH, patch, once) == once


# --- JSON patch -------------------------------------------------------------------------------------------------------


# After RFC 6902, Appendix A.
@pytest.mark.parametrize(
    ("target", "operations", "result"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["a", "c"]}, [{"op": "add", "path": "/foo/1", "value": "b"}], {"foo": ["a", "b", "c"]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["a", "b", "c"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["a", "c"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        ({"foo": [1, 2, 3]}, [{"op": "move", "from": "/foo/0", "path": "/foo/2"}], {"foo": [2, 3, 1]}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        (
            {"baz": "qux", "foo": ["a", 2]},
            [{"op": "test", "path": "/foo/1", "value": 2}],
            {"baz": "qux", "foo": ["a", 2]},
        ),
        ({"foo": "bar"}, [{"op": "add", "path": "/child", "value": {"g": {}}}], {"foo": "bar", "child": {"g": {}}}),
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "q", "xyz": 1}], {"foo": "bar", "baz": "q"}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["x"]}], {"foo": ["bar", ["x"]]}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"a": 1}, [], {"a": 1}),
    ],
)
def test_a_json_patch_does_what_rfc_6902_shows(target: Any, operations: Any, result: Any) -> None:
    assert json_patched(target, *operations) == result


def test_a_label_whose_key_has_a_slash_is_reached_by_its_escape() -> None:
    live = {"metadata": {"labels": {"app.kubernetes.io/name": "a"}}}
    operation = {"op": "replace", "path": "/metadata/labels/app.kubernetes.io~1name", "value": "b"}
    assert json_patched(live, operation) == {"metadata": {"labels": {"app.kubernetes.io/name": "b"}}}


def refused(live: dict[str, Any], *operations: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        json_patched(live, *operations)
    return caught.value


def test_a_failed_test_is_the_422_that_upstream_gives_and_says_where() -> None:
    live = {"metadata": {"resourceVersion": "7"}}
    status = refused(live, {"op": "test", "path": "/metadata/resourceVersion", "value": "6"}).status()
    assert (status.code, status.reason) == (422, "Invalid")
    assert status.message == "the server rejected our request due to an error in our request"
    (cause,) = status.causes
    assert (cause.field, cause.message) == ("/metadata/resourceVersion", "the value is not the tested one")


def test_true_and_1_are_different_values() -> None:
    assert refused({"a": True}, {"op": "test", "path": "/a", "value": 1}).status().code == 422
    assert json_patched({"a": 1}, {"op": "test", "path": "/a", "value": 1.0}) == {"a": 1}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/missing"},
        {"op": "remove", "path": "/list/7"},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "add", "path": "/missing/x", "value": 1},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "add", "path": "/list/01", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "add", "path": "/text/x", "value": 1},
        {"op": "move", "from": "/missing", "path": "/x"},
        {"op": "move", "from": "/object", "path": "/object/inner"},
        {"op": "copy", "from": "/missing", "path": "/x"},
        {"op": "test", "path": "/missing", "value": None},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/a~2", "value": 1},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "", "value": 1},
    ],
)
def test_an_operation_that_does_not_apply_is_422_and_shows_nothing_of_the_object(operation: dict[str, Any]) -> None:
    live = {"list": [1], "text": "s3cr3t", "object": {"a": "s3cr3t"}}
    status = refused(live, operation).status()
    assert status.code == 422
    assert operation["path"] in status.causes[0].field
    assert "s3cr3t" not in str(status.to_dict())


@pytest.mark.parametrize(
    "operations",
    [
        {"op": "add", "path": "/a", "value": 1},
        "x",
        None,
        [1],
        [[]],
        [{}],
        [{"op": "add"}],
        [{"op": 1, "path": "/a"}],
        [{"op": "add", "path": 1, "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "jump", "path": "/a"}],
        [{"op": "move", "path": "/a"}],
        [{"op": "copy", "path": "/a", "from": 5}],
        [{"op": "test", "path": "/a"}],
    ],
)
def test_what_is_no_json_patch_is_a_bad_request(operations: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        patched(JSON_PATCH, operations, {"a": 1})
    assert str(caught.value).startswith("error decoding patch: ")


def test_too_many_operations_are_413_and_the_limit_is_named() -> None:
    status = refused({"a": 1}, *[{"op": "test", "path": "/a", "value": 1}] * 10_001).status()
    assert status.code == 413
    assert "10000, got 10001" in status.message


def test_copies_that_multiply_are_refused_before_they_fill_the_memory() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(40)]
    status = refused({"a": {"text": "x" * 1000}}, *doubling).status()
    assert status.code == 422
    assert "copies" in status.causes[0].message


def test_operations_that_nest_ever_deeper_are_refused() -> None:
    nested: Any = {}
    for _ in range(90):
        nested = {"a": nested}
    deeper = [{"op": "add", "path": "/a" * (90 * step + 1), "value": nested} for step in range(4)]
    with pytest.raises(BadRequest, match="deep"):
        json_patched({}, *deeper)


POINTERS = st.lists(st.sampled_from(["a", "b", "0", "1", "-", "~0", "~1", ""]), max_size=4).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
OPERATIONS = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": POINTERS},
    optional={"from": POINTERS, "value": JSON_VALUES},
)


@given(OBJECTS, st.lists(OPERATIONS, max_size=5))
def test_random_operations_apply_or_are_refused(live: Any, operations: Any) -> None:
    try:
        assert isinstance(patched(JSON_PATCH, operations, live), dict)
    except ApiError as error:
        code = error.status().code
    else:
        code = 200
    assert code in {200, 400, 422}
