"""Users, roles and bindings for the tests of RBAC."""

import types
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from kplane_apiserver.identity import AUTHENTICATED, MASTERS, User
from kplane_apiserver.settings import Settings

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
ROLE_BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_ROLE_BINDINGS = f"{RBAC}/clusterrolebindings"
ADMIN = "admin"


class Names:
    """An authenticator for which a token is the user's name and groups, as in `alice,dev`; `admin` may do all."""

    def user_of(self, token: bytes, _cluster: str, /) -> User | None:
        name, *groups = token.decode().split(",")
        if not name or name == "nobody":
            return None
        masters = (MASTERS,) if name == ADMIN else ()
        return User(name, groups=(*groups, *masters, AUTHENTICATED))


class As:
    """A virtual cluster as a user sees it; calling it gives the same cluster as another user sees it."""

    def __init__(self, cluster: Any, token: str) -> None:
        self.cluster = cluster
        self.headers = {"authorization": f"Bearer {token}"}

    def __call__(self, token: str) -> "As":
        return As(self.cluster, token)

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        headers = {**self.headers, **given.pop("headers", {})}
        answer: httpx.Response = self.cluster.request(method, path, headers=headers, **given)
        return answer

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.request("GET", path, params=query or None)

    def post(self, path: str, document: Any, **query: Any) -> httpx.Response:
        return self.request("POST", path, json=document, params=query or None)

    def put(self, path: str, document: Any) -> httpx.Response:
        return self.request("PUT", path, json=document)

    def delete(self, path: str) -> httpx.Response:
        return self.request("DELETE", path)

    def patch(self, path: str, document: Any, kind: str = "merge-patch+json", **query: Any) -> httpx.Response:
        headers = {"content-type": f"application/{kind}"}
        return self.request("PATCH", path, json=document, headers=headers, params=query or None)

    def made(self, path: str, document: Any) -> Any:
        answer = self.post(path, document)
        assert answer.status_code == 201, answer.text
        return answer.json()


def rule(verbs: str, resources: str = "", groups: str = "", names: str = "", paths: str = "") -> dict[str, Any]:
    """Return a rule from texts with commas."""
    fields = {"resources": resources, "resourceNames": names, "nonResourceURLs": paths}
    found: dict[str, Any] = {"verbs": verbs.split(",")}
    found.update({name: text.split(",") for name, text in fields.items() if text})
    return {**found, "apiGroups": groups.split(",")} if resources else found


def role(name: str, *rules: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    labels = fields.pop("labels", None)
    return {"metadata": {"name": name, **({"labels": labels} if labels else {})}, "rules": list(rules), **fields}


def binding(name: str, ref: str, *subjects: str) -> dict[str, Any]:
    """Return a binding; `ref` as in `ClusterRole/edit`, subjects as in `User/alice`, `ServiceAccount/ns/name`."""
    kind, _, role_name = ref.partition("/")
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role_name},
        "subjects": [_subject(one) for one in subjects],
    }


def _subject(text: str) -> dict[str, Any]:
    kind, _, name = text.partition("/")
    if kind == "ServiceAccount":
        namespace, _, name = name.partition("/")
        return {"kind": kind, "name": name, **({"namespace": namespace} if namespace else {})}
    return {"kind": kind, "name": name, "apiGroup": GROUP}


@pytest.fixture(scope="session")
def strict(live: Any) -> Iterator[Any]:
    """A server with authentication and RBAC."""
    with type(live)(Settings(authenticator=Names(), authorization_mode="RBAC")) as server:
        yield server


@pytest.fixture
def admin(strict: Any) -> As:
    """A fresh cluster as its administrator sees it; `admin("alice")` is how alice does."""
    found = As(strict.cluster(), ADMIN)
    assert found.get("/api/v1/namespaces").status_code == 200
    return found


@pytest.fixture(scope="session")
def make() -> Any:
    """What makes rules, roles and bindings; and the paths at which they are."""
    names = {
        "rule": rule,
        "role": role,
        "binding": binding,
        "names": Names(),
        "roles": ROLES,
        "bindings": ROLE_BINDINGS,
    }
    return types.SimpleNamespace(**names, cluster_roles=CLUSTER_ROLES, cluster_bindings=CLUSTER_ROLE_BINDINGS)
