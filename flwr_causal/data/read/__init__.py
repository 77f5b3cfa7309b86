"""Reading tables, networks and data sets from files."""
