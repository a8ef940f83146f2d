"""The objects that the benchmarks store: ConfigMaps of a given size, and pods as people write them."""

from typing import Any


def config_map(name: str, size: int = 1600) -> dict[str, Any]:
    """Return a ConfigMap whose JSON has about `size` bytes."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "data": {"payload": "x" * max(size - 300, 0)},
    }


def pod(name: str, node: str = "node-1") -> dict[str, Any]:
    """Return a pod of about 1,600 bytes: two containers with probes and resources."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "web", "tier": "frontend", "pod-template-hash": "5d4f8c7b9"},
            "annotations": {"example.com/config-hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"},
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": "Always",
            "serviceAccountName": "default",
            "containers": [container("web", 8080), container("sidecar", 9090)],
            "volumes": [{"name": "config", "configMap": {"name": "web-config"}}],
        },
        "status": {"phase": "Pending"},
    }


def container(name: str, port: int, image: str = "") -> dict[str, Any]:
    """Return a container as pods and Deployments have it, of a given image or of one that is named like it."""
    return {
        "name": name,
        "image": f"registry.example.com/{image or f'team/{name}:1.27.4'}",
        "args": ["--listen", f"0.0.0.0:{port}", "--log-level", "info"],
        "env": [{"name": "MODE", "value": "production"}, {"name": "REGION", "value": "eu-central-1"}],
        "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": port}, "periodSeconds": 10},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/web"}],
    }
