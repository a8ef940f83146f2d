"""Decisions over random roles and bindings are those of a naive evaluator that reads the objects one by one."""

import itertools
import json
import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kplane_apiserver.authorization.questions import Attributes
from kplane_apiserver.authorization.rbac.authorizer import RbacAuthorizer
from kplane_apiserver.authorization.rbac.defaults import base, defaults
from kplane_apiserver.authorization.rbac.escalation import Escalation
from kplane_apiserver.authorization.rbac.policies import PLURALS, Policies
from kplane_apiserver.identity import User
from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.storing.stores import StoreSet
from kplane_apiserver.wire.routes import Route
from kplane_core.engine.factory import EngineConnection
from kplane_core.errors import ApiError
from kplane_core.storage.interface import ObjectList, StoredObject
from kplane_memory.engine import MemoryEngine

CLUSTERS = ("c1", "c1", "c1", "root")  # most of what there is, is in one of them
NAMESPACES = ("a", "b")
NAMES = ("r1", "r2", "view")
LABELS = ({}, {"x": "1"}, {"x": "2"}, {"x": "1", "y": "1"})
VERBS, GROUPS, RESOURCES = ("get", "list", "*"), ("", "apps", "*"), ("pods", "pods/log", "*/log", "*", "nodes")
OBJECTS, PATHS = ("o1", "o2", ""), ("/a", "/a/*", "/a/b", "*", "/*")
USERS = ("alice", "alice", "system:serviceaccount:a:robot")
USER_GROUPS = ((), ("dev", "system:authenticated"), ("dev", "system:authenticated"))
SELECTORS = (
    *({"matchLabels": labels} for labels in LABELS),
    {"matchExpressions": [{"key": "x", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["1"]}]},
)
SUBJECTS = (
    {"kind": "User", "name": "alice"},
    {"kind": "User", "name": "system:serviceaccount:a:robot"},
    {"kind": "User", "name": "bob"},
    {"kind": "Group", "name": "dev"},
    {"kind": "ServiceAccount", "name": "robot"},
    {"kind": "ServiceAccount", "name": "robot", "namespace": "a"},
    {"kind": "ServiceAccount", "name": "robot", "namespace": "b"},
)


