"""Files to launch clusters with: parsed, checked field by field, and one job that really runs."""

import contextlib
import copy
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

import raymkl
from tests.processes import births, free_ports, own_processes, strike, wait_for

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "cluster_configs"
RAY_UP = ("ray_up_aws.yaml", "ray_up_own_machines.yaml")
KUBERAY = ("kuberay_cluster.yaml", "kuberay_job.yaml", "kuberay_service.yaml")
RAY_VERSION = "2.60.0"


def parsed(name):
    return yaml.safe_load((CONFIGS / name).read_text())


# -- ray up ----------------------------------------------------------------------------------------


def validated(config):
    """What `ray up` makes of a configuration: defaults filled in, then its own check."""
    pytest.importorskip("jsonschema")
    util = pytest.importorskip("ray.autoscaler._private.util")
    prepared = util.prepare_config(copy.deepcopy(config))
    util.validate_config(prepared)
    return prepared


@pytest.mark.parametrize("name", RAY_UP)
def test_ray_accepts_the_files_of_ray_up(name):
    prepared = validated(parsed(name))
    workers = [kind for kind in prepared["available_node_types"].values() if kind["max_workers"] > 0]
    assert workers and all(
        kind["min_workers"] <= kind["max_workers"] <= prepared["max_workers"] for kind in workers
    )


def test_the_check_of_ray_can_fail():
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.raises(jsonschema.ValidationError, match="setup_command"):
        validated({**parsed(RAY_UP[0]), "setup_command": ["pip install raymkl"]})
    with pytest.raises(ValueError, match="head_node_type"):
        validated({**parsed(RAY_UP[0]), "head_node_type": "nobody"})


@pytest.mark.parametrize("name", RAY_UP)
def test_nodes_of_ray_up_ask_for_a_token(name):
    """All nodes have the token that the user made, start with the mode that asks for it, and keep it for
    jobs.
    """
    config = parsed(name)
    mounted = {
        remote: local
        for remote, local in config["file_mounts"].items()
        if remote.endswith("/.ray/auth_token")
    }
    home = f"/home/{config['auth']['ssh_user']}"
    assert mounted == {f"{home}/.ray/auth_token": "~/.ray/auth_token"}
    for command in (config["head_start_ray_commands"][-1], config["worker_start_ray_commands"][-1]):
        assert re.match(r"RAY_AUTH_MODE=token \S*ray start ", command)
    assert any("export RAY_AUTH_MODE=token" in command for command in config["initialization_commands"])
    assert not any("0.0.0.0" in command for command in config["head_start_ray_commands"])
    # What is synchronised from the head to workers must have the same absolute path on both.
    assert all(remote.startswith(home) for remote in config["file_mounts"])


def cluster_of(config):
    """The cluster that a manifest of KubeRay describes."""
    return config["spec"].get(
        {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}.get(config["kind"], ""), config["spec"]
    )


def test_heads_leave_the_work_to_workers():
    assert parsed("ray_up_aws.yaml")["available_node_types"]["head"]["resources"] == {"CPU": 0}
    assert "--num-cpus=0" in parsed("ray_up_own_machines.yaml")["head_start_ray_commands"][-1]
    for spec in map(cluster_of, map(parsed, KUBERAY)):
        assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


# -- KubeRay ---------------------------------------------------------------------------------------
# Fields of ray.io/v1 as the API reference of KubeRay 1.6 lists them: name -> type, with * for those that must
# be there. A dict is an object with these fields, a list of one dict is a list of such objects, a set names
# the values, "map" is an object of strings.

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


@pytest.mark.parametrize("name", KUBERAY)
def test_kuberay_manifests_have_documented_fields(name):
    config = parsed(name)
    assert faults(config, MANIFESTS[config["kind"]]) == []


