"""Take the pictures in ``docs/pages`` (``python -m tools.screenshots [OUT]``).

Three runs of the demo, two of them with fewer whole answers, stand for checkpoints of a training.
`plumb view` serves them, and Chromium takes the pictures.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "pages"
WIDTH = 1280
# Addresses of the pictures, by the names of their files; a run stands under its name.
PICTURES = {
    "run-1280-light.png": "#/run/{demo}",
    "compare-1280-light.png": "#/compare?runs={step100},{demo}",
    "flip-1280-light.png": "#/compare?runs={step100},{demo}&dataset=codecontests_test&kind=gained"
    "&open=0%2Fcc_test_005",
    "history-1280-light.png": "#/history",
}
# Of three answers, so many are whole.
_RUNS = {"step100": 1, "step200": 2, "demo": 3}
_MAX_HEIGHT = 2000
_PATIENCE = 60  # seconds: a machine at work on other things is slow
_EXECUTABLES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PLUMB = (sys.executable, "-m", "services.cli")


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGES
    executable = find_chromium()
    if executable is None:
        sys.exit("screenshots: no Chromium on the PATH (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for run, whole in _RUNS.items():
            _run(folder, run, whole)
        out.mkdir(parents=True, exist_ok=True)
        with _serving(folder) as address, sync_playwright() as playwright:
            runs = _ids(address)
            browser = launch(playwright, executable)
            for picture in PICTURES:
                _take(browser, address, picture, runs, out)
            browser.close()


def find_chromium() -> Path | None:
    """Find the distribution's Chromium on the PATH; None if it is not installed."""
    found = next(filter(None, map(shutil.which, _EXECUTABLES)), None)
    return None if found is None else Path(found)


def launch(playwright: Playwright, executable: Path, *options: str) -> Browser:
    """Launch Chromium headless; its own sandbox does not work for root."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(
        executable_path=executable, args=[*flags, "--disable-dev-shm-usage", *options]
    )


def _run(folder: Path, name: str, whole: int) -> None:
    """Run the demo into ``folder``, with ``whole`` of three answers whole and the others cut."""
    answers = folder / f"{name}.jsonl"
    with answers.open("w", encoding="utf-8") as file:
        lines = (ROOT / "demo" / "completions.jsonl").read_text("utf-8").splitlines()
        for number, row in enumerate(map(json.loads, lines), 1):
            text = row["completion"]
            cut = text if number % 3 < whole else text[: len(text) // 2]
            file.write(json.dumps({**row, "completion": cut}) + "\n")
    options = ["--config", "configs/demo.yaml", "--embedded", "--output", str(folder / name)]
    overrides = [f"generation.model={name}", f"generation.replay.completions={answers}"]
    subprocess.run([*_PLUMB, "run", *options, *overrides], cwd=ROOT, check=True)


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    """Serve the runs by `plumb view`; yields its address, with a slash at the end."""
    command = [*_PLUMB, "view", str(folder), "--port", "0", "--no-browser"]
    environment = os.environ | {"PLUMBLINE_INDEX_DIR": str(folder / "index")}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def _ids(address: str) -> dict[str, str]:
    """Wait until every run is read; returns their ids by name."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        with urllib.request.urlopen(f"{address}api/runs", timeout=_PATIENCE) as answer:
            found = json.load(answer).items()
        runs = {run["name"]: key for key, run in found if not run["reading"]}
        if len(runs) == len(_RUNS):
            return runs
        if time.monotonic() > deadline:
            sys.exit(f"screenshots: {len(runs)} of {len(_RUNS)} runs are on the page")
        time.sleep(0.1)


def _take(browser: Browser, address: str, name: str, runs: Mapping[str, str], out: Path) -> None:
    context = browser.new_context(
        viewport={"width": WIDTH, "height": 900},
        color_scheme="light",
        locale="en-GB",
        timezone_id="UTC",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(address + PICTURES[name].format_map(runs))
    top = _rendered(page, name.partition("-")[0])
    end = "scrollY + document.querySelector('main').getBoundingClientRect().bottom"
    page.screenshot(
        path=out / name,
        full_page=True,
        clip={
            "x": 0,
            "y": top,
            "width": WIDTH,
            "height": min(_MAX_HEIGHT, int(page.evaluate(end)) - top),
        },
        animations="disabled",
    )
    context.close()


def _rendered(page: Page, view: str) -> int:
    """Wait until a view is complete; returns the line of pixels at which its picture begins."""
    patience = _PATIENCE * 1000
    expect(page.locator("main h1")).to_be_visible(timeout=patience)
    if view == "run":
        expect(page.locator("tr.row").last).to_be_visible(timeout=patience)
    if view == "history":  # the gate's verdicts come one by one
        expect(page.locator("td:text-is('…')")).to_have_count(0, timeout=patience)
    if view != "flip":
        return 0
    expect(page.locator(".opened h3").nth(1)).to_be_visible(timeout=patience)
    place = "scrollY + document.querySelector('.opened').getBoundingClientRect().y"
    return int(page.evaluate(place))


if __name__ == "__main__":
    main()
