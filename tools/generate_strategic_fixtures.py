"""Record what upstream's own library makes of strategic merge patches, as fixtures of the patch tests.

    python tools/generate_strategic_fixtures.py

Needs Go. Random objects and patches like those that kubectl sends are given to `k8s.io/apimachinery`'s strategicpatch;
objects, patches and results are written to tests/apiserver/data/strategic_merge.json.gz. Left out are patches on which
upstream fails with an error about its own workings, and those that delete elements and order the same list: there the
order of upstream's result depends on slices that share memory.
"""

import argparse
import gzip
import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).parent.parent / "tests/apiserver/data/strategic_merge.json.gz"
MODULE = "module fixtures\ngo 1.24\nrequire (\n k8s.io/api {version}\n k8s.io/apimachinery {version}\n)\n"
PROGRAM = """
package main

import (
	"encoding/json"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func main() {
	kinds := map[string]any{"pods": corev1.Pod{}, "services": corev1.Service{}, "deployments": appsv1.Deployment{}}
	var cases []struct {
		Resource    string
		Live, Patch map[string]any
	}
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	results := []map[string]any{}
	for _, one := range cases {
		result, err := strategicpatch.StrategicMergeMapPatch(one.Live, one.Patch, kinds[one.Resource])
		if err != nil {
			result = map[string]any{"error": err.Error()}
		}
		results = append(results, result)
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		panic(err)
	}
}
"""
MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "ownerReferences": "uid",
    "conditions": "type",
}
KEYS = {*MERGE_KEYS.values(), "containerPort", "port", "key"}


class Cases:
    """Makes random objects and patches of them.

    Args:
        seed: the same seed makes the same cases.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - examples, no secrets

    def chance(self, percent: int) -> bool:
        """Return True in so many of a hundred cases."""
        return self.random.randrange(100) < percent

    def some(self, values: str | list[Any]) -> list[Any]:
        """Return a few of the values in any order."""
        return self.random.sample(list(values), self.random.randint(0, min(4, len(values))))

    def maybe(self, percent: int, name: str, value: Any) -> dict[str, Any]:
        """Return an object with one field, or without."""
        return {name: value} if self.chance(percent) else {}

    def named(self, key: str, values: str | list[Any], **more: Any) -> list[dict[str, Any]]:
        """Return list elements named by `key`."""
        return [{key: value, **more} for value in self.some(values)]

    def container(self, name: str) -> dict[str, Any]:
        """Return a container."""
        return {
            "name": name,
            **self.maybe(60, "image", self.random.choice("xyz")),
            **self.maybe(40, "env", self.named("name", "abcd", value=self.random.choice("123"))),
            **self.maybe(30, "ports", self.named("containerPort", [80, 81, 82])),
            **self.maybe(30, "args", self.some("123")),
            **self.maybe(20, "volumeMounts", self.named("mountPath", ["/a", "/b"], name="v")),
            **self.maybe(20, "resources", {"limits": {"cpu": self.random.choice("12")}}),
        }

    def pod_spec(self) -> dict[str, Any]:
        """Return the spec of a pod."""
        return {
            **self.maybe(90, "containers", [self.container(name) for name in self.some("abcdef")]),
            **self.maybe(40, "volumes", self.named("name", "abcd", emptyDir={})),
            **self.maybe(30, "tolerations", self.named("key", "abcd")),
            **self.maybe(30, "nodeSelector", dict.fromkeys(self.some("abcd"), "1")),
            **self.maybe(30, "imagePullSecrets", self.named("name", "abcd")),
            **self.maybe(20, "hostname", self.random.choice("pq")),
        }

    def object(self, resource: str) -> dict[str, Any]:
        """Return an object of a resource, or the plain part of a patch of one."""
        spec = self.pod_spec()
        if resource == "deployments":
            strategy = {"type": self.random.choice(["Recreate", "RollingUpdate"])}
            spec = {"template": {"spec": spec}, **self.maybe(40, "strategy", strategy)}
        if resource == "services":
            spec = {"ports": self.named("port", [80, 81, 82], protocol="TCP", targetPort=self.random.randint(1, 3))}
        metadata = {
            **self.maybe(40, "labels", dict.fromkeys(self.some("abcd"), self.random.choice("12"))),
            **self.maybe(40, "finalizers", self.some("abcd")),
            **self.maybe(30, "ownerReferences", self.named("uid", "abcd", name="o")),
        }
        conditions = {"conditions": self.named("type", "abcd", status=self.random.choice(["True", "False"]))}
        return {**self.maybe(70, "metadata", metadata), "spec": spec, **self.maybe(30, "status", conditions)}

    def patch(self, value: Any) -> Any:
        """Return a value of a patch with directives and nulls in it."""
        if isinstance(value, list):
            return [self.patch(item) for item in value]
        if not isinstance(value, dict):
            return value
        result: dict[str, Any] = {}
        for name, inner in value.items():
            if name not in KEYS and self.chance(6):
                result[name] = None
                continue
            result[name] = self.patch(inner)
            if isinstance(inner, list):
                result.update(self.list_directive(name, inner, result[name]))
        if self.chance(4):
            result["$retainKeys"] = [name for name in result if not name.startswith("$")]
        return result

    def list_directive(self, name: str, plain: list[Any], items: list[Any]) -> dict[str, Any]:
        """Return a directive beside a list, or put one into it."""
        if name == "finalizers":
            gone = [one for one in "abcdef" if one not in plain and self.chance(40)]
            return self.maybe(50, "$deleteFromPrimitiveList/finalizers", gone)
        key = MERGE_KEYS.get(name)
        if name == "ports":
            key = "port" if plain and "port" in plain[0] else "containerPort"
        if key is None:
            return {}
        known = [item[key] for item in plain]
        others = [one for one in ([80, 81, 82] if name == "ports" else "abcd") if one not in known]
        if self.chance(30):
            items += [{"$patch": "delete", key: one} for one in self.some(others)]
        elif self.chance(40) and known:
            for one in self.some(others):
                known.insert(self.random.randint(0, len(known)), one)
            return {f"$setElementOrder/{name}": [{key: one} for one in known]}
        elif self.chance(10):
            items.insert(self.random.randint(0, len(items)), {"$patch": "replace"})
        return {}


def upstream_results(cases: list[dict[str, Any]], version: str) -> list[dict[str, Any]]:
    """Return what upstream makes of each case; an object with `error` where it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "go.mod").write_text(MODULE.format(version=version))
        Path(folder, "main.go").write_text(PROGRAM)
        subprocess.run(["go", "mod", "tidy"], cwd=folder, check=True)  # noqa: S607 - the caller's own Go
        done = subprocess.run(
            ["go", "run", "."],  # noqa: S607 - as above
            cwd=folder,
            input=json.dumps(cases).encode(),
            capture_output=True,
            check=True,
        )
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


def main() -> None:
    """Write the fixture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="v0.37.0", help="of k8s.io/api and k8s.io/apimachinery")
    parser.add_argument("--cases", type=int, default=600)
    arguments = parser.parse_args()
    make = Cases(seed=1)
    cases = []
    for _ in range(arguments.cases):
        resource = make.random.choice(["pods", "deployments", "services"])
        live, patch = make.object(resource), make.patch(make.object(resource))
        cases.append({"resource": resource, "live": live, "patch": patch})
    results = upstream_results(cases, arguments.version)
    kept = [{**one, "result": result} for one, result in zip(cases, results, strict=True) if "error" not in result]
    FIXTURE.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), 9, mtime=0))
    print(f"{len(kept)} of {len(cases)} cases -> {FIXTURE}")


if __name__ == "__main__":
    main()
