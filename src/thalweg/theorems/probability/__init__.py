"""Gaussian products and starts, and how likely they are good ones."""
