"""Every certificate that a test of a theorem makes is read as a person would read it."""

from labels import labels_are_held_to_their_sides  # noqa: F401
