"""What is loaded and compiled while the page is opened, so that its first curves come at once."""

import threading

from thalweg._drawing import compile_lengths
from thalweg.experiment import from_values
from thalweg.explorer.computation import Computation


def warm_up() -> None:
    """Go once through all that a setting asks for, on the smallest one."""
    from thalweg.explorer.parts import PARTS

    tiny = from_values(
        {
            "network": {"depth": 2, "width": 2},
            "training": {"learning_rate": [0.1], "time": 1.0, "records": 10},
        }
    )
    known = Computation(tiny)
    for part in PARTS.values():
        try:
            for _ in part(known):
                pass
        except ValueError:
            continue  # what does not apply to it
    # Many starts are drawn for the first phase diagram; nothing waits for what they need.
    threading.Thread(target=compile_lengths, name="explorer-warming", daemon=True).start()
