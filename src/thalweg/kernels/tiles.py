"""Tiles: a few rows of numbers in lanes, which the processor's vector registers hold.

A `Tile` has rows, and in each row one number per lane; LLVM sees a vector per row and makes of it
as many instructions as the processor needs. What is done with tiles is done lane by lane: no lane
sees another one, whatever their number, so that a run is bitwise independent of the batch. How many
rows and lanes there are is known when a kernel is compiled.

    x = lanes_of(frame, start, LANES)     where tiles are loaded from and stored to, from `start` on
    t = load(x, index)                    one row
    t = load_rows(four(x), index, stride) four rows, at index, index + stride, ...
    store(x, index, t), store_rows(x, index, stride, t)
    add(t, u), subtract, times, over      a tile of one row is used for every row of the other
    fma(t, u, v)                          t * u + v, in one rounding where the processor has it
    where_less(t, u, v, w)                v where t < u, and w elsewhere, as where one is NaN
    root(t), size(t), larger(t, u), full(x, number), row_of(t, 2)

`index` counts rows: x[index] is the number of every lane. Only Numba can run them.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as typed_intrinsic
from numba.extending import models, register_model

# Numba calls these with its own first argument; type checkers need not know.
intrinsic: Callable[..., Any] = typed_intrinsic


class Tile(types.Type):
    """The type of tiles with so many rows and lanes."""

    def __init__(self, rows: int, lanes: int):
        self.rows, self.lanes = rows, lanes
        super().__init__(name=f"Tile({rows}, {lanes})")


class Place(types.Type):
    """The type of what tiles are loaded from and stored to, so many rows at once."""

    def __init__(self, lanes: int, rows: int):
        self.lanes, self.rows = lanes, rows
        super().__init__(name=f"Place({lanes}, {rows})")


def _row(lanes: int) -> ir.Type:
    return ir.VectorType(ir.DoubleType(), lanes)


@register_model(Tile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Tile):
        super().__init__(manager, kind, ir.ArrayType(_row(kind.lanes), kind.rows))


@register_model(Place)
class _PlaceModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Place):
        super().__init__(manager, kind, _row(kind.lanes).as_pointer())


# --- loading and storing -------------------------------------------------------------------------


@intrinsic
def lanes_of(typing: Any, frame: Any, start: Any, lanes: Any) -> Any:
    """Where rows as long as the tuple `lanes` begin; `start` counts numbers."""
    kind = Place(lanes.count, 1)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, given[0])
        first = builder.gep(array.data, [given[1]])
        return builder.bitcast(first, _row(kind.lanes).as_pointer())

    return kind(frame, types.intp, lanes), generate


@intrinsic
def numbers_of(typing: Any, array: Any) -> Any:
    """Where the numbers of an array begin; no kernel has to count who uses it."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, given[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def four(typing: Any, place: Any) -> Any:
    """The same place, for four rows at once."""
    return Place(place.lanes, 4)(place), lambda context, builder, signature, given: given[0]


@intrinsic
def load(typing: Any, place: Any, index: Any) -> Any:
    """One row."""
    kind = Tile(1, place.lanes)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return _joined(context, builder, kind, [_loaded(builder, *given)])

    return kind(place, types.intp), generate


@intrinsic
def load_rows(typing: Any, place: Any, index: Any, stride: Any) -> Any:
    """The rows at index, index + stride, ..."""
    kind = Tile(place.rows, place.lanes)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        at, found = given[1], []
        for _ in range(kind.rows):
            found.append(_loaded(builder, given[0], at))
            at = builder.add(at, given[2])
        return _joined(context, builder, kind, found)

    return kind(place, types.intp, types.intp), generate


