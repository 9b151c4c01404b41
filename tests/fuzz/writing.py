"""Values as TOML, without asking whether they make sense."""

import json
from typing import Any


def toml(value: Any) -> str:
    """A value as it stands behind the equals sign."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{key(k)} = {toml(v)}' for k, v in value.items())}}}"
        case _:
            return json.dumps(str(value))


def key(name: str) -> str:
    """A key, with quotes where it needs them."""
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else json.dumps(name, ensure_ascii=False)


def document(values: dict[str, Any]) -> str:
    """A file with one line per value."""
    return "".join(f"{key(name)} = {toml(value)}\n" for name, value in values.items())
