"""The exceptions for what cannot be used, in a module that loads nothing."""

_LONGEST_WORD, _LONGEST = 300, 1000


class InputError(ValueError):
    """What the caller gave cannot be used; the message is one sentence with the fix.

    What it repeats of the input is cut where it would bury the sentence.
    """

    def __init__(self, message: str = ""):
        super().__init__(_readable(message))


class UndeclaredError(InputError):
    """A part does not declare what is needed of it; the message says which method to define."""

    def __init__(self, part: object, what: str, method: str, needed: str):
        super().__init__(
            f"`{type(part).__name__}` declares no {what} (`{method}`), which {needed}; define it."
        )


def _readable(message: str) -> str:
    if len(message) <= _LONGEST_WORD:
        return message
    words = (_cut(word, _LONGEST_WORD) for word in message.split(" "))
    return _cut(" ".join(words), _LONGEST)


def _cut(text: str, most: int) -> str:
    """The text without its middle, if it is too long: the end has the fix."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}...{text[-most // 3 :]}"
