"""A small proof, made once for each file of tests."""

import pytest
from proof_problems import Plain

from thalweg.proofs import prove


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("proofs")


@pytest.fixture(scope="module")
def small():
    """A regression with a readout and decay, two runs of three and two steps."""
    plain = Plain([3, 2, 2], outputs=2, decay=0.1, samples=4)
    return prove([plain.run(steps=3), plain.run(rate=0.03, steps=2)], 1e-9)


@pytest.fixture(scope="module")
def classified():
    """Cross-entropy."""
    return prove(Plain([2, 2, 3], samples=3, classify=True).run(steps=2), 1e-9)


@pytest.fixture(scope="module")
def small_file(small, folder):
    small.write(folder / "small.json")
    return folder / "small.json"
