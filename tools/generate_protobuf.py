"""Write the API server's table of the protobuf messages that clients send for builtin kinds.

    go mod download k8s.io/api@v0.37.0 k8s.io/apimachinery@v0.37.0 \
        k8s.io/apiextensions-apiserver@v0.37.0 k8s.io/kube-aggregator@v0.37.0
    python tools/generate_protobuf.py --modules "$(go env GOMODCACHE)" --version v0.37.0

Two facts are joined. The published `generated.proto` files (Apache-2.0) give field numbers and types. The tags of the
Go structs beside them give what the wire cannot say: the JSON name, whether a message is flattened into its parent,
and whether a zero was meant (a pointer) or is only the encoder's habit of always writing what is not a pointer.
"""

import argparse
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

DATA = Path(__file__).parent.parent / "kplane_apiserver/src/kplane_apiserver/data"
MODULES = ("api", "apimachinery", "apiextensions-apiserver", "kube-aggregator")
META = "k8s.io.apimachinery.pkg.apis.meta.v1"
# Bodies that are not resources: (apiVersion, kind). The options are also sent under the apiVersion of the resource.
ENVELOPES = {
    "autoscaling/v1/Scale": "k8s.io.api.autoscaling.v1.Scale",
    "authentication.k8s.io/v1/TokenRequest": "k8s.io.api.authentication.v1.TokenRequest",
    "policy/v1/Eviction": "k8s.io.api.policy.v1.Eviction",
    "v1/Binding": "k8s.io.api.core.v1.Binding",
    "v1/Status": f"{META}.Status",
}
OPTIONS = ("CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions")
# The package of a group where it is not the group's first label.
PACKAGES = {
    "": "api.core",
    "rbac.authorization.k8s.io": "api.rbac",
    "flowcontrol.apiserver.k8s.io": "api.flowcontrol",
    "apiextensions.k8s.io": "apiextensions_apiserver.pkg.apis.apiextensions",
    "apiregistration.k8s.io": "kube_aggregator.pkg.apis.apiregistration",
}
# Messages whose JSON form is not an object of their fields; `protobuf.py` knows each.
LEAVES = {
    f"{META}.Time": "time",
    f"{META}.MicroTime": "microtime",
    f"{META}.Duration": "duration",
    f"{META}.FieldsV1": "json",
    "k8s.io.apimachinery.pkg.api.resource.Quantity": "quantity",
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "k8s.io.apimachinery.pkg.runtime.RawExtension": "raw-extension",
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSON": "json",
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray": "schema-or-schemas",
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool": "schema-or-bool",
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray": "schema-or-names",
}
SCALARS = {"string", "bool", "int32", "int64", "bytes", "double"}
MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^  (?:(optional|repeated) (\S+)|map<(\w+), (\S+)>) (\w+) = (\d+);", re.MULTILINE)
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
SLICE_TYPE = re.compile(r"^type (\w+) \[\]", re.MULTILINE)
TAGGED = re.compile(r"^\s+(?:\w+\s+)?(\*?)([^\s`]+)\s+`([^`]*protobuf:\"[^`]*)`", re.MULTILINE)

Table = dict[str, dict[str, Any]]


@attrs.frozen
class Tag:
    """What a Go struct tag says of one field.

    Attributes:
        json_name: its name in JSON; empty where it is flattened into its parent.
        pointer: whether a zero on the wire was set on purpose.
        omit_empty: whether JSON leaves a zero out.
    """

    json_name: str
    pointer: bool
    omit_empty: bool


def packages(modules: Path, version: str) -> Iterator[tuple[str, str, str]]:
    """Yield (protobuf package, its .proto text, its Go text)."""
    for module in MODULES:
        folder = modules / "k8s.io" / f"{module}@{version}"
        if not folder.is_dir():
            raise SystemExit(f"{folder} does not exist: run the `go mod download` of this script's head first")
        for path in sorted(folder.rglob("generated.proto")):
            text = path.read_text()
            name = re.search(r"^package (\S+);", text, re.MULTILINE)
            assert name is not None
            sources = [one.read_text() for one in sorted(path.parent.glob("*.go")) if _is_source(one.name)]
            yield name.group(1), text, "\n".join(sources)


def _is_source(name: str) -> bool:
    return not name.endswith(("_test.go", "generated.pb.go")) and not name.startswith("zz_")


