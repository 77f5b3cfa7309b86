"""How sums over the parties' rows reach the server: a file a source, with both sides."""
