"""Where shards live: threads of this process, or actors on Ray, their places and their metrics."""
