"""What can be doubted of tables and of graphs, in words; docs/warnings.md lists all warnings."""
