"""Read YAML as upstream reads it, which is as another spelling of JSON.

`yes`, `on` and `y` are booleans and `0644` is an octal number, as in YAML 1.1; but dates, base-60 numbers and binary
tags do not exist, keys are always texts, and there is one document. Merge keys (`<<`) are refused, and aliases may not
blow a small body up.
"""

import math
import re
from typing import Any, ClassVar

import msgspec
import yaml

from kplane_core.errors import BadRequest

MAX_EXPANDED = 4 << 20
MAX_EXACT = 1 << 53


def load(body: bytes, max_nesting: int) -> Any:
    """Return the value of the one document in `body`, made of JSON's types only.

    Args:
        body: the document.
        max_nesting: how deep aliases may nest it; without aliases the caller checks the depth.

    Raises:
        BadRequest: it is not YAML, or holds what JSON cannot; the message names line and column.
    """
    try:
        value = yaml.load(body, _Loader)  # noqa: S506 - makes JSON's types only
    except yaml.YAMLError as error:
        raise BadRequest(f"the body of the request is not valid YAML: {_yaml_fault(error)}") from None
    return _without_aliases(value, max_nesting) if b"&" in body and b"*" in body else value


def _yaml_fault(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} (line {mark.line + 1}, column {mark.column + 1})"
    return " ".join(str(error).split())


def _without_aliases(value: Any, max_nesting: int) -> Any:
    """Return a copy in which nothing is shared, refusing what is too large for that or contains itself."""
    size, level = 0, [value]
    for _ in range(max_nesting + 1):
        deeper: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                size += sum(len(key) + 1 for key in node) + 1
                deeper += node.values()
            elif isinstance(node, list):
                size += 1
                deeper += node
            else:
                size += len(node) if isinstance(node, str) else 1
            if size + len(deeper) > MAX_EXPANDED:
                raise BadRequest("the body of the request is not valid YAML: its aliases make it too large")
        if not deeper:
            return msgspec.json.decode(msgspec.json.encode(value))
        level = deeper
    raise BadRequest(f"the body of the request is nested more than {max_nesting} deep")


class _Loader(yaml.CSafeLoader):
    """Reads YAML with libyaml and makes only what JSON has."""

    # Empty: nothing of what PyYAML makes by itself (dates, sets, base-60 numbers) is wanted.
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the stubs do not call it a class variable
    yaml_constructors: ClassVar[dict[str | None, Any]] = {}

    def construct_text(self, node: yaml.ScalarNode) -> str:
        return str(self.construct_scalar(node))

    def construct_list(self, node: yaml.SequenceNode) -> Any:
        made: list[Any] = []
        yield made
        made += self.construct_sequence(node)

    def construct_object_of(self, node: yaml.MappingNode) -> Any:
        made: dict[str, Any] = {}
        yield made
        if not isinstance(node, yaml.MappingNode):
            raise yaml.constructor.ConstructorError(None, None, "expected a mapping", node.start_mark)
        for key_node, value_node in node.value:
            made[self._key(key_node)] = self.construct_object(value_node)

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a scalar", node.start_mark)
        if node.value == "<<" and not node.style:
            raise yaml.constructor.ConstructorError(None, None, "merge keys (<<) are not supported", node.start_mark)
        key = self.construct_object(node)
        return key if isinstance(key, str) else msgspec.json.encode(key).decode()

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        text = self.construct_text(node).replace("_", "").lower()
        sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.lstrip("+"))
        base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2])
        try:
            if base:
                return sign * int(digits[2:], base)
            if digits.isdigit():
                octal = digits[0] == "0" and not {"8", "9"} & set(digits)
                return sign * int(digits, 8 if octal else 10)
            number = float(text.replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            raise yaml.constructor.ConstructorError(None, None, "not a number", node.start_mark) from None
        if not math.isfinite(number):
            raise yaml.constructor.ConstructorError(None, None, "JSON has no such number", node.start_mark)
        return int(number) if number.is_integer() and abs(number) < MAX_EXACT else number

    def construct_boolean(self, node: yaml.ScalarNode) -> bool:
        return self.construct_text(node).lower() in {"true", "yes", "on", "y"}

    def construct_nothing(self, _node: yaml.ScalarNode) -> None:
        return None

    def refuse(self, node: yaml.Node) -> Any:
        raise yaml.constructor.ConstructorError(None, None, f"the tag {node.tag} is not supported", node.start_mark)


def _prepare_loader() -> None:
    prefix = "tag:yaml.org,2002:"
    _Loader.yaml_constructors = {
        prefix + "str": _Loader.construct_text,
        prefix + "seq": _Loader.construct_list,
        prefix + "map": _Loader.construct_object_of,
        prefix + "int": _Loader.construct_number,
        prefix + "float": _Loader.construct_number,
        prefix + "bool": _Loader.construct_boolean,
        prefix + "null": _Loader.construct_nothing,
        None: _Loader.refuse,
    }
    number = r"[-+]?(0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?)"
    words = "true True TRUE false False FALSE yes Yes YES no No NO on On ON off Off OFF y Y n N"
    for name, pattern, first in (
        ("bool", "|".join(words.split()), "tTfFyYnNoO"),
        ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("int", number, "-+.0123456789"),
        ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ):
        _Loader.add_implicit_resolver(prefix + name, re.compile(f"(?:{pattern})$"), list(first))


_prepare_loader()
