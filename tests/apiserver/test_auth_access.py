"""The gate of the server: who is let in, as whom, what a stranger learns (nothing), and that he makes no cluster."""

import pytest

from kplane_apiserver.authorization.questions import AlwaysAllow, Attributes, Decision, not_allowed
from kplane_apiserver.credentials.tokens import AdminTokens, TokenLine, Tokens
from kplane_apiserver.identity import ANONYMOUS, User

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
UNAUTHORIZED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "Unauthorized",
    "reason": "Unauthorized",
    "code": 401,
}

TOKENS = Tokens(
    [
        TokenLine("alice-token", "alice", "1", ("dev",)),
        TokenLine("c1-token", "bob", cluster="c1"),
        TokenLine("root-token", "rita", cluster="root"),
        TokenLine("master-token", "max", groups=("system:masters",)),
        TokenLine("reader-token", "rudi", groups=("kplane:cross-cluster-readers",)),
    ]
)


def path_of(cluster, path=""):
    return f"/clusters/{cluster}/control-plane{path}"


def bearer(token):
    return {"authorization": f"Bearer {token}"}


class Rules:
    """An authorizer that a test writes: allows what a function says, and remembers what it was asked."""

    def __init__(self):
        self.asked = []
        self.allows = lambda _asked: True

    def authorize(self, attributes: Attributes) -> Decision:
        self.asked.append(attributes)
        return Decision(self.allows(attributes), "")

    def rules_for(self, user, cluster, namespace):
        return AlwaysAllow().rules_for(user, cluster, namespace)


@pytest.fixture
def rules(monkeypatch):
    """The authorizer of every server that the test starts."""
    found = Rules()
    monkeypatch.setattr("kplane_apiserver.server.AlwaysAllow", lambda: found)
    return found


@pytest.fixture
def secured(serve):
    """A server that asks for a token and then allows everything."""
    return serve(authenticator=TOKENS)


@pytest.fixture
def ruled(rules, serve):
    """A server that asks for a token and then asks `rules`."""
    return serve(authenticator=TOKENS, anonymous_auth=True)


# --- who is let in ----------------------------------------------------------------------------------------------------


NO_GOOD = [
    {"authorization": ""},
    {"authorization": "Bearer"},
    bearer("wrong"),
    bearer("alice-token2"),
    {"authorization": "Basic alice-token"},
    {"authorization": "alice-token"},
]


@pytest.mark.parametrize(
    ("headers", "anonymous"), [({}, False), *((one, anonymous) for one in NO_GOOD for anonymous in (False, True))]
)
def test_without_a_good_token_the_answer_is_401_and_no_more(serve, headers, anonymous):
    server = serve(authenticator=TOKENS, anonymous_auth=anonymous)
    for path in (PODS, path_of("new", PODS), path_of("root", "/api"), path_of("*", PODS), "/metrics", "/version"):
        answer = server.client.get(path, headers=headers)
        assert answer.status_code == 401, path
        assert answer.json() == UNAUTHORIZED
        assert answer.headers["www-authenticate"] == 'Bearer realm="kplane"'
    assert server.keys("/clusters/new/") == []


def test_a_token_lets_its_user_in_everywhere_or_in_its_one_cluster(secured):
    assert secured.client.get(path_of("c1", PODS), headers=bearer("alice-token")).status_code == 200
    assert secured.client.get(PODS, headers=bearer("alice-token")).status_code == 200
    assert secured.client.get(path_of("c1", PODS), headers=bearer("c1-token")).status_code == 200
    for path in (PODS, path_of("root", PODS), path_of("c2", PODS), path_of("c10", PODS), path_of("*", PODS)):
        answer = secured.client.get(path, headers=bearer("c1-token"))
        assert answer.json() == UNAUTHORIZED, path
    assert secured.client.get(PODS, headers=bearer("root-token")).status_code == 200
    assert secured.client.get(path_of("root", PODS), headers=bearer("root-token")).status_code == 200


def test_a_stranger_cannot_tell_which_clusters_there_are(secured):
    secured.client.get(path_of("known", PODS), headers=bearer("alice-token"))
    for token in ("wrong", "c1-token"):
        answers = [secured.client.get(path_of(one, PODS), headers=bearer(token)) for one in ("known", "unknown")]
        assert answers[0].content == answers[1].content
        assert {answer.status_code for answer in answers} == {401}
    assert secured.keys("/clusters/unknown/") == []


def test_the_first_of_two_authorization_headers_counts(secured):
    headers = [("authorization", "Bearer wrong"), ("authorization", "Bearer alice-token")]
    assert secured.client.get(PODS, headers=headers).status_code == 401
    assert secured.client.get(PODS, headers=list(reversed(headers))).status_code == 200


