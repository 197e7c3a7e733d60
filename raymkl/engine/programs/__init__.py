"""Programs: what is learned in the shards before or around training, such as clusters and gates."""
