#!/usr/bin/env bash
# Run a script of this project on a Ray cluster that is already there, and follow what it prints:
#
#   RAY_ADDRESS=http://127.0.0.1:8265 cluster_configs/submit.sh examples/cluster_training.py --shards 16
#
# To change, by environment variables:
#   RAY_ADDRESS      dashboard of the cluster; usually the near end of a tunnel (ray dashboard FILE.yaml, kubectl port-forward)
#   RAY_AUTH_MODE    "token" (the default here) or "disabled", as on the cluster
#   RAY_AUTH_TOKEN   the cluster's token, unless it is in ~/.ray/auth_token
#   WORKING_DIR      directory to send along (at most 500 MB), default: that of the script
set -euo pipefail
if [[ $# -lt 1 || ! -f "$1" ]]; then
    echo "usage: [RAY_ADDRESS=http://HEAD:8265] $0 SCRIPT.py [ARGUMENTS ...]" >&2
    exit 2
fi
script=$1
shift
export RAY_ADDRESS=${RAY_ADDRESS:-http://127.0.0.1:8265}
export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
working_dir=${WORKING_DIR:-$(dirname "$script")}
exec ray job submit --working-dir "$working_dir" -- python "$(realpath --relative-to="$working_dir" "$script")" "$@"
