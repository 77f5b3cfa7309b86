"""What happens between a strategy and a grid."""