# --- health -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", path_of("root", "/livez")])
def test_a_load_balancer_needs_no_token_for_the_health_of_the_server(secured, path):
    assert secured.client.get(path).text == "ok"
    assert secured.client.head(path).status_code == 200
    for more in ("?verbose", "/ping"):
        assert secured.client.get(f"{path}{more}").status_code == 401
        assert secured.client.get(f"{path}{more}", headers=bearer("alice-token")).status_code == 200
    assert secured.client.get(path, headers=bearer("wrong")).status_code == 401
    assert secured.client.post(path).status_code == 401


def test_the_health_of_another_cluster_takes_a_token(secured):
    assert secured.client.get(path_of("c1", "/livez")).status_code == 401
    assert secured.keys("/clusters/c1/") == []


# --- anonymous requests -----------------------------------------------------------------------------------------------


def test_a_request_without_a_credential_can_be_that_of_the_anonymous_user(serve):
    server = serve(authenticator=TOKENS, anonymous_auth=True)
    answer = server.client.post(WHOAMI, json={})
    assert answer.json()["status"]["userInfo"] == ANONYMOUS.to_dict()
    assert server.client.post(WHOAMI, json={}, headers=bearer("wrong")).status_code == 401


def test_an_anonymous_request_makes_no_cluster(serve):
    server = serve(authenticator=TOKENS, anonymous_auth=True)
    assert server.client.get(path_of("new", "/version")).status_code == 200
    refused = server.client.get(path_of("new", MAPS))
    assert refused.status_code == 403
    assert refused.json()["message"].startswith('configmaps is forbidden: User "system:anonymous" cannot list')
    assert server.client.post(path_of("new", MAPS), json={"metadata": {"name": "a"}}).status_code == 403
    assert server.keys("/clusters/new/") == []
    assert server.client.get(path_of("new", MAPS), headers=bearer("alice-token")).status_code == 200
    assert server.client.get(path_of("new", MAPS)).status_code == 200, "it exists now"


# --- what is allowed --------------------------------------------------------------------------------------------------


HERE = 'in API group "" in the namespace "default"'


@pytest.mark.parametrize(
    ("method", "path", "subject", "detail"),
    [
        ("GET", PODS, "pods is ", f'list resource "pods" {HERE}'),
        ("GET", f"{PODS}/web", 'pods "web" is ', f'get resource "pods" {HERE}'),
        ("GET", "/api/v1/pods", "pods is ", 'list resource "pods" in API group "" at the cluster scope'),
        (
            "PUT",
            "/apis/apps/v1/namespaces/x/deployments/d/status",
            'deployments.apps "d" is ',
            'update resource "deployments/status" in API group "apps" in the namespace "x"',
        ),
        ("GET", f"{PODS}?watch=1", "pods is ", f'watch resource "pods" {HERE}'),
        ("GET", f"{PODS}/web?watch=1", 'pods "web" is ', f'watch resource "pods" {HERE}'),
        ("GET", f"{PODS}?fieldSelector=metadata.name%3Dweb", 'pods "web" is ', f'list resource "pods" {HERE}'),
        ("DELETE", MAPS, "configmaps is ", f'deletecollection resource "configmaps" {HERE}'),
        (
            "GET",
            "/api/v1/namespaces/x",
            'namespaces "x" is ',
            'get resource "namespaces" in API group "" in the namespace "x"',
        ),
        ("GET", "/foo/bar", "", 'get path "/foo/bar"'),
        ("GET", "/snapshot", "", 'get path "/snapshot"'),
        ("POST", "/metrics", "", 'post path "/metrics"'),
    ],
)
def test_a_refusal_is_worded_as_upstream_words_it(ruled, rules, method, path, subject, detail):
    rules.allows = lambda _: False
    answer = ruled.client.request(method, path_of("c1", path), headers=bearer("c1-token"))
    assert answer.status_code == 403
    assert answer.json()["message"] == f'{subject}forbidden: User "bob" cannot {detail}'
    assert answer.json()["reason"] == "Forbidden"
    assert ruled.keys("/clusters/c1/") == [], "who may not even do that makes no cluster"
    (asked,) = rules.asked
    assert (asked.cluster, asked.user.name) == ("c1", "bob")


@pytest.mark.parametrize(("path", "verb"), [(PODS, "list"), (f"{PODS}/web", "get")])
@pytest.mark.parametrize("query", ["", "?watch=1", "?watch=", "?watch=0&watch=1", "?watch=1&watch=0"])
def test_what_is_asked_is_what_is_done(ruled, rules, path, verb, query):
    """A HEAD never watches, and of a repeated parameter the first counts for both."""
    rules.allows = lambda asked: asked.verb == "create"  # the cluster
    for method in ("GET", "HEAD"):
        watches = method == "GET" and query.startswith("?watch") and "watch=0&" not in query
        assert (
            ruled.client.request(method, path_of("c1", path + query), headers=bearer("alice-token")).status_code == 403
        )
        assert rules.asked[-1].verb == ("watch" if watches else verb)