@intrinsic
def store(typing: Any, place: Any, index: Any, tile: Any) -> Any:
    """Put the first row of a tile to its place."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        value = builder.extract_value(given[2], 0)
        builder.store(value, builder.gep(given[0], [given[1]]), align=8)
        return context.get_dummy_value()

    return types.none(place, types.intp, tile), generate


@intrinsic
def store_rows(typing: Any, place: Any, index: Any, stride: Any, tile: Any) -> Any:
    """Put the rows of a tile to index, index + stride, ..."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        at = given[1]
        for row in range(tile.rows):
            value = builder.extract_value(given[3], row)
            builder.store(value, builder.gep(given[0], [at]), align=8)
            at = builder.add(at, given[2])
        return context.get_dummy_value()

    return types.none(place, types.intp, types.intp, tile), generate


@intrinsic
def full(typing: Any, place: Any, number: Any) -> Any:
    """The same number in every row and lane."""
    kind = Tile(place.rows, place.lanes)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        row = _spread(builder, given[1], kind.lanes)
        return _joined(context, builder, kind, [row] * kind.rows)

    return kind(place, types.float64), generate


# --- arithmetic ----------------------------------------------------------------------------------


def _elementwise(count: int, row: Callable[..., Any]) -> Any:
    """An intrinsic of so many tiles, from what it does with one row of each."""

    def typed(*tiles: Any) -> Any:
        kind = Tile(max(tile.rows for tile in tiles), tiles[0].lanes)

        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            found = [
                row(
                    builder,
                    *(
                        builder.extract_value(value, index if tile.rows > 1 else 0)
                        for value, tile in zip(given, tiles, strict=True)
                    ),
                )
                for index in range(kind.rows)
            ]
            return _joined(context, builder, kind, found)

        return kind(*tiles), generate

    # Numba counts the arguments of what it calls.
    if count == 1:
        return intrinsic(lambda typing, t: typed(t))
    if count == 2:
        return intrinsic(lambda typing, t, u: typed(t, u))
    if count == 3:
        return intrinsic(lambda typing, t, u, v: typed(t, u, v))
    return intrinsic(lambda typing, t, u, v, w: typed(t, u, v, w))


def _from_llvm(name: str) -> Callable[..., Any]:
    """What a row becomes by one of LLVM's own functions."""

    def row(builder: Any, *values: Any) -> Any:
        kind = values[0].type
        signature = ir.FunctionType(kind, [kind] * len(values))
        named = f"llvm.{name}.v{kind.count}f64"
        return builder.call(
            cgutils.get_or_insert_function(builder.module, signature, named), values
        )

    return row


def _chosen(builder: Any, left: Any, right: Any, yes: Any, no: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", left, right), yes, no)


add = _elementwise(2, lambda builder, t, u: builder.fadd(t, u))
subtract = _elementwise(2, lambda builder, t, u: builder.fsub(t, u))
times = _elementwise(2, lambda builder, t, u: builder.fmul(t, u))
over = _elementwise(2, lambda builder, t, u: builder.fdiv(t, u))
fma = _elementwise(3, _from_llvm("fmuladd"))
root = _elementwise(1, _from_llvm("sqrt"))
size = _elementwise(1, _from_llvm("fabs"))
where_less = _elementwise(4, _chosen)
larger = _elementwise(2, lambda builder, t, u: _chosen(builder, t, u, u, t))


@intrinsic(prefer_literal=True)
def row_of(typing: Any, tile: Any, index: Any) -> Any:
    """One row of a tile, by a number that is known when it is compiled."""
    kind, at = Tile(1, tile.lanes), index.literal_value

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return _joined(context, builder, kind, [builder.extract_value(given[0], at)])

    return kind(tile, index), generate


def _loaded(builder: Any, place: Any, at: Any) -> Any:
    return builder.load(builder.gep(place, [at]), align=8)


def _joined(context: Any, builder: Any, kind: Tile, rows: list[Any]) -> Any:
    tile = ir.Constant(context.get_value_type(kind), ir.Undefined)
    for index, row in enumerate(rows):
        tile = builder.insert_value(tile, row, index)
    return tile


def _spread(builder: Any, number: Any, lanes: int) -> Any:
    nothing = ir.Constant(_row(lanes), ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(first, nothing, places)
