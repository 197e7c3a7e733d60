"""What manifests of KubeRay may hold, and where one does not.

Fields of ray.io/v1 as the API reference of KubeRay 1.6 lists them: name -> type, with * for those that must
be there. A dict is an object with these fields, a list of one dict is a list of such objects, a set names
the values, "map" is an object of strings.
"""

CONTAINER = {
    "name*": str,
    "image*": str,
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "command": [str],
    "args": [str],
    "env": [{"name*": str, "value": str, "valueFrom": dict}],
    "envFrom": [dict],
    "ports": [{"containerPort*": int, "name": str, "protocol": str}],
    "resources*": {"limits*": "map", "requests": "map"},
    "volumeMounts": [{"name*": str, "mountPath*": str, "subPath": str, "readOnly": bool}],
    "securityContext": dict,
}
POD_TEMPLATE = {
    "metadata": {"labels": "map", "annotations": "map"},
    "spec*": {
        "containers*": [CONTAINER],
        "initContainers": [CONTAINER],
        "volumes": [dict],
        "nodeSelector": "map",
        "tolerations": [dict],
        "affinity": dict,
        "serviceAccountName": str,
        "imagePullSecrets": [{"name*": str}],
        "securityContext": dict,
    },
}
HEAD_GROUP = {
    "template*": POD_TEMPLATE,
    "headService": dict,
    "enableIngress": bool,
    "resources": "map",
    "labels": "map",
    "rayStartParams": "map",
    "serviceType": {"ClusterIP", "NodePort", "LoadBalancer"},
}
WORKER_GROUP = {
    "suspend": bool,
    "groupName*": str,
    "replicas": int,
    "minReplicas*": int,
    "maxReplicas*": int,
    "idleTimeoutSeconds": int,
    "resources": "map",
    "labels": "map",
    "rayStartParams": "map",
    "template*": POD_TEMPLATE,
    "scaleStrategy": {"workersToDelete": [str]},
    "numOfHosts": int,
}
CLUSTER_SPEC = {
    "upgradeStrategy": {"type": {"Recreate", "None"}},
    "authOptions": {"mode": {"disabled", "token"}, "secretName": str, "enableK8sTokenAuth": bool},
    "suspend": bool,
    "managedBy": {"ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"},
    "autoscalerOptions": {
        "resources": {"limits": "map", "requests": "map"},
        "image": str,
        "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
        "securityContext": dict,
        "idleTimeoutSeconds": int,
        "upscalingMode": {"Default", "Aggressive", "Conservative"},
        "version": {"v1", "v2"},
        "env": [dict],
        "envFrom": [dict],
        "volumeMounts": [dict],
    },
    "headServiceAnnotations": "map",
    "enableInTreeAutoscaling": bool,
    "gcsFaultToleranceOptions": dict,
    "headGroupSpec*": HEAD_GROUP,
    "rayVersion": str,
    "workerGroupSpecs": [WORKER_GROUP],
}
JOB_SPEC = {
    "activeDeadlineSeconds": int,
    "backoffLimit": int,
    "rayClusterSpec": CLUSTER_SPEC,
    "submitterPodTemplate": POD_TEMPLATE,
    "metadata": "map",
    "clusterSelector": "map",
    "submitterConfig": {"backoffLimit": int},
    "managedBy": {"ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"},
    "deletionStrategy": dict,
    "entrypoint": str,
    "runtimeEnvYAML": str,
    "jobId": str,
    "submissionMode": {"K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"},
    "entrypointResources": str,
    "entrypointNumCpus": float,
    "entrypointNumGpus": float,
    "ttlSecondsAfterFinished": int,
    "preRunningDeadlineSeconds": int,
    "shutdownAfterJobFinishes": bool,
    "suspend": bool,
}

SERVICE_SPEC = {
    "rayClusterDeletionDelaySeconds": int,
    "managedBy": {"ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"},
    "serviceUnhealthySecondThreshold": int,
    "deploymentUnhealthySecondThreshold": int,
    "serveService": dict,
    "upgradeStrategy": {"type": {"NewCluster", "NewClusterWithIncrementalUpgrade", "None"}},
    "serveConfigV2": str,
    "rayClusterConfig*": CLUSTER_SPEC,
    "excludeHeadPodFromServeSvc": bool,
}


def manifest(kind, spec):
    return {
        "apiVersion*": {"ray.io/v1"},
        "kind*": {kind},
        "metadata*": {"name*": str, "namespace": str, "labels": "map", "annotations": "map"},
        "spec*": spec,
    }


MANIFESTS = {
    "RayCluster": manifest("RayCluster", CLUSTER_SPEC),
    "RayJob": manifest("RayJob", JOB_SPEC),
    "RayService": manifest("RayService", SERVICE_SPEC),
}


def faults(value, schema, where=""):
    """All places where a value does not fit a description of its fields, as sentences."""
    if schema == "map":
        good = isinstance(value, dict) and all(
            isinstance(key, str) and isinstance(part, str) for key, part in value.items()
        )
        return [] if good else [f"{where} must be an object of strings"]
    if isinstance(schema, set):
        return [] if value in schema else [f"{where} must be one of {sorted(schema)}, is {value!r}"]
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{where} must be a list"]
        return [fault for i, part in enumerate(value) for fault in faults(part, schema[0], f"{where}[{i}]")]
    if isinstance(schema, type):
        right = isinstance(value, schema | int if schema is float else schema) and (
            schema is bool or not isinstance(value, bool)
        )
        return [] if right else [f"{where} must be a {schema.__name__}, is {value!r}"]
    if not isinstance(value, dict):
        return [f"{where} must be an object"]
    known = {name.rstrip("*"): part for name, part in schema.items()}
    found = [f"{where} has no field {name!r}" for name in value if name not in known]
    found += [
        f"{where} needs the field {name[:-1]!r}"
        for name in schema
        if name.endswith("*") and name[:-1] not in value
    ]
    return found + [
        fault
        for name, part in value.items()
        if name in known
        for fault in faults(part, known[name], f"{where}.{name}")
    ]
