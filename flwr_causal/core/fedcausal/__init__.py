"""FedCausal: the paper's method, the group lasso, the search on evidence, where parties differ."""
