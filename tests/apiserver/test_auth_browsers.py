"""Web pages on the same machine: what a server without authentication refuses; its own clients are untouched."""

import pytest

from kplane_apiserver.credentials.browsers import Browsers
from kplane_apiserver.credentials.tokens import TokenLine, Tokens
from kplane_core.errors import ApiError

MAPS = "/clusters/pages/control-plane/api/v1/namespaces/default/configmaps"


@pytest.fixture
def open_server(serve):
    return serve(browsers=Browsers(["devbox"]))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost"},
        {"host": "LOCALHOST:1"},
        {"host": "a.localhost:8080"},
        {"host": "[::1]:8080"},
        {"host": "10.0.0.1:8080"},
        {"host": "devbox:8080"},
        {"host": "localhost:8080", "origin": "http://localhost:8080"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin"},
    ],
)
def test_its_own_clients_are_let_in(open_server, headers):
    assert open_server.client.get(MAPS, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"host": "localhost:8080", "origin": "http://localhost:3000"},
        {"host": "evil.example:8080"},
        {"host": "evil.example:8080", "origin": "http://evil.example:8080"},
        {"host": "localhost.evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "devbox.evil.example"},
        {"host": "[::1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_pages_of_others_are_refused_and_make_nothing(open_server, headers, method):
    answer = open_server.client.request(method, MAPS, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["reason"] == "Forbidden"
    assert "access-control-allow-origin" not in answer.headers
    assert open_server.keys("/clusters/pages/") == []


def test_a_refused_host_stays_refused_and_a_known_one_known():
    browsers = Browsers([])
    for _ in range(3):
        browsers.check(b"localhost", b"", b"")
        with pytest.raises(ApiError, match="not a name of this server"):
            browsers.check(b"evil.example", b"", b"")


def test_many_host_headers_take_no_room():
    browsers = Browsers([])
    for number in range(1000):
        browsers.check(b"localhost:%d" % number, b"", b"")
    assert len(browsers._known) <= 64


def test_a_server_that_others_may_reach_takes_every_name_but_no_foreign_origin():
    browsers = Browsers(None)
    browsers.check(b"kplane.example", b"https://kplane.example", b"")
    with pytest.raises(ApiError, match="another origin"):
        browsers.check(b"kplane.example", b"https://evil.example", b"")


def test_a_page_with_a_token_is_a_client_like_any_other(serve):
    server = serve(browsers=Browsers([]), authenticator=Tokens([TokenLine("t", "alice")]), anonymous_auth=True)
    page = {"origin": "http://evil.example"}
    assert server.client.get(MAPS, headers={**page, "authorization": "Bearer t"}).status_code == 200
    assert server.client.get(MAPS, headers=page).status_code == 403
    assert server.client.get(MAPS).status_code == 200
