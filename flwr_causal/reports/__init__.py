"""What people look at: saved runs, graph files, summaries."""
