"""What is done when shards or whole runs are lost: policy, recovery, checkpoints."""
