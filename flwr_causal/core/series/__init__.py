"""Linear systems over time, from the second moments of a lagged design."""