class Chance:
    """Roles, bindings and questions by chance; hypothesis chooses the seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.one = self.random.choice

    def some(self, values, most=2):
        return self.random.choices(values, k=self.random.randint(1, most))

    def rule(self):
        if self.random.random() < 0.2:
            return {"verbs": self.some(VERBS), "nonResourceURLs": self.some(PATHS)}
        verbs = self.some(VERBS) if self.random.random() < 0.9 else []
        rule = {"verbs": verbs, "apiGroups": self.some(GROUPS), "resources": self.some(RESOURCES, 3)}
        return {**rule, "resourceNames": self.some(OBJECTS)} if self.random.random() < 0.3 else rule

    def rules(self):
        return [self.rule() for _ in range(self.random.randint(1, 3))]

    def role(self):
        role = {"rules": self.rules(), "labels": self.one(LABELS)}
        return {**role, "selectors": self.some(SELECTORS)} if self.random.random() < 0.2 else role

    def binding(self):
        kind, ref = self.one(("Role", "ClusterRole")), self.one((*NAMES, *NAMES, "absent"))
        return {"kind": kind, "ref": ref, "subjects": self.some(SUBJECTS)}

    def place(self):
        return self.one(CLUSTERS), self.one(("", *NAMESPACES)), self.one(NAMES)

    def world(self):
        """Return roles and bindings by place; and which objects of the base are stored, per cluster."""
        roles = {self.place(): self.role() for _ in range(self.random.randint(0, 20))}
        bindings = {self.place(): self.binding() for _ in range(self.random.randint(0, 20))}
        base = {}
        for cluster in set(CLUSTERS):
            match self.random.randrange(3):
                case 0:
                    base[cluster] = frozenset(range(20))
                case 1:
                    base[cluster] = frozenset(self.random.choices(range(15), k=self.random.randint(1, 15)))
        return {"roles": roles, "bindings": bindings, "base": base}

    def question(self):
        return Attributes(
            user=User(self.one(USERS), groups=self.one(USER_GROUPS)),
            cluster=self.one(CLUSTERS),
            verb=self.one(("get", "get", "get", "list", "*")),
            group=self.one(("", "apps")),
            resource=self.one(("", "pods", "pods", "nodes", "*")),
            subresource=self.one(("", "", "log", "status")),
            namespace=self.one(("", *NAMESPACES)),
            name=self.one(("", "o1", "o3")),
            path=self.one(("/", "/a", "/a/b", "/a/b/c", "/ab", "/api", "/healthz")),
        )

    def questions(self, count=40):
        return [self.question() for _ in range(count)]


CHANCE = st.integers(0, 2**32 - 1).map(Chance)


# --- the naive evaluator ----------------------------------------------------------------------------------------------


def selects(selector, labels):
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions", ()):
        if one["operator"] == "Exists" and one["key"] not in labels:
            return False
        if one["operator"] == "NotIn" and labels.get(one["key"]) in one["values"]:
            return False
    return True


def rules_of(world, cluster, name, seen=()):
    role = world["roles"].get((cluster, "", name))
    if role is None:
        return None
    if "selectors" not in role:
        return role["rules"]
    return [
        rule
        for (where, namespace, other), one in world["roles"].items()
        if (where, namespace) == (cluster, "") and other not in (*seen, name)
        if any(selects(selector, one["labels"]) for selector in role["selectors"])
        for rule in rules_of(world, cluster, other, (*seen, name))
    ]


def matches(rule, asked):
    def has(field, *wanted):
        return any(one in rule.get(field, ()) for one in wanted)

    if not has("verbs", asked.verb, "*"):
        return False
    if not asked.resource:
        return any(
            url == asked.path or (url.endswith("*") and asked.path.startswith(url.rstrip("*")))
            for url in rule.get("nonResourceURLs", ())
        )
    combined = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    wanted = [combined, "*", *([f"*/{asked.subresource}"] if asked.subresource else ())]
    if not has("apiGroups", asked.group, "*") or not has("resources", *wanted):
        return False
    return not rule.get("resourceNames") or asked.name in rule["resourceNames"]


def applies(subject, namespace, user):
    if subject["kind"] == "User":
        return user.name == subject["name"]
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    where = subject.get("namespace") or namespace
    return bool(where) and user.name == f"system:serviceaccount:{where}:{subject['name']}"


def allowed(world, asked):
    for (cluster, namespace, _), binding in world["bindings"].items():
        if cluster != asked.cluster or namespace not in ("", asked.namespace if asked.resource else ""):
            continue
        if not any(applies(subject, namespace, asked.user) for subject in binding["subjects"]):
            continue
        if binding["kind"] == "ClusterRole":
            rules = rules_of(world, cluster, binding["ref"])
        else:
            role = world["roles"].get((cluster, namespace, binding["ref"])) if namespace else None
            rules = role and role["rules"]
        if any(matches(rule, asked) for rule in rules or ()):
            return True
    return False


# --- the same as stored objects ---------------------------------------------------------------------------------------


STORES = StoreSet(EngineConnection(MemoryEngine()).store)


def new_policies():
    return Policies(STORES, base(root=False), base(root=True), "root")


REVISIONS = itertools.count(1)
PLURALS_OF = {"roles": ("clusterroles", "roles"), "bindings": ("clusterrolebindings", "rolebindings")}


def stored_object(policies, plural, place, document):
    key = policies.served(plural).key(*place)
    return StoredObject(key, next(REVISIONS), json.dumps(document or {}).encode())


def write(policies, plural, place, document):
    policies.observe(plural, stored_object(policies, plural, place, document), deleted=document is None)


def role_document(role, namespace):
    document = {"metadata": {"labels": role["labels"]}, "rules": role["rules"]}
    if "selectors" in role and not namespace:
        document["aggregationRule"] = {"clusterRoleSelectors": role["selectors"]}
    return document


def binding_document(binding):
    ref = {"kind": binding["kind"], "name": binding["ref"], "apiGroup": "rbac.authorization.k8s.io"}
    return {"metadata": {}, "roleRef": ref, "subjects": binding["subjects"]}


def base_of(world, cluster):
    """Return the objects of the base that a cluster has."""
    every = defaults(root=cluster == "root")
    stored = [one for place, one in enumerate(every) if place in world["base"].get(cluster, ())]
    own = {"clusterroles": world["roles"], "clusterrolebindings": world["bindings"]}
    left = [one for one in stored if (cluster, "", one.name) not in own[one.plural]]
    return left or every


def with_base(world):
    """Return what the naive evaluator has to know: the same, with the base's objects written out."""
    roles, bindings = dict(world["roles"]), dict(world["bindings"])
    for cluster in set(CLUSTERS):
        for one in base_of(world, cluster):
            document = one.document
            if one.plural == "clusterroles":
                role = {"rules": document.get("rules", []), "labels": document["metadata"]["labels"]}
                if "aggregationRule" in document:
                    role["selectors"] = document["aggregationRule"]["clusterRoleSelectors"]
                roles.setdefault((cluster, "", one.name), role)
            else:
                ref = document["roleRef"]
                role = {"kind": ref["kind"], "ref": ref["name"], "subjects": document["subjects"]}
                bindings.setdefault((cluster, "", one.name), role)
    return {"roles": roles, "bindings": bindings}


