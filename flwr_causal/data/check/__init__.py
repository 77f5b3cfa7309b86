"""What a party reports of its table, and what the federation agrees on."""
