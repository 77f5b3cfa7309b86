"""Saved runs, graph files and summaries."""
