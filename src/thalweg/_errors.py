"""The one exception for bad input, in a module that loads nothing."""


class InputError(ValueError):
    """What the caller gave cannot be used; the message is one sentence with the fix."""
