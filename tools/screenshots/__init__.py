"""Screenshots of the web page for ``docs/pages``, taken in Chromium."""
