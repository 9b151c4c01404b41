"""Build the site: gather the pages, write those that are generated, and let Sphinx set them.

    python docs/site/build.py            into build/site/html
    python docs/site/build.py --quick    without running the tutorials

Every warning is an error. Nothing is fetched: what the site needs is in docs/ and in the packages of
the `site` extra. `make site` calls it.
"""

import argparse
import shutil
import sys
from pathlib import Path

import links
import staging

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILT = ROOT / "build" / "site"


def build(out: Path, *, quick: bool = False) -> int:
    """Write the site into `out`/html; 0 if nothing is amiss."""
    from sphinx.cmd.build import main as sphinx

    source, html = out / "source", out / "html"
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(html, ignore_errors=True)
    staging.gather(source, quick=quick)
    options = ["-W", "--keep-going", "-q", "-j", "2", "-b", "html", "-c", str(HERE)]
    code = sphinx([*options, "-d", str(out / "doctrees"), str(source), str(html)])
    if code:
        return code
    broken = links.broken(html)
    for each in broken:
        print(each, file=sys.stderr)
    print(f"{len(list(html.rglob('*.html')))} pages in {html}, {len(broken)} broken links")
    return 1 if broken else 0


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="do not run the tutorials")
    parser.add_argument("--out", type=Path, default=BUILT, help="where to write")
    arguments = parser.parse_args()
    sys.exit(build(arguments.out, quick=arguments.quick))


if __name__ == "__main__":
    main()
