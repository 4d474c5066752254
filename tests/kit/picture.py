"""Takes a picture of a live page, for the docs: `python -m tests.kit.picture URL FILE.png WIDTH
HEIGHT`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.kit.browser import browsing


def main() -> None:
    """Takes the picture as soon as the page shows lines and thresholds."""
    url, file, width, height = sys.argv[1:]
    with tempfile.TemporaryDirectory() as profile, browsing(Path(profile)) as browser:
        browser.look(int(width), "light", int(height))
        browser.open(url)
        browser.until("document.querySelectorAll('.chart path.line').length >= 8")
        browser.until("document.querySelector('#outcomes li.pass')")
        browser.picture(Path(file), whole=False)


if __name__ == "__main__":
    main()
