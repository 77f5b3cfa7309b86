"""Tables of categories: counts, scores, cut points, Bayesian networks."""
