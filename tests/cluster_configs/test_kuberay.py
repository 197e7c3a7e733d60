"""Manifests of KubeRay: every field is a known one, the operator's rules hold, and Serve and kubectl read
them.
"""

import re
import shutil
import subprocess

import pytest
import yaml

import raymkl
from tests.cluster_configs.configs import CONFIGS, KUBERAY, cluster_of, parsed
from tests.cluster_configs.manifests import MANIFESTS, faults


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
