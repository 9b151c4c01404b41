"""Deep linear regression from near the identity, fixed or random."""
