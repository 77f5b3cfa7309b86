"""Tables of the parties: reading, checking, splitting, simulating."""
