"""What each method asks of the parties: a file a method, which its client and strategy share."""
