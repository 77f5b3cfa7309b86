"""Interventions: moments of rows under known ones, and a search for unknown targets."""
