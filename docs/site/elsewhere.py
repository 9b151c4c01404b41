"""Links from signatures into the documentation of other libraries, without asking them for an inventory.

As a Sphinx extension it resolves the types below, which are those that our signatures name.
"""

from typing import Any

_PYTHON = "https://docs.python.org/3/library/"
_XARRAY = "https://docs.xarray.dev/en/stable/generated/"
WHERE = {
    "Array": "https://docs.jax.dev/en/latest/_autosummary/jax.Array.html",
    "ndarray": "https://numpy.org/doc/stable/reference/generated/numpy.ndarray.html",
    "Dataset": f"{_XARRAY}xarray.Dataset.html",
    "DataArray": f"{_XARRAY}xarray.DataArray.html",
    "LinearOperator": "https://docs.scipy.org/doc/scipy/reference/generated/scipy.sparse.linalg.LinearOperator.html",
    "Path": f"{_PYTHON}pathlib.html#pathlib.Path",
    "PathLike": f"{_PYTHON}os.html#os.PathLike",
    "Any": f"{_PYTHON}typing.html#typing.Any",
    "Literal": f"{_PYTHON}typing.html#typing.Literal",
    **{
        name: f"{_PYTHON}collections.abc.html#collections.abc.{name}"
        for name in ("Callable", "Iterable", "Mapping", "Sequence")
    },
    **{name: f"{_PYTHON}functions.html#{name}" for name in ("bool", "float", "int")},
    **{name: f"{_PYTHON}stdtypes.html#{name}" for name in ("dict", "list", "str", "tuple")},
}


def _resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    from docutils import nodes

    name = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in WHERE:
        return None
    return nodes.reference("", "", content, internal=False, refuri=WHERE[name])


def setup(app: Any) -> dict[str, Any]:
    """What Sphinx calls."""
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
