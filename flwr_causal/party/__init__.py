"""What a party decides and keeps for itself: its policy, its record, and its door to the server."""
