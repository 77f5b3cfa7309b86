"""Declarations of what server and parties say to each other; they know no method."""
