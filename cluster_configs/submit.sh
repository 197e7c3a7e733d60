#!/usr/bin/env bash
# Run a script on a Ray cluster that is already there:  RAY_ADDRESS=http://head:8265 cluster_configs/submit.sh examples/quickstart.py
set -euo pipefail
ray job submit --working-dir . -- python "$@"
