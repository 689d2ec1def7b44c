"""Rendering rules: what pages may contain and do when hostile data has had no effect."""

import re
import unicodedata
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import quote

from playwright.sync_api import BrowserContext, Dialog, Page

# Runs before the scripts of the page; reports violations to the test.
_LISTEN = """
addEventListener("securitypolicyviolation", (event) =>
  report(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
addEventListener("unhandledrejection", (event) => report(`rejected: ${event.reason}`));
"""


@dataclass
class Watch:
    """Collects dialogs, other windows, errors, violations of the policy and every request."""

    context: BrowserContext
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context.expose_function("report", lambda text: self.errors.append(f"policy: {text}"))
        self.context.add_init_script(_LISTEN)
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.context.on("weberror", lambda error: self.errors.append(f"error: {error.error}"))
        self.context.on("dialog", self._dialog)
        self.context.on("page", self._page)

    def _dialog(self, dialog: Dialog) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _page(self, page: Page) -> None:
        if len(self.context.pages) > 1:
            self.errors.append(f"another window: {page.url}")
        page.on("download", lambda download: self.errors.append(f"download: {download.url}"))


# A page shows no more characters of a text than these.
MOST = 100_000
# All that pages themselves are made of.
_ELEMENTS = (
    "html head meta title link style script body a header nav main noscript div bdi span h1 h2 h3 "
    "h4 p pre article progress ul li i b dl dt dd table caption thead tbody tr th td form label "
    "select option input button dialog kbd details summary svg rect circle path line text g"
)
_CENSUS = """() => {
  const all = [...document.querySelectorAll("*")];
  const named = (names) => all.flatMap((one) => [...one.attributes]).filter(({ name }) => names(name));
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT,
    (node) => (node.parentElement.localName === "script" ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  let texts = document.title;
  while (words.nextNode()) texts += words.currentNode.data;
  return {
    elements: [...new Set(all.map((one) => one.localName))],
    handlers: named((name) => name.startsWith("on") || name === "srcdoc").map(({ value }) => value),
    addresses: named((name) => ["href", "src", "action", "data"].includes(name)).map(({ value }) => value),
    made: document.querySelectorAll(".made").length,
    canary: typeof canary,
    texts,
  };
}"""  # noqa: E501
_OURS = re.compile(r"#/|#main$|static/(style\.css|icon\.svg|\w+\.js)$")


def assert_quiet(page: Page, watch: Watch, home: str) -> None:
    """Nothing ran, nothing but ``home`` was fetched, and only the page itself made elements."""
    shown = page.evaluate(_CENSUS)
    assert watch.errors == []
    assert [url for url in watch.requests if not url.startswith(home)] == []
    assert set(shown["elements"]) <= set(_ELEMENTS.split())
    assert shown["handlers"] == []
    assert [address for address in shown["addresses"] if not _OURS.match(address)] == []
    assert (shown["made"], shown["canary"]) == (0, "undefined")
    assert {letter for letter in shown["texts"] if _kind(letter) == "hidden"} == set()


def path(*parts: str) -> str:
    """The address within a page of a run or a sample."""
    return "#/run/" + "/".join(quote(part, safe="") for part in parts)


def shown(text: str) -> str:
    """The text as a page has to show it: what cannot be seen by its number."""
    parts = []
    for kind, group in groupby(text[:MOST], _kind):
        letters = "".join(group)
        numbered = kind == "hidden" or (kind == "mark" and len(letters) > 8)
        parts.append(" ".join(f"{ord(c):04X}" for c in letters) if numbered else letters)
    return "".join(parts)


def _kind(letter: str) -> str:
    category = unicodedata.category(letter)
    if category in ("Cc", "Cf", "Zl", "Zp") and letter not in "\t\n":
        return "hidden"
    return "mark" if category[0] == "M" else "plain"
