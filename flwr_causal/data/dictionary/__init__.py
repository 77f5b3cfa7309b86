"""The dictionary that all parties of a run share: what each column is, and how it is written."""
