"""Write the API server's tables of the builtin kinds and of their fields.

    pip install --group generate
    python tools/generate_kinds.py

The facts come from two published packages: lightkube-models (MIT) knows the resources and their verbs,
kubernetes-validate (Apache-2.0) carries the schemas with their list types and patch strategies. What neither says
stands in `kinds.toml`.

Only versions that upstream has on by default are kept (`v1`, `v2`...); it serves beta and alpha versions when asked to.
"""

import argparse
import ast
import gzip
import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATA = HERE.parent / "kplane_apiserver/src/kplane_apiserver/data"
STABLE = re.compile(r"v[0-9]+")
SCHEMAS = "v1.37.0-local/_definitions.json"
VERBS = {"post": "create", "put": "update", "global_list": "list", "global_watch": "watch"}
# Kinds that are the body of a request or an answer, never a resource of their own.
ENVELOPES = (
    ("autoscaling", "v1", "Scale"),
    ("authentication.k8s.io", "v1", "TokenRequest"),
    ("policy", "v1", "Eviction"),
    ("", "v1", "Binding"),
    ("", "v1", "Status"),
    ("", "v1", "DeleteOptions"),
)
# Leaves whose JSON form is not what their schema's `type` says.
LEAVES = {
    "apimachinery.pkg.api.resource.Quantity": "quantity",
    "apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "apimachinery.pkg.apis.meta.v1.Time": "string",
    "apimachinery.pkg.apis.meta.v1.MicroTime": "string",
    "apimachinery.pkg.apis.meta.v1.FieldsV1": "any",
    "apimachinery.pkg.runtime.RawExtension": "any",
}

Row = dict[str, Any]


def package_folder(name: str) -> Path:
    """Return where an installed package lies, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name} is not installed here: run `pip install --group generate` first")
    return Path(next(iter(spec.submodule_search_locations)))


# --- resources --------------------------------------------------------------------------------------------------------


def api_infos(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (base class, arguments of its ApiInfo) for every resource class, read from the source text."""
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.ClassDef):
                continue
            for statement in node.body:
                if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "_api_info":
                    assert isinstance(statement.value, ast.Call)
                    yield ast.unparse(node.bases[0]).split(".")[-1], _arguments(statement.value)


def _arguments(call: ast.Call) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for keyword in call.keywords:
        assert keyword.arg
        value = keyword.value
        if isinstance(value, ast.Call):  # ResourceDef(group, version, kind)
            values[keyword.arg] = tuple(ast.literal_eval(item) for item in value.args)
        else:
            values[keyword.arg] = ast.literal_eval(value)
    return values


def kind_rows(folder: Path, table: Mapping[str, Any]) -> list[Row]:
    """Return one row per resource and version, in the order that discovery lists them."""
    rows: dict[tuple[str, str, str], Row] = {}
    subresources: dict[tuple[str, str, str], set[str]] = {}
    for base, info in api_infos(folder):
        group, version, kind = info.get("parent", info["resource"])
        key = (group, version, info["plural"])
        if not STABLE.fullmatch(version):
            continue
        if "action" in info:
            subresources.setdefault(key, set()).add(info["action"])
        elif _resource_name(info["plural"], group) not in table["omitted"]:
            rows[key] = _row(key, kind, namespaced=base.startswith("Namespaced"), verbs=info["verbs"])
    for key, row in rows.items():
        row["subresources"] = sorted(subresources.get(key, set()) & set(table["subresources"]))
    everything = [*rows.values(), *({**row, "list_kind": row["kind"] + "List"} for row in table["own"])]
    for row in everything:
        _complete(row, table)
    return sorted(everything, key=lambda row: _order(row, table))


