"""An operator: it paints parrots, and keeps a ConfigMap with the colour of each."""

import kopf
import kubernetes


@kopf.on.create("example.org", "v1", "parrots")
@kopf.on.update("example.org", "v1", "parrots", field="spec.colour")
def paint(name, namespace, spec, patch, **_):
    api = kubernetes.client.CoreV1Api()
    wanted = {"metadata": {"name": name}, "data": {"colour": spec["colour"]}}
    try:
        api.create_namespaced_config_map(namespace, wanted)
    except kubernetes.client.ApiException as error:
        if error.status != 409:
            raise
        api.patch_namespaced_config_map(name, namespace, wanted)
    patch.status["painted"] = spec["colour"]