def test_the_reason_of_the_authorizer_stands_behind_the_refusal():
    asked = Attributes(User("bob"), "c1", "get", path="/foo")
    assert not_allowed(asked, "because").status().message == 'forbidden: User "bob" cannot get path "/foo": because'


def test_an_apply_that_creates_needs_create_too(ruled, rules):
    apply = {**bearer("alice-token"), "content-type": "application/apply-patch+yaml"}
    url = path_of("c1", f"{MAPS}/a?fieldManager=t")
    body = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}'
    ruled.client.get(path_of("c1", MAPS), headers=bearer("alice-token"))
    rules.allows = lambda asked: asked.verb != "create"
    refused = ruled.client.patch(url, content=body, headers=apply)
    assert refused.status_code == 403
    assert refused.json()["message"] == (
        'configmaps "a" is forbidden: User "alice" cannot create resource "configmaps" in API group "" in the '
        'namespace "default"'
    )
    rules.allows = lambda _: True
    assert ruled.client.patch(url, content=body, headers=apply).status_code == 201
    rules.allows = lambda asked: asked.verb != "create"
    assert ruled.client.patch(url, content=body, headers=apply).status_code == 200


def test_a_cluster_is_made_only_by_who_may_create_it(ruled, rules):
    rules.allows = lambda asked: asked.resource != "clusters"
    assert ruled.client.get(path_of("new", "/version"), headers=bearer("alice-token")).status_code == 200
    assert ruled.client.get(path_of("new", PODS), headers=bearer("alice-token")).status_code == 403
    assert ruled.keys("/clusters/new/") == []
    made = rules.asked[-1]
    assert (made.cluster, made.verb, made.group, made.name) == ("root", "create", "kplane.dev", "new")
    rules.allows = lambda _: True
    assert ruled.client.get(path_of("new", PODS), headers=bearer("alice-token")).status_code == 200


# --- acting as somebody else ------------------------------------------------------------------------------------------


def whoami(server, headers, cluster="c1"):
    return server.client.post(path_of(cluster, WHOAMI), json={}, headers=headers)


@pytest.mark.parametrize(
    ("headers", "groups"),
    [
        ({"impersonate-user": "eve"}, ["system:authenticated"]),
        ({"impersonate-user": "eve", "impersonate-group": "x"}, ["x", "system:authenticated"]),
        ({"impersonate-user": "eve", "impersonate-group": "system:unauthenticated"}, ["system:unauthenticated"]),
        ({"impersonate-user": "system:anonymous"}, ["system:unauthenticated"]),
        (
            {"impersonate-user": "system:serviceaccount:ns:bot"},
            ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
        ),
        ({"impersonate-user": "system:serviceaccount:bot"}, ["system:authenticated"]),
    ],
)
@pytest.mark.parametrize("authenticated", [True, False])
def test_a_request_acts_as_the_user_it_names(serve, headers, groups, authenticated):
    server = serve(authenticator=TOKENS if authenticated else None)
    whoami(server, bearer("alice-token"))  # makes the cluster, which not everybody may
    answer = whoami(server, {**bearer("alice-token"), **headers})
    assert answer.json()["status"]["userInfo"] == {"username": headers["impersonate-user"], "groups": groups}


@pytest.mark.parametrize("group", ["system:authenticated", "kplane:cross-cluster-readers", "system:masters"])
def test_a_stranger_acts_as_nobody_where_all_are_allowed_everything(serve, group):
    """He would pass for a user, and users make clusters."""
    server = serve(authenticator=TOKENS, anonymous_auth=True, cross_cluster_readers=AdminTokens())
    headers = {"impersonate-user": "alice", "impersonate-group": group}
    for cluster in ("new", "*"):
        assert server.client.get(path_of(cluster, MAPS), headers=headers).json() == UNAUTHORIZED
    assert server.keys("/clusters/new/") == []


@pytest.mark.parametrize(
    ("token", "acts_as", "code"),
    [
        ("alice-token", "kplane:cross-cluster-readers", 403),
        ("alice-token", "system:masters", 403),
        ("reader-token", "dev", 403),
        ("reader-token", "kplane:cross-cluster-readers", 200),
        ("master-token", "kplane:cross-cluster-readers", 200),
    ],
)
def test_nobody_reads_across_clusters_by_acting_as_one_who_may(serve, token, acts_as, code):
    server = serve(authenticator=TOKENS, cross_cluster_readers=AdminTokens())
    headers = {**bearer(token), "impersonate-user": "eve", "impersonate-group": acts_as}
    answer = server.client.get(path_of("*", MAPS), headers=headers)
    assert answer.status_code == code
    assert code == 200 or "cannot read across clusters" in answer.json()["message"]


