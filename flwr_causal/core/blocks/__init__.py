"""Structure learning from second moments where a variable is a block of columns."""
