"""Take screenshots of the web page with a demo run (``python -m tools.screenshots [OUT]``)."""

import argparse
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from shared.errors import PlumblineError, ServiceError
from tools.screenshots.ledger_runs import CHECKPOINTS, read_run
from tools.screenshots.pictures import PICTURES, find_chromium, launch, take
from tools.screenshots.stack import REPOSITORY, run_checkpoint, run_demo, serving


def main() -> int:
    options = _parser().parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            _make(options.out, options.run, Path(folder))
    except PlumblineError as error:
        print(f"screenshots: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="screenshots", description=__doc__)
    out = REPOSITORY / "docs" / "pages"
    parser.add_argument("out", type=Path, nargs="?", default=out, help="folder (docs/pages)")
    parser.add_argument("--run", type=Path, help="folder of a demo run; without it, one is made")
    return parser


def _make(out: Path, run: Path | None, folder: Path) -> None:
    executable = find_chromium()
    if executable is None:
        raise ServiceError("no Chromium on the PATH; on Debian, apt-get install chromium")
    if run is None:
        run = folder / "demo"
        run_demo(run)
    data = REPOSITORY / "demo" / "data"
    recorded = read_run(run, data)
    checkpoints = {name: read_run(run_checkpoint(folder, name), data) for name in CHECKPOINTS}
    out.mkdir(parents=True, exist_ok=True)
    with serving(recorded, checkpoints, folder) as address, sync_playwright() as playwright:
        browser = launch(playwright, executable)
        taken = [take(browser, address, picture, out) for picture in PICTURES]
        browser.close()
    size = sum(path.stat().st_size for path in taken)
    print(f"{out}: {len(taken)} pictures, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
