"""What keeps a node or a SuperLink from working, found before it is started, and the remedy."""
