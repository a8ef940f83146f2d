"""However a path is written: with a token of one cluster, nothing of another one comes back, and nothing is made."""

import socket
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kplane_apiserver.credentials.tokens import TokenLine, Tokens

SECRET = b"only-c2-may-see-this"
MAPS = "/api/v1/namespaces/default/configmaps"
OWN = "own-data-of-c1"


@pytest.fixture(scope="module")
def server(live):
    """A server whose cluster c2 holds what a token of c1 must never see."""
    from kplane_apiserver.settings import Settings  # noqa: PLC0415 - beside its use

    tokens = Tokens([TokenLine("t1", "alice", groups=("system:masters",), cluster="c1"), TokenLine("t", "admin")])
    with type(live)(Settings(authenticator=tokens)) as running:
        admin = {"authorization": "Bearer t"}
        secret = SECRET.decode()
        for cluster, name, word in (
            ("c1", "shown", OWN),
            ("c2", "hidden", secret),
            ("c2", "hidden-2", secret),
            ("root", "hidden", secret),
        ):
            url = f"/clusters/{cluster}/control-plane{MAPS}"
            body = {"metadata": {"name": name}, "data": {"word": word}}
            assert running.client.post(url, json=body, headers=admin).status_code == 201
        running.before = len(running.keys(""))
        yield running


def exchange(server, target, host="127.0.0.1"):
    """Ask for a request target exactly as it is written, and return the whole answer."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        head = f"GET {target} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer t1\r\nconnection: close\r\n\r\n"
        connection.sendall(head.encode("utf-8", "surrogateescape"))
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


def test_the_test_sees_what_its_own_cluster_holds(server):
    assert OWN.encode() in exchange(server, f"/clusters/c1/control-plane{MAPS}")
    assert (
        SECRET in server.client.get(f"/clusters/c2/control-plane{MAPS}", headers={"authorization": "Bearer t"}).content
    )


ESCAPES = {
    "/": ["/", "//", "%2f", "%2F", "%252f", "/./", "/../", "/%2e%2e/", "\\", "%5c", "/;/", "/.;/"],
    ".": [".", "%2e", "%2E", "%252e"],
    "c": ["c", "C", "%63", "%43", "%2563", "\N{CYRILLIC SMALL LETTER ES}"],
    "2": ["2", "%32", "%2532", "2%00", "2%20", "2%0d%0a", "\N{SUPERSCRIPT TWO}"],
    "*": ["*", "%2a", "%2A"],
}


def disguised(text):
    """Return a strategy for ways to write a text."""
    return st.tuples(*(st.sampled_from(ESCAPES.get(one, [one])) for one in text)).map("".join)


OWN_PREFIX = "/clusters/c1/control-plane"
PARTS = [
    OWN_PREFIX,
    "/clusters/c2/control-plane",
    "/clusters/*/control-plane",
    "/clusters/root/control-plane",
    "/clusters/c1/../c2/control-plane",
    "/clusters/c2",
    "/clusters",
    "/control-plane",
    "/..",
    "/../..",
    "/c2",
]
TAILS = [
    MAPS,
    "/api/v1/configmaps",
    f"{MAPS}/hidden",
    "/snapshot",
    "/apis/kplane.dev/v1/clusters/c2/snapshot",
]
prefixes = st.lists(st.sampled_from(PARTS).flatmap(lambda part: st.one_of(st.just(part), disguised(part))), max_size=4)
queries = st.sampled_from(
    ["", "?limit=1", "?cluster=c2", "?fieldSelector=metadata.name%3Dx", "?continue=x", "#/../c2", "?watch=0"]
)
origins = st.sampled_from(["", "", "http://127.0.0.1", "http://c2", "//c2", "http://x@c2:80"])
hosts = st.sampled_from(["127.0.0.1", "c2", "c2/clusters/c2/control-plane", "127.0.0.1/../c2"])


@example("", ["/clusters/c1/control-plane", "/clusters/c2/control-plane"], MAPS, "", "127.0.0.1")
@example("", ["/clusters/c1/control-plane", "/clusters/c1/control-plane", "/clusters/c2/control-plane"], MAPS, "", "c2")
@example("", ["/clusters/c1/control-plane/%2e%2e/%2e%2e/c2/control-plane"], MAPS, "", "c2")
@example("", ["/clusters/c1%2fcontrol-plane%2f..%2f..%2fc2/control-plane"], MAPS, "", "c2")
@example("http://c2", ["/clusters/c2/control-plane"], MAPS, "", "c2")
@example("", [], MAPS, "", "c1")
@hypothesis_settings(max_examples=300, deadline=None)
@given(
    origins,
    prefixes,
    st.sampled_from(TAILS).flatmap(lambda tail: st.one_of(st.just(tail), disguised(tail))),
    queries,
    hosts,
)
def test_nothing_of_another_cluster_comes_back(server, origin, prefix, tail, query, host):
    answer = exchange(server, f"{origin}{''.join(prefix)}{tail}{query}", host)
    assert SECRET not in answer
    assert b'"c2"' not in answer
    assert len(server.keys("")) == server.before, "whatever it named, no cluster was made"


@pytest.mark.parametrize(
    "header", ["x-cluster", "x-forwarded-host", "x-original-url", "x-rewrite-url", "x-forwarded-prefix"]
)
def test_no_header_chooses_the_cluster(server, header):
    for value in ("c2", "/clusters/c2/control-plane"):
        headers = {"authorization": "Bearer t1", header: value}
        answer = server.client.get(f"{OWN_PREFIX}{MAPS}", headers=headers)
        assert OWN in answer.text
        assert SECRET.decode() not in answer.text


def test_a_continue_token_of_one_cluster_is_no_good_in_another(server):
    """A page's token names a place in the keys; that place lies in the cluster of the path, whatever it says."""
    admin = {"authorization": "Bearer t"}
    page = server.client.get(f"/clusters/c2/control-plane{MAPS}?limit=1", headers=admin).json()
    token = page["metadata"]["continue"]
    answer = server.client.get(
        f"{OWN_PREFIX}{MAPS}", params={"continue": token}, headers={"authorization": "Bearer t1"}
    )
    assert SECRET.decode() not in answer.text
