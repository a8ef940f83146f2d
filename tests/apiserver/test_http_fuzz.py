"""Whatever a client sends: an answer, never an internal error, and a server that goes on."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kplane_apiserver.server import ApiServer
from kplane_core.engine.factory import EngineConnection
from kplane_memory.engine import MemoryEngine

API = "/clusters/c1/control-plane/api/v1"
GROUPS = "/clusters/c1/control-plane/apis"
DEFINITIONS = f"{GROUPS}/apiextensions.k8s.io/v1/customresourcedefinitions"

_LEAF = st.sampled_from([None, True, 0, -1, 1.5, "", "x", "..", "a/b", "kubernetes", "2020-01-01T00:00:00Z", "é\0"])
_JSON = st.recursive(
    _LEAF,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "name", "$patch"]), inner, max_size=2)
    ),
    max_leaves=4,
)
_METADATA = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("x") | _LEAF,
        "generateName": _LEAF,
        "namespace": st.just("default") | _LEAF,
        "labels": _JSON,
        "annotations": _JSON,
        "finalizers": _JSON,
        "ownerReferences": _JSON,
        "uid": _LEAF,
        "resourceVersion": _LEAF,
        "generation": _LEAF,
        "deletionTimestamp": _LEAF,
        "managedFields": _JSON,
    },
)
_SPEC = _JSON | st.fixed_dictionaries(
    {},
    optional={
        "finalizers": _JSON,
        "replicas": _LEAF,
        "selector": _JSON,
        "names": _JSON,
        "versions": _JSON,
        "group": _LEAF,
        "template": _JSON,
    },
)
_DOCUMENT = st.fixed_dictionaries(
    {},
    optional={
        "metadata": _METADATA | _JSON,
        "apiVersion": st.just("v1") | _LEAF,
        "kind": _LEAF,
        "spec": _SPEC,
        "status": _JSON,
        "data": _JSON,
        "stringData": _JSON,
        "preconditions": _JSON,
        "dryRun": _JSON,
        "propagationPolicy": _JSON,
    },
)
_BODY = _DOCUMENT | _JSON | st.lists(st.fixed_dictionaries({"op": _LEAF, "path": _LEAF}, optional={"value": _JSON}))
_COLLECTION = st.sampled_from(
    [
        f"{API}/namespaces",
        f"{API}/namespaces/default/configmaps",
        f"{API}/namespaces/default/secrets",
        f"{API}/namespaces/default/events",
        f"{API}/namespaces/default/pods",
        f"{GROUPS}/apps/v1/namespaces/default/deployments",
        DEFINITIONS,
        "/apis/kplane.dev/v1/clusters",
    ]
)
_PATCH_TYPE = st.sampled_from(
    [
        "application/json",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/yaml",
        "",
    ]
)
_QUERY = st.dictionaries(
    st.sampled_from(
        [
            "limit",
            "continue",
            "resourceVersion",
            "resourceVersionMatch",
            "labelSelector",
            "fieldSelector",
            "dryRun",
            "fieldManager",
            "force",
            "includeObject",
            "sendInitialEvents",
            "propagationPolicy",
        ]
    ),
    st.sampled_from(["", "0", "1", "-1", "x", "All", "true", "a=b", "metadata.name=x", "Exact", "Object", "é\0"]),
    max_size=3,
)
_REQUEST = st.tuples(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    _COLLECTION,
    st.sampled_from(["", "/x", "/x/status", "/x/scale", "/x/finalize"]),
    _PATCH_TYPE,
    _BODY,
    _QUERY,
)


async def _run(requests: list[tuple[Any, ...]]) -> None:
    connection = EngineConnection(MemoryEngine())
    api = ApiServer(connection)
    await api.start()
    transport = httpx.ASGITransport(app=api.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        for method, path, rest, content_type, body, query in requests:
            headers = {"content-type": content_type} if content_type else {}
            content = json.dumps(body).encode()
            answer = await client.request(method, path + rest, content=content, headers=headers, params=query)
            assert answer.status_code < 500 or answer.status_code == 504, (method, path + rest, body, answer.text)
            if answer.status_code >= 400:
                assert answer.json()["kind"] == "Status"
            elif "dryRun" not in query and method in {"POST", "PUT", "PATCH"}:
                # What was accepted can be read, listed as a table and deleted again.
                name = answer.json()["metadata"]["name"]
                assert name
        for path in ("/api/v1/configmaps", "/api/v1/namespaces", "/api/v1/secrets", "/api/v1/pods", "/api/v1/events"):
            accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
            table = await client.get("/clusters/c1/control-plane" + path, headers=accept)
            assert table.status_code == 200, table.text
    await api.aclose()
    await connection.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_REQUEST, min_size=1, max_size=12))
def test_no_request_is_an_internal_error(requests):
    asyncio.run(_run(requests))
