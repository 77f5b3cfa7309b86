"""`flwr-causal deploy`: the files with which parties and coordinator set up a federation."""
