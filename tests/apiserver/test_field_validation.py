"""Fields that a builtin kind does not have, and fields given twice: refused, warned of or passed over in silence."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.checks.fieldvalidation import drop_unknown, duplicate_fields
from kplane_apiserver.kinds import builtin_kinds

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEPLOYMENT = builtin_kinds()["apps", "v1", "deployments"]


def deployment(**spec):
    container = {"name": "c", "image": "i", "imagge": "j"}
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def test_strict_refuses_unknown_fields_and_names_each(cluster):
    answer = cluster.post(DEPLOYMENTS, deployment(foo=1), fieldValidation="Strict")
    assert answer.status_code == 400
    assert answer.json()["message"] == (
        'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: '
        'unknown field "spec.template.spec.containers[0].imagge", unknown field "spec.foo"'
    )
    assert cluster.get(f"{DEPLOYMENTS}/d").status_code == 404


def test_warnings_are_the_default_and_unknown_fields_are_never_stored(cluster):
    answer = cluster.post(DEPLOYMENTS, deployment(foo=1))
    assert answer.status_code == 201
    warnings = answer.headers.get_list("warning")
    assert '299 - "unknown field \\"spec.foo\\""' in warnings
    stored = cluster.get(f"{DEPLOYMENTS}/d").json()
    assert "foo" not in stored["spec"]
    assert stored["spec"]["template"]["spec"]["containers"] == [{"name": "c", "image": "i"}]


def test_ignore_says_nothing(cluster):
    answer = cluster.post(DEPLOYMENTS, deployment(foo=1), fieldValidation="Ignore")
    assert (answer.status_code, answer.headers.get("warning")) == (201, None)


def test_no_name_that_a_client_sends_breaks_the_header_of_a_warning(cluster):
    odd = "a\r\nset-cookie: x\0\x1f\x7f\u2028b"
    answer = cluster.post(DEPLOYMENTS, deployment(**{odd: 1}))
    assert answer.status_code == 201
    assert "set-cookie" not in answer.headers
    assert '299 - "unknown field \\"spec.a  set-cookie: x   ?b\\""' in answer.headers.get_list("warning")


@pytest.mark.parametrize(
    "names", [[f"x{number}" for number in range(500)], ["y" * 100_000], ["z" * 900 + str(n) for n in range(50)]]
)
def test_warnings_stay_within_what_clients_read(cluster, names):
    """Python's http.client, for one, takes a hundred headers of 64 KiB."""
    answer = cluster.post(DEPLOYMENTS, deployment(**dict.fromkeys(names, 1)))
    assert answer.status_code == 201
    warnings = answer.headers.get_list("warning")
    assert 0 < len(warnings) <= 64
    assert sum(map(len, warnings)) < 8192


@pytest.mark.parametrize("kind", ["merge-patch+json", "strategic-merge-patch+json"])
def test_a_strict_patch_is_refused_as_invalid(cluster, kind):
    cluster.post(DEPLOYMENTS, deployment())
    answer = cluster.patch(f"{DEPLOYMENTS}/d", {"spec": {"foo": 1}}, kind, fieldValidation="Strict")
    assert answer.status_code == 422
    assert 'strict decoding error: unknown field "spec.foo"' in answer.json()["message"]
    assert cluster.patch(f"{DEPLOYMENTS}/d", {"spec": {"replicas": 2}}, kind, fieldValidation="Strict").is_success


def test_strict_refuses_a_field_that_is_given_twice(cluster):
    body = b'{"metadata":{"name":"c"},"data":{"a":"1","b":"2","a" : "3"}}'
    path = "/api/v1/namespaces/default/configmaps"
    headers = {"content-type": "application/json"}
    strict = cluster.request("POST", path, content=body, headers=headers, params={"fieldValidation": "Strict"})
    assert strict.status_code == 400
    assert strict.json()["message"].endswith('strict decoding error: duplicate field "data.a"')
    warned = cluster.request("POST", path, content=body.replace(b'" :', b'":'), headers=headers)
    assert warned.headers["warning"] == '299 - "duplicate field \\"data.a\\""'
    assert warned.json()["data"] == {"a": "3", "b": "2"}


def test_an_unknown_mode_is_refused(cluster):
    answer = cluster.post(DEPLOYMENTS, deployment(), fieldValidation="Loud")
    assert answer.status_code == 422
    assert 'supported values: "Ignore", "Strict", "Warn"' in answer.json()["message"]


def test_maps_and_free_form_json_may_hold_anything():
    document = {
        "metadata": {"labels": {"any": "v"}, "annotations": {"x/y": "z"}},
        "spec": {
            "template": {
                "spec": {"nodeSelector": {"a": "b"}, "containers": [{"resources": {"limits": {"x/gpu": "1"}}}]}
            }
        },
    }
    before = json.dumps(document)
    assert drop_unknown(DEPLOYMENT, document) == []
    assert json.dumps(document) == before


def test_texts_that_look_like_fields_are_not_counted_as_such():
    body = b'{"a":"\\":\\":","b":[{"c":1},{"c":2,"c":3}]}'
    assert duplicate_fields(json.loads(body), body) == ['duplicate field "b[1].c"']


# Names and texts that share what the quick look counts, in the spellings that JSON has for them.
_TEXTS = st.sampled_from(["a", "b", ":", '\\":', "\\u003a", "\\u003A", "\\\\u003a", '\\"', "\\u0022:", "\\/", "é"])
_SCALARS = st.one_of(_TEXTS.map('"{}"'.format), st.sampled_from(["1", "null", "-0.0"]))


def _members(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = st.sampled_from(['"a"', '"b"', '"\\u0061"', '"a:"', '"a\\u003a"', '"a\\":"'])
    pairs = st.tuples(names, st.sampled_from(["", " ", "\n"]), values).map(lambda pair: f"{pair[0]}{pair[1]}:{pair[2]}")
    return st.lists(pairs, max_size=4).map(lambda members: "{" + ",".join(members) + "}")


def _values(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return _members(inner) | st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")


@given(_members(st.recursive(_SCALARS, _values, max_leaves=8)))
def test_a_field_given_twice_is_found_whatever_else_is_in_the_body(text):
    repeated = 0

    def count(pairs: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal repeated
        repeated += len(pairs) - len(dict(pairs))
        return dict(pairs)

    json.loads(text, object_pairs_hook=count)
    body = text.encode()
    found = duplicate_fields(msgspec.json.decode(body), body)
    assert bool(found) == bool(repeated)
