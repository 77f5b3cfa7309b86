"""What parties and server say to each other."""
