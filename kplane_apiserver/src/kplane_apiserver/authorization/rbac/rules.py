"""Rules as roles hold them, and the table in which a question finds the rule that allows it.

A table grows with the text of its rules and never with the product of their lists: a rule with a thousand groups and a
thousand resources is one entry in two thousand places, not in a million.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec

from kplane_apiserver.authorization.questions import Attributes

K = TypeVar("K")
T = TypeVar("T")

EVERY = "*"
_ANY_GROUP = "\0"
"""Stands for the group in the key of a rule whose groups are looked at one by one; no group has this name."""

_SHORT = 200

Key = tuple[str, str]
"""An API group and a resource, as a rule names them."""
Texts = tuple[str, ...]


class Rule(msgspec.Struct, frozen=True, rename={"groups": "apiGroups", "names": "resourceNames"}):
    """One rule of a role, as it is stored; None and empty mean the same.

    Attributes:
        verbs: what it allows; `*` allows all.
        groups: the API groups.
        resources: the plurals, with a subresource behind a slash if it is about that.
        names: the objects; all of them when empty.
        paths: the paths that name no resource; a `*` at the end stands for whatever follows.
    """

    verbs: Texts | None = None
    groups: Texts | None = None
    resources: Texts | None = None
    names: Texts | None = None
    paths: Texts | None = msgspec.field(default=None, name="nonResourceURLs")

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as a document, without what is empty."""
        fields = (
            ("verbs", self.verbs),
            ("apiGroups", self.groups),
            ("resources", self.resources),
            ("resourceNames", self.names),
            ("nonResourceURLs", self.paths),
        )
        return {name: list(values) for name, values in fields if values}


class Question(NamedTuple):
    """What is looked up in tables.

    Attributes:
        verb: the verb.
        keys: the keys under which a rule may stand that allows it; none for a path.
        wide: the same for rules whose groups are looked at one by one.
        group: the API group.
        name: the object's name; None asks for a rule that allows all names.
        path: the path; None for a resource.
    """

    verb: str
    keys: tuple[Key, ...]
    wide: tuple[Key, ...]
    group: str
    name: str | None
    path: str | None


def question_of(asked: Attributes) -> Question:
    """Return a request's or a review's question as tables take it."""
    if not asked.resource:
        return Question(asked.verb, (), (), "", None, asked.path)
    keys, wide = _keys_of(asked.group, asked.resource, asked.subresource)
    return Question(asked.verb, keys, wide, asked.group, asked.name, None)


def resource_question(verb: str, group: str, resource: str, name: str | None = None) -> Question:
    """Return the question for one combination of a rule; `resource` may have a subresource, `name` may be all."""
    plural, _, subresource = resource.partition("/")
    keys, wide = _keys_of(group, plural, subresource)
    return Question(verb, keys, wide, group, name, None)


def path_question(verb: str, path: str) -> Question:
    """Return the question for a path; one that ends in `*` asks for a rule that allows whatever follows."""
    return Question(verb, (), (), "", None, path)


def _keys_of(group: str, resource: str, subresource: str) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    # A review can ask about texts of any length, and those are not worth remembering.
    short = len(group) + len(resource) + len(subresource) <= _SHORT
    return (_remembered_keys if short else _keys)(group, resource, subresource)


def _keys(group: str, resource: str, subresource: str) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    names = [resource, EVERY]
    if subresource:
        names = [f"{resource}/{subresource}", f"{EVERY}/{subresource}", EVERY]
    keys = tuple((one, name) for one in (group, EVERY) for name in names)
    return keys, tuple((_ANY_GROUP, name) for name in names)


_remembered_keys = lru_cache(maxsize=512)(_keys)


class _Entry(Generic[T]):
    """What one rule adds to a table; a None among the sets allows everything."""

    __slots__ = ("groups", "names", "value", "verbs")

    def __init__(self, rule: Rule, value: T, groups: frozenset[str] | None, names: frozenset[str] | None) -> None:
        verbs = rule.verbs or ()
        self.verbs = None if EVERY in verbs else frozenset(verbs)
        self.groups = groups
        self.names = names
        self.value = value

    def allows(self, asked: Question) -> bool:
        """Whether the rule, found under a key of the question, allows it."""
        return (
            (self.verbs is None or asked.verb in self.verbs)
            and (self.names is None or asked.name in self.names)
            and (self.groups is None or asked.group in self.groups)
        )


