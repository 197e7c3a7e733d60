"""The files to launch clusters with, as the tests read them."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "cluster_configs"
RAY_UP = ("ray_up_aws.yaml", "ray_up_own_machines.yaml")
KUBERAY = ("kuberay_cluster.yaml", "kuberay_job.yaml", "kuberay_service.yaml")
RAY_VERSION = "2.60.0"


def parsed(name):
    return yaml.safe_load((CONFIGS / name).read_text())


def cluster_of(config):
    """The cluster that a manifest of KubeRay describes."""
    return config["spec"].get(
        {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}.get(config["kind"], ""), config["spec"]
    )
