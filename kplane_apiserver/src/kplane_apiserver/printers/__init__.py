"""Printers: which columns `kubectl get` shows for a builtin kind, and how a row is made.

Exports:
    Column, Printer: the values.
    printer_for: the printer of a kind's (group, plural).
"""

from kplane_apiserver.printers import access, core, network, pods, workloads
from kplane_apiserver.printers.columns import Column, Printer

__all__ = ["Column", "Printer", "printer_for"]

_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"

_PRINTERS: dict[tuple[str, str], Printer] = {
    ("", "configmaps"): core.CONFIG_MAP,
    ("", "endpoints"): network.ENDPOINTS,
    ("", "events"): core.EVENT,
    ("", "limitranges"): access.NAME_AND_CREATED,
    ("", "namespaces"): core.NAMESPACE,
    ("", "nodes"): core.NODE,
    ("", "persistentvolumeclaims"): core.CLAIM,
    ("", "persistentvolumes"): core.VOLUME,
    ("", "pods"): pods.POD,
    ("", "podtemplates"): workloads.POD_TEMPLATE,
    ("", "replicationcontrollers"): workloads.REPLICA_SET,
    ("", "resourcequotas"): core.RESOURCE_QUOTA,
    ("", "secrets"): core.SECRET,
    ("", "serviceaccounts"): core.SERVICE_ACCOUNT,
    ("", "services"): network.SERVICE,
    (_ADMISSION, "mutatingadmissionpolicies"): access.ADMISSION_POLICY,
    (_ADMISSION, "mutatingadmissionpolicybindings"): access.ADMISSION_BINDING,
    (_ADMISSION, "mutatingwebhookconfigurations"): access.WEBHOOK_CONFIGURATION,
    (_ADMISSION, "validatingadmissionpolicies"): access.ADMISSION_POLICY,
    (_ADMISSION, "validatingadmissionpolicybindings"): access.ADMISSION_BINDING,
    (_ADMISSION, "validatingwebhookconfigurations"): access.WEBHOOK_CONFIGURATION,
    ("apiextensions.k8s.io", "customresourcedefinitions"): access.NAME_AND_CREATED,
    ("apiregistration.k8s.io", "apiservices"): access.API_SERVICE,
    ("apps", "controllerrevisions"): workloads.CONTROLLER_REVISION,
    ("apps", "daemonsets"): workloads.DAEMON_SET,
    ("apps", "deployments"): workloads.DEPLOYMENT,
    ("apps", "replicasets"): workloads.REPLICA_SET,
    ("apps", "statefulsets"): workloads.STATEFUL_SET,
    ("autoscaling", "horizontalpodautoscalers"): workloads.AUTOSCALER,
    ("batch", "cronjobs"): workloads.CRON_JOB,
    ("batch", "jobs"): workloads.JOB,
    ("certificates.k8s.io", "certificatesigningrequests"): core.SIGNING_REQUEST,
    ("coordination.k8s.io", "leases"): access.LEASE,
    ("discovery.k8s.io", "endpointslices"): network.ENDPOINT_SLICE,
    ("events.k8s.io", "events"): core.EVENT,
    (_FLOW, "flowschemas"): access.FLOW_SCHEMA,
    (_FLOW, "prioritylevelconfigurations"): access.PRIORITY_LEVEL,
    ("kplane.dev", "clusters"): access.CLUSTER,
    ("kplane.dev", "fleets"): access.FLEET,
    ("networking.k8s.io", "ingressclasses"): network.INGRESS_CLASS,
    ("networking.k8s.io", "ingresses"): network.INGRESS,
    ("networking.k8s.io", "ipaddresses"): network.IP_ADDRESS,
    ("networking.k8s.io", "networkpolicies"): network.NETWORK_POLICY,
    ("networking.k8s.io", "servicecidrs"): network.SERVICE_CIDR,
    ("node.k8s.io", "runtimeclasses"): access.RUNTIME_CLASS,
    ("policy", "poddisruptionbudgets"): workloads.DISRUPTION_BUDGET,
    (_RBAC, "clusterrolebindings"): access.ROLE_BINDING,
    (_RBAC, "clusterroles"): access.NAME_AND_CREATED,
    (_RBAC, "rolebindings"): access.ROLE_BINDING,
    (_RBAC, "roles"): access.NAME_AND_CREATED,
    ("scheduling.k8s.io", "priorityclasses"): access.PRIORITY_CLASS,
    (_STORAGE, "csidrivers"): access.CSI_DRIVER,
    (_STORAGE, "csinodes"): access.CSI_NODE,
    (_STORAGE, "storageclasses"): access.MARKED_STORAGE_CLASS,
    (_STORAGE, "volumeattachments"): access.VOLUME_ATTACHMENT,
    (_STORAGE, "volumeattributesclasses"): access.VOLUME_ATTRIBUTES_CLASS,
}


def printer_for(group: str, plural: str) -> Printer:
    """Return how a builtin kind is printed; name and age where it has no columns of its own."""
    return _PRINTERS.get((group, plural), access.NAME_AND_AGE)
