"""Settings of the whole test suite: 64-bit JAX, hypothesis profiles, and where MNIST is."""

import contextlib
import gc
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The tests are little else than compilations, and without optimisation, and without the emitters
# that need half as long again for small functions, those take a quarter of the time. Numbers differ
# by rounding. One module of code for each function, and not one for each of its parts, is quicker
# for what is small, and takes fewer maps. It has to be said before JAX is imported.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1",
)

# Most operations of the tests are tiny: handing each to a thread takes longer than it does.
os.environ.setdefault("JAX_CPU_ENABLE_ASYNC_DISPATCH", "false")

# Tests neither use nor fill the cache of the person who runs them.
os.environ.setdefault("THALWEG_COMPILED", "off")

import hypothesis
import jax
import pytest
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir

import browsers
import typechecking

# isort: split
# It turns on 64-bit mode before any array is made, and is checked by what comes before it.
import thalweg  # noqa: F401


class _Contexts(threading.local):
    """Where MLIR keeps types and constants: one for a hundred functions, not for each.

    To make one takes a quarter of the time of compiling a small function. Each thread has its own.
    What is lowered on the way, because a constant is computed, has one for itself: JAX copies its
    module, and MLIR puts the copy of a module into the one of its context that is being written.
    """

    used = 0

    def __init__(self, make):
        self.make = make

    def __call__(self):
        if ir.Context.current is not None:
            return self.make()
        if self.used % 100 == 0:
            self.context = self.make()
        self.used += 1
        return self.context


mlir.make_ir_context = _Contexts(mlir.make_ir_context)

# Values are drawn freely, shapes from short lists: every new shape costs a compilation, which is
# why there is no deadline.
hypothesis.settings.register_profile("quick", max_examples=10, deadline=None, derandomize=True)
hypothesis.settings.register_profile("thorough", max_examples=300, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


# The files that take longest come first, in this order: one worker waits for the other in the end.
LONGEST = (
    "test_filippov", "test_elkabetz2021", "test_marion2024", "test_report", "test_kernels",
    "test_region_tubes", "test_central_flow", "test_rest", "test_thalweg", "test_sweeps",
    "test_security", "test_making_proofs", "test_compiled", "test_damage", "test_browser",
    "test_solvers", "test_certified_step", "test_arora2019", "test_run_stages",
    "test_validated_flow", "test_soundness", "test_proven_distance", "test_flow_with_kinks",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]):
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))


def pytest_runtest_setup():
    typechecking.next_test()


def pytest_collection_finish():
    """What was imported stays: the collector of garbage need not go through it again and again."""
    global _reported
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 10)
    _reported = sum(os.times()[:4])


# --- what takes long -----------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser):
    parser.addoption(
        "--slowest", type=int, default=0, metavar="N",
        help="show the N parts of tests that took most of the processors, and the sum of all",
    )  # fmt: skip


_reported = sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Each report says what the processors spent since the one before, in this process and others.

    Those of subprocesses are known when they have ended and were waited for.
    """
    global _reported
    report = yield
    before, _reported = _reported, sum(os.times()[:4])
    report.processor_seconds = _reported - before
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config):
    if count := config.getoption("--slowest"):
        reports = [each for kind in terminalreporter.stats.values() for each in kind]
        parts = [
            (each.processor_seconds, each.when, each.nodeid)
            for each in reports
            if hasattr(each, "processor_seconds")
        ]
        terminalreporter.section(f"processor seconds, {sum(part[0] for part in parts):.0f} in all")
        for seconds, when, test in sorted(parts, reverse=True)[:count]:
            terminalreporter.write_line(f"{seconds:7.2f} {when:8} {test}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The one browser of this process: a second one beside it is refused by Playwright."""
    path = browsers.browser_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--js-flags=--expose-gc", "--enable-precise-memory-info"],
        )
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def mnist_path() -> Path:
    """THALWEG_DATA, or ../shared/mnist; the test is skipped where there is none."""
    candidates = [Path(__file__).parents[2] / "shared" / "mnist"]
    if "THALWEG_DATA" in os.environ:
        candidates.insert(0, Path(os.environ["THALWEG_DATA"]))
    folder = next((path for path in candidates if path.is_dir()), None)
    if folder is None:
        pytest.skip("MNIST is absent: put its four IDX files in a folder named by THALWEG_DATA")
    return folder


@pytest.fixture(scope="module", autouse=True)
def _room_for_compiled_code():
    """Forgets compiled functions once they are many: Linux allows 65,530 maps to a process.

    Every compiled function takes some while it is kept, and where they run out JAX crashes.
    Other systems have no such file, and no such limit.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def compilations():
    """Counts how often JAX compiles functions of the given names: `with ... as count: ...`."""

    @contextlib.contextmanager
    def counting(*names: str):
        messages: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: messages.append(record.getMessage())
        logger = logging.getLogger("jax")
        logger.addHandler(handler)
        try:
            with jax.log_compiles():
                yield lambda: sum(
                    message.startswith("Compiling") and any(name in message for name in names)
                    for message in messages
                )
        finally:
            logger.removeHandler(handler)

    return counting
