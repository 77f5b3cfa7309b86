"""Decision trees as deterministic circuits."""
