"""Whether a figure's legends list what is drawn, and nothing else."""

import numpy as np
from matplotlib.collections import QuadMesh
from matplotlib.colors import same_color, to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import Bbox

from thalweg.figures.curves import REFERENCE, STAND_IN


def legend_faults(figure: Figure) -> list[str]:
    """In words: entries without an artist, artists without an entry, entries out of sight."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    entries = [
        (handle, text.get_text())
        for legend in legends
        if legend is not None
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
    ]
    drawn = [artist for axes in figure.axes for artist in _visible(axes)]
    found = [
        f"the legend lists {label!r}, which is not drawn"
        for handle, label in entries
        if not any(_looks_like(handle, label, artist) for artist in drawn)
    ]
    found += [
        f"{artist} is drawn, and no legend lists it"
        for artist in drawn
        if not any(_looks_like(handle, label, artist) for handle, label in entries)
    ]
    figure.canvas.draw()
    return found + [
        "a legend leaves the figure"
        for legend in legends
        if legend is not None and not _inside(legend.get_window_extent(), figure.bbox)
    ]


def _inside(box: Bbox, frame: Bbox) -> bool:
    return frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1


def _visible(axes):
    """Curves and areas of which something can be seen, and not the lines that only help."""
    (left, right), (low, high) = map(sorted, (axes.get_xlim(), axes.get_ylim()))
    parts = [part for container in axes.containers for part in container.get_children()]
    yield from axes.containers
    for line in axes.lines:
        if line in parts:
            continue
        x, y = (np.asarray(values, float) for values in line.get_data())
        if line.get_transform() == axes.get_yaxis_transform(which="grid"):  # a horizontal line
            x = np.full(y.shape, left)
        if line.get_transform() == axes.get_xaxis_transform(which="grid"):  # a vertical one
            y = np.full(x.shape, low)
        inside = (left <= x) & (x <= right) & (low <= y) & (y <= high)
        helping = line.get_gid() == REFERENCE or to_rgb(line.get_color()) == (1.0, 1.0, 1.0)
        if inside.any() and not helping:
            yield line
    for area in axes.collections:
        if isinstance(area, QuadMesh):
            yield from _colours_of(area)
        elif area not in parts and any(path.vertices.size for path in area.get_paths()):
            yield area
    yield from axes.patches


def _colours_of(mesh: QuadMesh) -> list[Patch]:
    """One patch for each colour of a map, and a white one for what is left blank."""
    values = np.ma.asarray(mesh.get_array())
    colours = [mesh.to_rgba(value) for value in np.unique(values.compressed())]
    blank = ["white"] if np.ma.getmaskarray(values).any() else []
    return [Patch(facecolor=colour) for colour in (*colours, *blank)]


def _looks_like(handle, label, artist) -> bool:
    if isinstance(artist, ErrorbarContainer):  # a legend makes its own parts
        return label == artist.get_label()
    if isinstance(handle, Line2D) and isinstance(artist, Line2D):
        alike = handle.get_linestyle() == artist.get_linestyle()
        return alike and _same(handle.get_color(), artist.get_color())
    if isinstance(handle, Line2D) or isinstance(artist, Line2D):
        return False
    alike = handle.get_hatch() == artist.get_hatch()
    return alike and _same(_face(handle), _face(artist))


def _face(area) -> tuple:
    """The colour of an area, or of the hatching of one that is not filled."""
    both = (np.atleast_2d(each) for each in (area.get_facecolor(), area.get_edgecolor()))
    return next(tuple(each[0, :3]) for each in both if each.size and each[0, 3] > 0)


def _same(of_legend, of_artist) -> bool:
    """A grey entry stands for one curve or area per run, in the colours of these."""
    return same_color(of_legend, STAND_IN) or same_color(of_legend, of_artist)