def tags(go_source: str) -> dict[str, dict[str, Tag]]:
    """Return, by struct and protobuf field name, what the tags say."""
    found: dict[str, dict[str, Tag]] = {}
    for struct, body in STRUCT.findall(go_source):
        for star, go_type, text in TAGGED.findall(body):
            named = re.search(r'protobuf:"[^"]*name=(\w+)', text)
            # One embedded struct has no name in its tag; its type's name is meant.
            name = named.group(1) if named else go_type[:1].lower() + go_type[1:]
            written = re.search(r'json:"([^"]*)"', text)
            json_name, _, options = (written.group(1) if written else name).partition(",")
            omit = bool({"omitempty", "omitzero"} & set(options.split(",")))
            found.setdefault(struct, {})[name] = Tag(json_name, bool(star), omit)
    return found


def messages(package: str, proto: str, go_source: str) -> Iterator[tuple[str, Any]]:
    """Yield (full name, entry) for each message of a package."""
    known, slices = tags(go_source), set(SLICE_TYPE.findall(go_source))
    for name, body in MESSAGE.findall(proto):
        if name in slices:  # a named slice: a message with the one field `items`, a plain list in JSON
            yield f"{package}.{name}", "list"
            continue
        fields: dict[str, list[Any]] = {}
        for label, kind, map_key, map_value, field, number in FIELD.findall(body):
            tag = known.get(name, {}).get(field)
            if tag is None or tag.json_name == "-":
                continue  # a leaf's inner field, or one that JSON does not show
            marks = ("r" * (label == "repeated")) + ("p" * tag.pointer) + ("o" * tag.omit_empty)
            if map_key:
                assert map_key == "string"
                fields[number] = [tag.json_name, f"map:{_full(map_value, package)}", marks]
            else:
                fields[number] = [tag.json_name, _full(kind, package), marks + "i" * (not tag.json_name)]
        yield f"{package}.{name}", fields


def _full(kind: str, package: str) -> str:
    if kind in SCALARS:
        return kind
    return kind[1:] if kind.startswith(".") else f"{package}.{kind}"


def kind_names(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the message of each builtin kind, by `group/version/Kind` (`v1/Kind` in the core group)."""
    names = dict(ENVELOPES)
    for row in rows:
        group, version, kind = row["group"], row["version"], row["kind"]
        if group == "kplane.dev":
            continue
        package = PACKAGES.get(group) or f"api.{group.partition('.')[0]}"
        names[f"{group}/{version}/{kind}" if group else f"{version}/{kind}"] = f"k8s.io.{package}.{version}.{kind}"
    return names


def trimmed(table: Mapping[str, Any], roots: list[str]) -> Table:
    """Return the messages that the roots reach, leaves named by their form."""
    kept: Table = {}
    waiting = sorted(roots)
    while waiting:
        name = waiting.pop()
        if name in kept:
            continue
        kept[name] = {}
        for number, (json_name, kind, marks) in sorted(table[name].items(), key=lambda item: int(item[0])):
            prefix, _, inner = kind.rpartition(":")
            form = _form(inner, table)
            if form == inner and inner not in SCALARS:
                waiting.append(inner)
            kept[name][number] = [json_name, f"{prefix}:{form}" if prefix else form, marks]
    return {name: kept[name] for name in sorted(kept)}


def _form(kind: str, table: Mapping[str, Any]) -> str:
    if kind in LEAVES:
        return LEAVES[kind]
    return "list" if table.get(kind) == "list" else kind


def shortened(value: Any) -> Any:
    """Return the table with the common prefix of all message names dropped."""
    if isinstance(value, str):
        return value.replace("k8s.io.apimachinery.pkg.apis.meta", "meta").replace("k8s.io.", "")
    if isinstance(value, list):
        return [value[0], *map(shortened, value[1:])]
    return {shortened(key): shortened(inner) for key, inner in value.items()}


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=Path, required=True, help="Go's module cache")
    parser.add_argument("--version", default="v0.37.0", help="the modules' version")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder to write to")
    arguments = parser.parse_args()
    table = {
        name: entry
        for package, proto, go_source in packages(arguments.modules, arguments.version)
        for name, entry in messages(package, proto, go_source)
    }
    names = kind_names(json.loads((arguments.data / "kinds.json").read_text()))
    options = {kind: f"{META}.{kind}" for kind in OPTIONS}
    kept = trimmed(table, [*names.values(), *options.values()])
    document = {"kinds": shortened(names), "options": shortened(options), "messages": shortened(kept)}
    text = json.dumps(document, separators=(",", ":"))
    (arguments.data / "protobuf.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    fields = sum(map(len, kept.values()))
    print(f"{len(names)} kinds, {len(kept)} messages, {fields} fields -> {arguments.data / 'protobuf.json.gz'}")


if __name__ == "__main__":
    main()
