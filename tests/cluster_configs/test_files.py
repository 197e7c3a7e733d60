"""Files to launch clusters with: what Ray makes of those of `ray up`, and what all of them say."""

import copy
import re

import pytest

from tests.cluster_configs.configs import CONFIGS, KUBERAY, RAY_UP, RAY_VERSION, ROOT, cluster_of, parsed

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


# -- all of them -----------------------------------------------------------------------------------


def test_heads_leave_the_work_to_workers():
    assert parsed("ray_up_aws.yaml")["available_node_types"]["head"]["resources"] == {"CPU": 0}
    assert "--num-cpus=0" in parsed("ray_up_own_machines.yaml")["head_start_ray_commands"][-1]
    for spec in map(cluster_of, map(parsed, KUBERAY)):
        assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


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
