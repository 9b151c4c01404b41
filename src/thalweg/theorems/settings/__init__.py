"""What the theorems of a subject assume, and what a case is in their terms."""
