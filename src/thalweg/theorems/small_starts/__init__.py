"""Deep linear regression from near zero: the flow and its limit."""