def _resource_name(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def _row(key: tuple[str, str, str], kind: str, *, namespaced: bool, verbs: list[str]) -> Row:
    group, version, plural = key
    return {
        "group": group,
        "version": version,
        "kind": kind,
        "plural": plural,
        "singular": kind.lower(),
        "list_kind": kind + "List",
        "namespaced": namespaced,
        "verbs": sorted({VERBS.get(verb, verb) for verb in verbs}),
    }


def _complete(row: Row, table: Mapping[str, Any]) -> None:
    resource = _resource_name(row["plural"], row["group"])
    row["short_names"] = table["short_names"].get(resource, [])
    row["categories"] = [name for name, members in table["categories"].items() if resource in members]


def _order(row: Row, table: Mapping[str, Any]) -> tuple[int, int, str]:
    """Groups as the table lists them, a group's newest version first, then the plural."""
    group = row["group"]
    if group and group not in table["group_order"]:
        raise SystemExit(f"tools/kinds.toml: group_order lacks {group!r}")
    rank = table["group_order"].index(group) if group else -1
    return rank, -int(row["version"][1:]), row["plural"]


def mark_preferred(rows: list[Row], shared: Mapping[str, Row]) -> None:
    """Mark the first, that is the newest, version of each group and name the version its objects are stored in.

    Args:
        rows: the rows, in discovery's order.
        shared: resource -> the group and version of another resource in whose store its objects lie.
    """
    preferred: dict[str, str] = {}
    stored: dict[tuple[str, str], str] = {}
    for row in rows:
        row["preferred"] = preferred.setdefault(row["group"], row["version"]) == row["version"]
        row["storage_version"] = stored.setdefault((row["group"], row["plural"]), row["version"])
        if where := shared.get(_resource_name(row["plural"], row["group"])):
            row["storage_group"], row["storage_version"] = where["group"], where["version"]


# --- fields -----------------------------------------------------------------------------------------------------------


def field_table(definitions: Mapping[str, Any], rows: list[Row]) -> dict[str, Any]:
    """Return the field table: which definition a kind has, and what each field of a definition is."""
    named = {name.removeprefix("io.k8s."): schema for name, schema in definitions.items()}
    wanted = {(row["group"], row["version"], row["kind"]) for row in rows} | set(ENVELOPES)
    kinds: dict[str, str] = {}
    for name, schema in sorted(named.items()):
        for gvk in schema.get("x-kubernetes-group-version-kind", ()):
            key = (gvk["group"], gvk["version"], gvk["kind"])
            if key in wanted:
                kinds[f"{gvk['group']}/{gvk['version']}/{gvk['kind']}"] = name
    types: dict[str, Any] = {}
    open_names = sorted(set(kinds.values()))
    while open_names:
        name = open_names.pop()
        if name not in types:
            types[name] = _definition(named[name])
            open_names += sorted(_references(types[name]))
    return {"kinds": kinds, "types": {name: types[name] for name in sorted(types)}}


def _definition(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: _spec(field) for name, field in sorted(schema.get("properties", {}).items())}
    entry: dict[str, Any] = {"fields": fields}
    if schema.get("x-kubernetes-map-type") == "atomic":
        entry["atomic"] = True
    return entry


def _spec(field: Mapping[str, Any]) -> Any:
    if "$ref" in field:
        name = field["$ref"].removeprefix("#/$defs/").removeprefix("io.k8s.")
        spec = LEAVES.get(name) or {"ref": name}
        return _marked(spec, field)
    kind = field.get("type", "any")
    plain = kind if isinstance(kind, str) else next(item for item in kind if item != "null")
    if plain == "array":
        return _marked({"list": _spec(field["items"])}, field)
    if plain == "object" and "additionalProperties" in field:
        return _marked({"map": _spec(field["additionalProperties"])}, field)
    return "any" if plain == "object" else "bytes" if field.get("format") == "byte" else plain


def _marked(spec: Any, field: Mapping[str, Any]) -> Any:
    marks = {
        "type": field.get("x-kubernetes-list-type"),
        "keys": field.get("x-kubernetes-list-map-keys"),
        "merge_key": field.get("x-kubernetes-patch-merge-key"),
        "strategy": field.get("x-kubernetes-patch-strategy"),
        "atomic": field.get("x-kubernetes-map-type") == "atomic" or None,
    }
    found = {name: mark for name, mark in marks.items() if mark is not None}
    return {**spec, **found} if found and isinstance(spec, dict) else spec


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(reference := value.get("ref"), str):
            yield reference
        for inner in value.values():
            yield from _references(inner)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_kinds(path: Path, rows: list[Row]) -> None:
    """Write one row a line, so that a new Kubernetes release reads well as a difference."""
    lines = ",\n".join(json.dumps(row, separators=(", ", ": "), sort_keys=True) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")


def write_compressed(path: Path, document: Any) -> None:
    """Write JSON as gzip; the same facts give the same bytes."""
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main() -> None:
    """Write both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder to write to")
    folder: Path = parser.parse_args().data
    table = tomllib.loads((HERE / "kinds.toml").read_text())
    rows = kind_rows(package_folder("lightkube") / "resources", table)
    mark_preferred(rows, table["stored_with"])
    write_kinds(folder / "kinds.json", rows)
    schemas = package_folder("kubernetes_validate") / "kubernetes-json-schema" / SCHEMAS
    fields = field_table(json.loads(schemas.read_text())["$defs"], rows)
    write_compressed(folder / "merge_keys.json.gz", fields)
    print(f"{len(rows)} rows, {len(fields['types'])} definitions of {len(fields['kinds'])} kinds -> {folder}")


if __name__ == "__main__":
    main()
