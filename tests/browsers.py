"""Where a browser is, for tests that look at pages as a person does."""

from pathlib import Path

import pytest

BROWSERS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")


def browser_path() -> str:
    """Where a browser is; without one, what needs it is skipped, and told how to get it."""
    pytest.importorskip(
        "playwright.sync_api", reason="tests in a browser need Playwright: pip install playwright"
    )
    for path in BROWSERS:
        if Path(path).exists():
            return path
    pytest.skip("tests in a browser need chromium: apt-get install chromium")
