"""Run a training script as a job on a Ray cluster that is already there, print what it prints, and end as it
ends.

    python examples/submit_job.py examples/cluster_training.py --shards 2
    python examples/submit_job.py --address http://127.0.0.1:8265 --pip raymkl my_training.py

The directory of the script is sent along (at most 500 MB). Ctrl-C stops the job. Exit code: 0 when the job
succeeded, else 1.

A cluster with token authentication (see cluster_configs/README.md) wants RAY_AUTH_MODE=token here too, and
the token in ~/.ray/auth_token or RAY_AUTH_TOKEN.
"""

import argparse
import asyncio
import os
import shlex
import sys
from pathlib import Path

from ray.job_submission import JobStatus, JobSubmissionClient


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--address",
        default=os.environ.get("RAY_ADDRESS", "http://127.0.0.1:8265"),
        help="dashboard of the cluster",
    )
    parser.add_argument(
        "--pip",
        action="append",
        default=[],
        help="a package that the cluster's nodes lack; may be given again",
    )
    parser.add_argument("script", type=Path, help="script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    options = parser.parse_args()
    if not options.script.is_file():
        parser.error(f"there is no script {options.script}")

    client = JobSubmissionClient(options.address)
    runtime_env = {
        "working_dir": str(options.script.resolve().parent),
        **({"pip": options.pip} if options.pip else {}),
    }
    command = shlex.join(["python", options.script.name, *options.arguments])
    job = client.submit_job(entrypoint=command, runtime_env=runtime_env)
    print(f"[{job}] {command}", file=sys.stderr, flush=True)
    try:
        asyncio.run(follow(client, job))
    except KeyboardInterrupt:
        client.stop_job(job)
        print(f"[{job}] stopped", file=sys.stderr)
        return 1
    information = client.get_job_info(job)
    print(f"[{job}] {information.status}: {information.message}", file=sys.stderr)
    return 0 if information.status == JobStatus.SUCCEEDED else 1


async def follow(client: JobSubmissionClient, job: str) -> None:
    """Print what the job prints until it has ended."""
    async for lines in client.tail_job_logs(job):
        print(lines, end="", flush=True)
    while not client.get_job_status(job).is_terminal():  # its last line comes a moment before its state
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
