"""What describes the rows of all parties together: histograms, states, gaps, correlations."""
