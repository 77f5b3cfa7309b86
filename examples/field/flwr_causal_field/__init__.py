"""Methods of the field, each on a page of its own, for comparisons with those of flwr-causal."""
