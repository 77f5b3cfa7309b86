"""Time series in a party's table."""
