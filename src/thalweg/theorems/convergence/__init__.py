"""Descent on a deep linear network at a linear rate, and where it fails."""
