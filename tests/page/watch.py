"""Recorder of unexpected browser activity: dialogs, windows, errors, policy violations."""

from dataclasses import dataclass, field

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