def test_uid_and_extra_fields_are_taken_over(secured):
    headers = [
        ("authorization", "Bearer alice-token"),
        ("Impersonate-User", "jörg".encode()),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-Acme.com%2Fproject", "one"),
        ("Impersonate-Extra-Acme.com%2Fproject", "two"),
    ]
    assert whoami(secured, headers).json()["status"]["userInfo"] == {
        "username": "jörg",
        "uid": "7",
        "groups": ["system:authenticated"],
        "extra": {"acme.com/project": ["one", "two"]},
    }


def test_each_part_of_somebody_else_must_be_allowed(ruled, rules):
    headers = {
        **bearer("alice-token"),
        "impersonate-user": "eve",
        "impersonate-group": "admins",
        "impersonate-uid": "7",
        "impersonate-extra-scopes": "all",
    }
    assert whoami(ruled, headers).status_code == 201
    asked = [one for one in rules.asked if one.verb == "impersonate"]
    assert [(one.group, one.resource, one.subresource, one.name) for one in asked] == [
        ("", "users", "", "eve"),
        ("", "groups", "", "admins"),
        ("authentication.k8s.io", "uids", "", "7"),
        ("authentication.k8s.io", "userextras", "scopes", "all"),
    ]
    assert {(one.user.name, one.cluster) for one in asked} == {("alice", "c1")}
    for resource in ("users", "groups", "uids", "userextras"):
        rules.allows = lambda one, refused=resource: one.resource != refused
        refused = whoami(ruled, headers)
        assert refused.status_code == 403
        assert f'cannot impersonate resource "{resource}' in refused.json()["message"]
    rules.allows = lambda one: one.user.name == "alice"
    assert whoami(ruled, headers).status_code == 403, "what is asked is asked of the other user"


def test_a_service_account_is_impersonated_by_its_own_resource(ruled, rules):
    whoami(ruled, {**bearer("alice-token"), "impersonate-user": "system:serviceaccount:ns:bot"})
    asked = next(one for one in rules.asked if one.verb == "impersonate")
    assert (asked.resource, asked.namespace, asked.name) == ("serviceaccounts", "ns", "bot")


@pytest.mark.parametrize(
    "headers",
    [
        {"impersonate-group": "x"},
        {"impersonate-uid": "7"},
        {"impersonate-extra-x": "y"},
        {"impersonate-user": "", "impersonate-group": "x"},
        {"impersonate-user": b"\xff"},
    ],
)
def test_nobody_is_impersonated_by_half(secured, headers):
    assert whoami(secured, {**bearer("alice-token"), **headers}).status_code == 400


def test_impersonation_lends_no_other_cluster(secured):
    headers = {**bearer("c1-token"), "impersonate-user": "alice", "impersonate-group": "system:masters"}
    assert whoami(secured, headers).status_code == 201
    assert whoami(secured, headers, "c2").status_code == 401
    assert secured.client.get(path_of("*", MAPS), headers=headers).status_code == 401


# --- across clusters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "code"),
    [("master-token", 200), ("reader-token", 200), ("alice-token", 403), ("c1-token", 401), ("wrong", 401), ("", 401)],
)
@pytest.mark.parametrize("anonymous", [False, True])
def test_reading_across_clusters_takes_an_unscoped_token_and_a_group(serve, token, code, anonymous):
    server = serve(authenticator=TOKENS, cross_cluster_readers=AdminTokens(), anonymous_auth=anonymous)
    answer = server.client.get(path_of("*", "/api/v1/configmaps"), headers=bearer(token) if token else {})
    assert answer.status_code == code, answer.text


def test_the_groups_that_read_across_clusters_do_not_turn_it_on(secured):
    assert secured.client.get(path_of("*", "/api/v1/configmaps"), headers=bearer("master-token")).status_code == 403


def test_who_acts_as_somebody_else_reads_across_clusters_as_that_one(serve):
    server = serve(authenticator=TOKENS, cross_cluster_readers=AdminTokens())
    headers = {**bearer("master-token"), "impersonate-user": "eve"}
    assert server.client.get(path_of("*", "/api/v1/configmaps"), headers=headers).status_code == 403


# --- without authentication -------------------------------------------------------------------------------------------


def test_an_open_server_takes_every_credential_and_none(live):
    for headers in ({}, bearer("whatever"), {"authorization": "Basic x"}):
        assert live.client.post(path_of("c1", WHOAMI), json={}, headers=headers).json()["status"]["userInfo"] == (
            ANONYMOUS.to_dict()
        )
