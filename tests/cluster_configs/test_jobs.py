"""A training job that really runs, on a cluster started as users start one."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import raymkl
from tests.cluster_configs.configs import CONFIGS, ROOT
from tests.processes import births, free_ports, listens, own_processes, strike, wait_for


def test_submit_script_without_a_script():
    result = subprocess.run([CONFIGS / "submit.sh"], capture_output=True, text=True, timeout=900)
    assert result.returncode == 2 and "usage" in result.stderr
    assert subprocess.run(["bash", "-n", CONFIGS / "submit.sh"], timeout=300).returncode == 0


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
    answered = wait_for(lambda: listens(port) or head.poll() is not None, seconds)
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
