"""The encryption configuration document of Kubernetes' API server, from a file to a transformer per resource.

The document says which resources are encrypted, with which providers and keys. What this reader accepts means here what
it means to a kube-apiserver. It is stricter in two points: the names of one provider's keys must differ, and they must
not hold a colon, because the name ends at a colon in the stored value.

Messages tell where a mistake is and never what stands there: what stands there may be a secret in the wrong place.
"""

import base64
import binascii
import difflib
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import attrs

from kplane_core.errors import KplaneError, UsageError
from kplane_core.storage.encryption import CIPHERS, EncryptionKey, PrefixChain, keyed_entry
from kplane_core.storage.transformers import IDENTITY, Transformer

_DOCUMENTS = (("apiserver.config.k8s.io/v1", "EncryptionConfiguration"), ("v1", "EncryptionConfig"))
_SUPPORTED = ("aescbc", "aesgcm", "secretbox", "identity")
_NOT_SERVED = ("apiserveripinfo", "serviceipallocations", "servicenodeportallocations")
# Shorter than any secret in base64, and without its punctuation: what looks like this may be shown.
_HARMLESS = re.compile(r"[A-Za-z][A-Za-z0-9]{0,19}")

_GroupResource = tuple[str, str]


class _Mistake(KplaneError):
    """Something in the document is wrong: where, and why."""


def _fail(where: str, why: str) -> NoReturn:
    raise _Mistake(f"{where}: {why}" if where else why)


@attrs.frozen
class EncryptionConfig:
    """Which transformer each resource's values go through.

    Attributes:
        resources: the resources and wildcards of the document, in its order.
    """

    resources: tuple[str, ...]
    _transformers: Mapping[_GroupResource, Transformer] = attrs.field(repr=False, eq=False)

    def transformer_for(self, group_resource: str) -> Transformer:
        """Return the transformer of a resource, always the same one; IDENTITY when the document does not name it.

        Args:
            group_resource: `secrets`, or `deployments.apps`.
        """
        name, group = _split(group_resource)
        # A wildcard cannot stand before what it covers (that is refused), so the narrower entry is the earlier one.
        for candidate in ((name, group), ("*", group), ("*", "*")):
            found = self._transformers.get(candidate)
            if found is not None:
                return found
        return IDENTITY


def load_encryption_config(path: str | Path) -> EncryptionConfig:
    """Return what an encryption configuration file says, with all its ciphers built.

    Args:
        path: a JSON or YAML file; JSON needs no further library.

    Raises:
        UsageError: it cannot be read, is no such document, asks for what is not supported, or the libraries for it are
            not installed. The message never holds a secret.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"encryption configuration {path}: {error.strerror or 'cannot be read'}") from error
    except UnicodeDecodeError:
        text = None
    try:
        if text is None:
            _fail("", "is not UTF-8 text")
        return _config(_parse(text))
    except _Mistake as mistake:
        why = str(mistake)
    # Outside of the handler: an error's context may hold the text that could not be read.
    raise UsageError(f"encryption configuration {path}: {why}")


# --- text to document ------------------------------------------------------------------------------------


def _parse(text: str) -> object:
    if not text.strip():
        _fail("", "is empty")
    problem = ""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_unique)
        except json.JSONDecodeError as error:
            problem = f"is not valid JSON (line {error.lineno}, column {error.colno})"
        except RecursionError:
            problem = "is nested too deeply"
    if problem:
        _fail("", problem)
    return _parse_yaml(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        _fail("", f"a field is set twice: {_shown(next(name for name in names if names.count(name) > 1))}")
    return document


def _parse_yaml(text: str) -> object:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ModuleNotFoundError as error:
        raise UsageError(
            "an encryption configuration in YAML needs PyYAML, which is not installed: "
            "pip install 'kplane-core[encryption]', or write the document as JSON"
        ) from error
    problem = ""
    try:
        return _yaml_value(yaml, yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        # The error's own words quote the text around the mistake.
        mark = error.problem_mark or error.context_mark
        problem = f"is not valid YAML (line {mark.line + 1}, column {mark.column + 1})" if mark else "is not valid YAML"
    except yaml.YAMLError:
        problem = "is not valid YAML"
    except RecursionError:
        problem = "is nested too deeply"
    _fail("", problem)


def _yaml_value(yaml: Any, node: Any) -> object:
    """Return a node's value: mappings, sequences, strings and null; nothing else has a meaning in this document."""
    if node is None:
        _fail("", "is empty")
    if isinstance(node, yaml.MappingNode):
        return _unique(
            [
                (key.value if isinstance(key, yaml.ScalarNode) else "", _yaml_value(yaml, value))
                for key, value in node.value
            ]
        )
    if isinstance(node, yaml.SequenceNode):
        return [_yaml_value(yaml, value) for value in node.value]
    if node.tag == "tag:yaml.org,2002:null":
        return None
    return node.value if node.tag == "tag:yaml.org,2002:str" else _Scalar(node.tag.rpartition(":")[2])


