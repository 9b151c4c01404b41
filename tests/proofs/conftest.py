"""A small proof, made once for each file of tests."""

import pytest
from proof_problems import Plain

from thalweg.tubes.proof import prove


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("proofs")


@pytest.fixture(scope="module")
def small():
    """A regression with a readout and decay, three steps."""
    return prove(Plain([3, 2, 2], outputs=2, decay=0.1, samples=4).run(steps=3), 1e-6)


@pytest.fixture(scope="module")
def small_file(small, folder):
    small.write(folder / "small.json")
    return folder / "small.json"