def documents(world):
    """Return what is stored, by plural and place."""
    found = {}
    for cluster, stored in world["base"].items():
        for place, one in enumerate(defaults(root=cluster == "root")):
            if place in stored:
                found[one.plural, (cluster, "", one.name)] = one.document
    for place, binding in world["bindings"].items():
        found[PLURALS_OF["bindings"][bool(place[1])], place] = binding_document(binding)
    for place, role in world["roles"].items():
        found[PLURALS_OF["roles"][bool(place[1])], place] = role_document(role, place[1])
    return found


def tell(policies, world):
    for (plural, place), document in documents(world).items():
        write(policies, plural, place, document)


@settings(max_examples=200, deadline=None)
@given(chance=CHANCE)
def test_decisions_are_those_of_a_naive_evaluator(chance):
    policies, world = new_policies(), chance.world()
    tell(policies, world)
    authorizer, whole = RbacAuthorizer(policies), with_base(world)
    for asked in chance.questions():
        assert authorizer.authorize(asked).allowed == allowed(whole, asked), asked


@settings(max_examples=200, deadline=None)
@given(chance=CHANCE)
def test_what_was_worked_out_before_a_change_is_forgotten(chance):
    """Only what differs is written, in any order."""
    policies, before, after, questions = new_policies(), chance.world(), chance.world(), chance.questions()
    authorizer, whole = RbacAuthorizer(policies), with_base(after)
    tell(policies, before)
    for asked in questions:
        authorizer.authorize(asked)
    old, new = documents(before), documents(after)
    changes = [one for one in {**old, **new} if old.get(one) != new.get(one)]
    chance.random.shuffle(changes)
    for plural, place in changes:
        write(policies, plural, place, new.get((plural, place)))
    for asked in questions:
        assert authorizer.authorize(asked).allowed == allowed(whole, asked), asked


@settings(max_examples=100, deadline=None)
@given(chance=CHANCE)
def test_a_single_change_holds_at_once(chance):
    policies, world, questions = new_policies(), chance.world(), chance.questions()
    authorizer = RbacAuthorizer(policies)
    tell(policies, world)
    for _ in range(5):
        for asked in questions:
            authorizer.authorize(asked)
        kind, place = chance.one(("roles", "bindings")), chance.place()
        world[kind][place] = chance.role() if kind == "roles" else chance.binding()
        plural = PLURALS_OF[kind][bool(place[1])]
        write(policies, plural, place, documents(world)[plural, place])
        whole = with_base(world)
        for asked in questions:
            assert authorizer.authorize(asked).allowed == allowed(whole, asked), asked


@settings(max_examples=100, deadline=None)
@given(chance=CHANCE)
def test_a_list_after_an_interrupted_watch_replaces_what_was_known(chance):
    policies, before, after, questions = new_policies(), chance.world(), chance.world(), chance.questions()
    authorizer, whole, listed = RbacAuthorizer(policies), with_base(after), {plural: [] for plural in PLURALS}
    tell(policies, before)
    for asked in questions:
        authorizer.authorize(asked)
    for (plural, place), document in documents(after).items():
        listed[plural].append(stored_object(policies, plural, place, document))
    for plural in PLURALS:
        page = ObjectList(tuple(listed[plural]), next(REVISIONS))
        policies._followed[plural].follower._tell(page)
    for asked in questions:
        assert authorizer.authorize(asked).allowed == allowed(whole, asked), asked
    known = {place[0] for kind in ("roles", "bindings") for place in after[kind]}
    assert policies._clusters.keys() <= known | after["base"].keys()


