"""How flat the minimisers of a deep linear regression can be."""
