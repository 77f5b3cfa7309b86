"""The distributions that circuits are built from."""
