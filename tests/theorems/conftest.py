"""Every certificate that a test of a theorem makes is read as a person would read it."""

import labels
import pytest

from thalweg.theorems import AbstractTheorem


@pytest.fixture(scope="session", autouse=True)
def _labels_are_held_to_their_sides():
    check = AbstractTheorem.check

    def checked(self, subject, /):
        certificate = check(self, subject)
        found = labels.faults(certificate)
        assert not found, f"{certificate.reference}: " + "; ".join(found)
        return certificate

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AbstractTheorem, "check", checked)
        yield
