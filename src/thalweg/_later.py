"""Names of a package that bring their modules when they are first asked for."""

from collections.abc import Callable, Mapping
from importlib import import_module
from sys import modules
from typing import Any


def later(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names are in these modules below it."""

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{places[name]}"), name)
        setattr(modules[package], name, found)
        return found

    return find
