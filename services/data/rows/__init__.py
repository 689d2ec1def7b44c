"""Where rows come from, one module a kind of source: ``(place, fields)``, a row at a time."""
