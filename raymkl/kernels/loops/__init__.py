"""All compiled loops: over statistics of vectors, strings and matrices."""