@attrs.frozen
class _Scalar:
    """A YAML scalar that is no string; what it says does not matter, because strings are wanted everywhere."""

    type: str


# --- document to configuration ---------------------------------------------------------------------------


def _config(document: object) -> EncryptionConfig:
    top = _mapping("", document, ("apiVersion", "kind", "resources"))
    api_version, kind = top.get("apiVersion"), top.get("kind")
    if (api_version, kind) not in _DOCUMENTS:
        wanted = " or ".join(f"apiVersion {one} with kind {other}" for one, other in _DOCUMENTS)
        _fail("", f"is not an encryption configuration: it must have {wanted}")
    entries: dict[_GroupResource, list[tuple[bytes, Transformer]]] = {}
    for index, rule in enumerate(_sequence("resources", top.get("resources"))):
        where = f"resources[{index}]"
        fields = _mapping(where, rule, ("resources", "providers"))
        names = _resource_names(f"{where}.resources", fields.get("resources"))
        providers = _providers(f"{where}.providers", fields.get("providers"))
        for name in names:
            _refuse_masked(f"{where}.resources", name, entries)
            # One resource in two rules: the first rule writes, both of them read.
            entries.setdefault(name, []).extend(providers)
    return EncryptionConfig(tuple(map(_joined, entries)), {name: _chain(found) for name, found in entries.items()})


def _chain(entries: Sequence[tuple[bytes, Transformer]]) -> Transformer:
    if all(transformer is IDENTITY for _, transformer in entries):
        return IDENTITY
    return PrefixChain(entries)


def _resource_names(where: str, value: object) -> list[_GroupResource]:
    names = []
    for index, name in enumerate(_sequence(where, value)):
        _check_resource(f"{where}[{index}]", name)
        names.append(_split(str(name)))
    if len(set(names)) != len(names):
        _fail(where, "the same resource stands here twice")
    for name, group in names:
        covered = len(names) > 1 if (name, group) == ("*", "*") else sum(other == group for _, other in names) > 1
        if name == "*" and covered:
            _fail(
                where,
                f"{_joined((name, group))!r} covers another resource of the same list: the two cannot be told apart",
            )
    return names