@pytest.mark.parametrize(
    "change, fault",
    [
        (lambda config: config.update(apiVersion="ray.io/v1alpha1"), "apiVersion"),
        (lambda config: config["spec"].update(raVersion="2.60.0"), "raVersion"),
        (lambda config: config["spec"].pop("headGroupSpec"), "headGroupSpec"),
        (lambda config: config["spec"]["authOptions"].update(mode="password"), "mode"),
        (lambda config: config["spec"]["headGroupSpec"].update(rayStartParams={"num-cpus": 0}), "strings"),
        (lambda config: config["spec"]["workerGroupSpecs"][0].update(replicas="2"), "replicas"),
        (lambda config: config["spec"]["workerGroupSpecs"][0].update(replicas=True), "replicas"),
        (
            lambda config: config["spec"]["workerGroupSpecs"][0]["template"]["spec"].pop("containers"),
            "containers",
        ),
        (lambda config: config["spec"].update(workerGroupSpecs={}), "list"),
    ],
)
def test_the_check_of_manifests_can_fail(change, fault):
    config = parsed("kuberay_cluster.yaml")
    change(config)
    found = faults(config, MANIFESTS["RayCluster"])
    assert len(found) == 1 and fault in found[0]


@pytest.mark.parametrize("name", KUBERAY)
def test_rules_of_the_operator(name):
    """What the operator refuses although every field is known."""
    config = parsed(name)
    spec = config["spec"]
    cluster = cluster_of(config)
    assert (
        re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", config["metadata"]["name"])
        and len(config["metadata"]["name"]) <= 47
    )
    assert cluster["authOptions"]["mode"] == "token"
    assert tuple(map(int, cluster["rayVersion"].split("."))) >= (2, 52, 0)  # the first with tokens
    containers = [*cluster["headGroupSpec"]["template"]["spec"]["containers"]]
    for group in cluster["workerGroupSpecs"]:
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        containers += group["template"]["spec"]["containers"]
    assert len({container["image"] for container in containers}) == 1
    for container in containers:
        assert (
            container["resources"]["limits"] == container["resources"]["requests"]
        )  # what Ray believes to have is what it has
    if config["kind"] == "RayJob":
        assert spec["ttlSecondsAfterFinished"] == 0 or spec["shutdownAfterJobFinishes"]
        assert spec["backoffLimit"] >= 0 and spec["activeDeadlineSeconds"] > 0


def test_serve_reads_what_the_service_runs():
    """Serve's own check of the configuration, and a builder that is there."""
    schema = pytest.importorskip("ray.serve.schema", reason="needs ray[serve]")
    config = yaml.safe_load(parsed("kuberay_service.yaml")["spec"]["serveConfigV2"])
    (application,) = schema.ServeDeploySchema.model_validate(config).applications
    assert application.import_path == "raymkl.serve:app" and callable(raymkl.serve.app)
    assert set(application.args) == {"model"} and [one.name for one in application.deployments] == ["raymkl"]
    with pytest.raises(ValueError, match="num_replicas"):
        config["applications"][0]["deployments"][0]["num_replicas"] = -1
        schema.ServeDeploySchema.model_validate(config)