@settings(max_examples=300, deadline=None)
@given(chance=CHANCE)
def test_who_may_write_a_role_may_do_what_it_allows(chance):
    """Whatever the check lets pass, no question is allowed by the new role that is not allowed to its author."""
    held, given_away = chance.rules(), chance.rules()
    escalate = Attributes(User("alice"), "c1", "escalate", "rbac.authorization.k8s.io", resource="clusterroles")
    if any(matches(rule, escalate) for rule in held):
        return
    try:
        check_role(held, given_away)
    except ApiError:
        return
    for asked in chance.questions(200):
        if any(matches(rule, asked) for rule in given_away):
            assert any(matches(rule, asked) for rule in held), asked


@settings(max_examples=100, deadline=None)
@given(chance=CHANCE)
def test_who_may_do_something_may_give_it_away(chance):
    held = chance.rules()
    check_role(held, held)
    check_role(held, held[:1])


def check_role(held, given_away):
    """Let a user who holds some rules write a role with some."""
    policies = new_policies()
    author = {"kind": "ClusterRole", "ref": "held", "subjects": [{"kind": "User", "name": "alice"}]}
    roles = {("c1", "", "held"): {"rules": held, "labels": {}}}
    tell(policies, {"base": {}, "roles": roles, "bindings": {("c1", "", "held"): author}})
    request = SimpleNamespace(user=User("alice"), route=Route("c1", (), resource="clusterroles"))
    kind = builtin_kinds()["rbac.authorization.k8s.io", "v1", "clusterroles"]
    document = {"metadata": {"name": "new"}, "rules": given_away}
    Escalation(policies, RbacAuthorizer(policies)).check(request, kind, document, None)


@settings(max_examples=60, deadline=None)
@given(chance=CHANCE)
def test_one_cluster_never_speaks_for_another(chance):
    world = chance.world()
    alone = {
        kind: {place: one for place, one in found.items() if "c1" in (place, place[0])} for kind, found in world.items()
    }
    policies, only = new_policies(), new_policies()
    tell(policies, world)
    tell(only, alone)
    for asked in chance.questions():
        if asked.cluster == "c1":
            assert RbacAuthorizer(policies).authorize(asked) == RbacAuthorizer(only).authorize(asked)


@settings(max_examples=60, deadline=None)
@given(chance=CHANCE, count=st.integers(9, 20))
def test_a_subject_with_many_roles_is_judged_alike(chance, count):
    policies, world = new_policies(), chance.world()
    bindings = {
        (cluster, namespace, f"{name}-{number}"): one
        for number in range(count)
        for (cluster, namespace, name), one in world["bindings"].items()
    }
    many = {**world, "bindings": bindings}
    tell(policies, many)
    authorizer, whole = RbacAuthorizer(policies), with_base(many)
    for asked in chance.questions():
        assert authorizer.authorize(asked).allowed == allowed(whole, asked), asked


def test_a_base_of_which_only_a_changed_object_is_left_does_not_come_back():
    policies = new_policies()
    asked = Attributes(User("alice", groups=("system:authenticated",)), "c1", "get", path="/api")
    assert RbacAuthorizer(policies).authorize(asked).allowed
    view = next(one.document for one in defaults(root=False) if one.name == "view")
    write(policies, "clusterroles", ("c1", "", "view"), {**view, "aggregationRule": None, "rules": []})
    assert not RbacAuthorizer(policies).authorize(asked).allowed
    write(policies, "clusterroles", ("c1", "", "view"), None)
    assert RbacAuthorizer(policies).authorize(asked).allowed


@pytest.mark.parametrize("plural", PLURALS)
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"metadata":{},"rules":1,"roleRef":1}', b"\xff"])
def test_what_cannot_be_read_allows_nothing_and_is_told(plural, raw):
    policies = new_policies()
    namespace = "a" if plural in ("roles", "rolebindings") else ""
    ref = "Role" if plural == "roles" else "ClusterRole"
    subjects = [{"kind": "User", "name": "alice"}]
    binding = binding_document({"kind": ref, "ref": "broken", "subjects": subjects})
    write(policies, "rolebindings", ("c1", "a", "good"), binding)
    key = policies.served(plural).key("c1", namespace, "broken")
    policies.observe(plural, StoredObject(key, next(REVISIONS), raw))
    decision = RbacAuthorizer(policies).authorize(
        Attributes(User("alice"), "c1", "get", resource="pods", namespace="a")
    )
    assert not decision.allowed
    assert f'{plural[:-1]}.rbac.authorization.k8s.io "broken" cannot be read' in decision.reason