def _check_resource(where: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        _fail(where, "must be the name of a resource, such as secrets or deployments.apps")
    resource, group = _split(name)
    if name != name.lower():
        _fail(where, "a resource is written in lower case, in its plural")
    if name == "*":
        _fail(where, "'*' is ambiguous: '*.' is every resource of the core group, '*.*' every resource")
    if resource in _NOT_SERVED and not group:
        _fail(where, f"{resource} is not served by the API and cannot be encrypted")
    if group == "events.k8s.io":
        _fail(where, "events are stored in the core group: write 'events'")
    if group == "extensions":
        _fail(where, "the group 'extensions' was removed and holds nothing to encrypt")
    if group == "*" and resource != "*":
        _fail(where, "one resource across all groups cannot be encrypted: name the group, or use '*.*'")


def _refuse_masked(where: str, name: _GroupResource, earlier: Mapping[_GroupResource, object]) -> None:
    for wildcard in (("*", name[1]), ("*", "*")):
        if wildcard in earlier:
            _fail(
                where,
                f"{_joined(name)!r} is masked by the earlier {_joined(wildcard)!r}, so this rule would never apply",
            )


def _providers(where: str, value: object) -> list[tuple[bytes, Transformer]]:
    entries: list[tuple[bytes, Transformer]] = []
    for index, provider in enumerate(_sequence(where, value)):
        at = f"{where}[{index}]"
        fields = _mapping(at, provider, (*_SUPPORTED, "kms"))
        if len(fields) != 1:
            _fail(at, f"must have exactly one of {', '.join(_SUPPORTED)}; it has {len(fields)}")
        ((kind, settings),) = fields.items()
        if kind == "kms":
            _fail(f"{at}.kms", f"KMS providers (v1 and v2) are not supported; supported are {', '.join(_SUPPORTED)}")
        if kind == "identity":
            _mapping(f"{at}.identity", settings, ())
            entries.append((b"", IDENTITY))
        else:
            entries.append(keyed_entry(kind, _keys(f"{at}.{kind}", settings, CIPHERS[kind].key_sizes)))
    return entries


def _keys(where: str, value: object, sizes: tuple[int, ...]) -> list[EncryptionKey]:
    fields = _mapping(where, value, ("keys",))
    keys: list[EncryptionKey] = []
    for index, key in enumerate(_sequence(f"{where}.keys", fields.get("keys"))):
        at = f"{where}.keys[{index}]"
        parts = _mapping(at, key, ("name", "secret"))
        name = parts.get("name")
        if not isinstance(name, str) or not name:
            _fail(f"{at}.name", "must be a name, as a string")
        if ":" in name:
            _fail(f"{at}.name", "must not hold a colon, which ends the name in stored values")
        for other, known in enumerate(keys):
            if known.name == name:
                _fail(f"{at}.name", f"is the name of keys[{other}] too; names must differ")
        keys.append(EncryptionKey(name, _secret(f"{at}.secret", parts.get("secret"), sizes)))
    return keys


def _secret(where: str, value: object, sizes: tuple[int, ...]) -> bytes:
    wanted = f"{', '.join(map(str, sizes))} random bytes in base64"
    if not isinstance(value, str) or not value:
        _fail(where, f"must be a string: {wanted}")
    try:
        secret = base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        secret = None
    if secret is None:
        _fail(where, f"is not base64; it must be {wanted}")
    if len(secret) not in sizes:
        _fail(where, f"decodes to {len(secret)} bytes; it must be {wanted}")
    return secret


# --- fields ----------------------------------------------------------------------------------------------


def _mapping(where: str, value: object, known: Sequence[str]) -> Mapping[str, object]:
    if not isinstance(value, dict):
        _fail(where, "must be a mapping" if where else "must be a mapping with apiVersion, kind and resources")
    for name in value:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known) or 'none'}"
            _fail(where, f"unknown field {_shown(name)}; {hint}")
    return value


def _sequence(where: str, value: object) -> list[object]:
    if not isinstance(value, list) or not value:
        _fail(where, "must be a list with at least one entry")
    return value


def _shown(name: str) -> str:
    return repr(name) if _HARMLESS.fullmatch(name) else "(its name is not shown: it may be a secret)"


def _split(group_resource: str) -> _GroupResource:
    name, _, group = group_resource.partition(".")
    return name, group


def _joined(group_resource: _GroupResource) -> str:
    name, group = group_resource
    return f"{name}.{group}" if group or name == "*" else name


__all__ = ["EncryptionConfig", "load_encryption_config"]