class Table(Generic[T]):
    """Rules, arranged so that a question looks at few of them.

    Args:
        given: rules, each some with the value that `find` finds in them.
    """

    __slots__ = ("_exact", "_lengths", "_named", "_prefixes", "_resources", "_wide")

    def __init__(self, given: Iterable[tuple[Iterable[Rule], T]]) -> None:
        self._resources: dict[Key, list[_Entry[T]]] = {}
        self._named: dict[tuple[Key, str], list[_Entry[T]]] = {}
        self._exact: dict[str, list[_Entry[T]]] = {}
        self._prefixes: dict[str, list[_Entry[T]]] = {}
        self._wide = False
        seen: set[Rule] = set()
        for rules, value in given:
            for rule in rules:
                if rule not in seen:
                    seen.add(rule)
                    self._add(rule, value)
        self._lengths = tuple(sorted({len(prefix) for prefix in self._prefixes}))

    def find(self, asked: Question) -> T | None:
        """Return the value of a rule that allows what is asked; None when none does."""
        if asked.path is not None:
            return self._find_path(asked, asked.path)
        found = _first(self._resources, asked.keys, asked)
        if found is None and self._named and asked.name is not None:
            found = _first(self._named, [(key, asked.name) for key in asked.keys], asked)
        if found is None and self._wide:
            found = _first(self._resources, asked.wide, asked)
        return None if found is None else found.value

    def _find_path(self, asked: Question, path: str) -> T | None:
        found = _first(self._exact, (path,), asked)
        if found is None and self._lengths:
            prefixes = (path[:length] for length in self._lengths if length <= len(path))
            found = _first(self._prefixes, prefixes, asked)
        return None if found is None else found.value

    def _add(self, rule: Rule, value: T) -> None:
        if rule.verbs and rule.groups and rule.resources:
            self._add_resources(rule, value)
        if rule.verbs and rule.paths:
            self._add_paths(rule, value)

    def _add_resources(self, rule: Rule, value: T) -> None:
        groups, resources, names = (
            tuple(dict.fromkeys(part or ())) for part in (rule.groups, rule.resources, rule.names)
        )
        wide = len(groups) * len(resources) > 2 * (len(groups) + len(resources))
        keys = [(group, name) for group in ((_ANY_GROUP,) if wide else groups) for name in resources]
        looked_at = frozenset(groups) if wide and EVERY not in groups else None
        if wide:
            self._wide = True
        elif names and len(keys) * len(names) <= 2 * (len(keys) + len(names)):
            entry = _Entry(rule, value, None, None)
            for key in keys:
                for name in names:
                    _put(self._named, (key, name), entry)
            return
        entry = _Entry(rule, value, looked_at, frozenset(names) if names else None)
        for key in keys:
            _put(self._resources, key, entry)

    def _add_paths(self, rule: Rule, value: T) -> None:
        entry = _Entry(rule, value, None, None)
        for path in dict.fromkeys(rule.paths or ()):
            if path.endswith(EVERY):
                _put(self._prefixes, path.rstrip(EVERY), entry)
            else:
                _put(self._exact, path, entry)


def _first(index: Mapping[K, list[_Entry[T]]], keys: Iterable[K], asked: Question) -> _Entry[T] | None:
    """Return the first entry under one of the keys that allows what is asked."""
    for key in keys:
        entries = index.get(key)
        if entries is not None:
            for entry in entries:
                if entry.allows(asked):
                    return entry
    return None


def _put(index: dict[K, list[_Entry[T]]], key: K, entry: _Entry[T]) -> None:
    found = index.get(key)
    if found is None:
        index[key] = [entry]
    else:
        found.append(entry)


class RuleSet:
    """The rules of a role, shared by all roles of all clusters that have the same; made by `rule_set`.

    Attributes:
        rules: the rules, in their order.
        on_resources: whether one of them is about resources.
        on_paths: whether one of them is about paths.
    """

    __slots__ = ("__weakref__", "_table", "on_paths", "on_resources", "rules")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self.on_resources = any(rule.resources for rule in rules)
        self.on_paths = any(rule.paths for rule in rules)
        self._table: Table[bool] | None = None

    @property
    def table(self) -> Table[bool]:
        """The rules as a table, which is made when somebody first asks."""
        if self._table is None:
            self._table = Table([(self.rules, True)])
        return self._table


_SETS: WeakValueDictionary[tuple[Rule, ...], RuleSet] = WeakValueDictionary()


def rule_set(rules: tuple[Rule, ...]) -> RuleSet:
    """Return the one set of these rules."""
    found = _SETS.get(rules)
    if found is None:
        found = _SETS[rules] = RuleSet(rules)
    return found


def as_documents(rules: Iterable[Rule]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return rules as a review shows them: those about resources, those about paths; each once, in their order."""
    resources: list[Mapping[str, Any]] = []
    paths: list[Mapping[str, Any]] = []
    for rule in dict.fromkeys(rules):
        document = rule.to_dict()
        if rule.resources:
            resources.append({key: value for key, value in document.items() if key != "nonResourceURLs"})
        if rule.paths:
            paths.append({"nonResourceURLs": document["nonResourceURLs"], "verbs": document.get("verbs", [])})
    return resources, paths