def test_kubernetes_itself_reads_the_manifests():
    """Only where kubectl is installed: it parses them without a cluster."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    for name in KUBERAY:
        command = [
            "kubectl",
            "patch",
            "--local",
            "-f",
            CONFIGS / name,
            "--type=merge",
            "-p",
            "{}",
            "-o",
            "yaml",
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert result.returncode == 0, result.stderr
        assert yaml.safe_load(result.stdout)["spec"] == parsed(name)["spec"]


# -- all of them -----------------------------------------------------------------------------------


def test_one_version_of_ray_everywhere():
    files = [path for path in CONFIGS.iterdir() if path.name not in ("README.md", "submit.sh")]
    assert {path.name for path in files} == {*RAY_UP, *KUBERAY, "Dockerfile"}
    for path in files:
        found = set(re.findall(r"\b2\.\d+\.\d+\b", path.read_text())) - {"2.52.0"}
        assert found == {RAY_VERSION}, path.name


@pytest.mark.parametrize("name", [*RAY_UP, *KUBERAY])
def test_files_say_what_to_change_and_name_only_files_that_exist(name):
    text = (CONFIGS / name).read_text()
    assert "# To change:" in text and "token" in text
    for path in re.findall(r"\b(?:cluster_configs|examples)/[\w.]+", text):
        assert (ROOT / path).is_file(), path


def test_the_readme_of_the_configurations_names_every_file():
    text = (CONFIGS / "README.md").read_text()
    assert all(f"`{path.name}`" in text for path in CONFIGS.iterdir() if path.name != "README.md")


def test_submit_script_without_a_script():
    result = subprocess.run([CONFIGS / "submit.sh"], capture_output=True, text=True, timeout=900)
    assert result.returncode == 2 and "usage" in result.stderr
    assert subprocess.run(["bash", "-n", CONFIGS / "submit.sh"], timeout=300).returncode == 0


# -- for real --------------------------------------------------------------------------------------


@pytest.fixture
def job_server():
    """A cluster of its own with token authentication: address of its job server, and the environment that
    holds the token.
    """
    pytest.importorskip("ray.dashboard.optional_deps", reason="the job server needs ray[default]")
    pytest.importorskip("ray.job_submission")
    if not Path("/proc").is_dir():
        pytest.skip("cleaning up after a cluster needs /proc")
    folder = tempfile.mkdtemp(prefix="rk", dir="/tmp")  # short: Ray puts sockets there
    gcs, dashboard, agent, client = free_ports(4)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(16).hex()}
    options = {
        "port": gcs,
        "dashboard-port": dashboard,
        "dashboard-agent-listen-port": agent,
        "ray-client-server-port": client,
        "num-cpus": 2,
        "object-store-memory": 100 * 2**20,
        "temp-dir": folder,
    }
    command = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        "--include-dashboard=true",
    ]
    command += ["--disable-usage-stats", *(f"--{name}={value}" for name, value in options.items())]
    with open(f"{folder}/head.log", "w") as log:
        head = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        # The job server hands jobs to an agent, and gives up after ten seconds without one.
        for port in (dashboard, agent):
            wait_for_port(port, head, folder)
        yield f"http://127.0.0.1:{dashboard}", environment
    finally:
        ours = births(
            [head.pid, *own_processes(head.pid)]
        )  # taken now: those whose parents end are nobody's children
        head.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(60)
        strike(ours)
        head.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_port(port, head, folder, seconds=60):
    def answers():
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return head.poll() is not None
        return True

    answered = wait_for(answers, seconds)
    if head.poll() is not None:
        pytest.skip(f"ray start does not work here: {Path(folder, 'head.log').read_text()[-500:]}")
    if not answered:
        pytest.skip(f"the job server of ray start did not answer within {seconds} s")


def test_a_training_job_runs_on_a_cluster(job_server, tmp_path):
    """The examples as a user runs them: from a client that has the token.

    A client without it is turned away.
    """
    address, environment = job_server
    submit = [sys.executable, ROOT / "examples" / "submit_job.py", "--address", address]
    training = [
        ROOT / "examples" / "cluster_training.py",
        "--shards",
        "2",
        "--out",
        tmp_path / "model.raymkl",
    ]
    done = subprocess.run([*submit, *training], env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"accuracy 0\.9\d+, duality gap", done.stdout) and "SUCCEEDED" in done.stderr
    model = raymkl.load(tmp_path / "model.raymkl")
    assert model.converged_ and model.engine_used_ == "ray"

    (tmp_path / "fails.py").write_text("raise SystemExit('no luck')")
    failed = subprocess.run(
        [*submit, tmp_path / "fails.py"], env=environment, capture_output=True, text=True, timeout=900
    )
    assert failed.returncode == 1 and "no luck" in failed.stdout and "FAILED" in failed.stderr

    stranger = {**environment, "RAY_AUTH_TOKEN": "0" * 32}
    refused = subprocess.run([*submit, *training], env=stranger, capture_output=True, text=True, timeout=900)
    assert refused.returncode != 0 and "token" in refused.stderr.lower()
