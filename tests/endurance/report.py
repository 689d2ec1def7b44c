"""The result of a run: a table of start and end as Markdown, and a picture of the memory."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.endurance.processes import NAMES
from tests.endurance.samples import Sample, cpu_seconds, growth, redis_growth
from tests.endurance.schedule import Kind
from tests.endurance.traffic import Tally

_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 260, 46, 26


def table(samples: Sequence[Sample], steady: Mapping[str, int]) -> str:
    """Start, end and growth; ``steady`` are the processes that live from start to end."""
    first, last = samples[0], samples[-1]
    rows = [("", "start", "end", "growth after the first tenth")]
    for name, pid in steady.items():
        rate, _ = growth(samples, pid)
        before, after = (
            next(one for one in sample.processes if one.pid == pid) for sample in (first, last)
        )
        rows.append(
            (
                f"{name}: memory; descriptors; threads; children",
                f"{before.memory:.1f} MB; {before.descriptors}; {before.threads}; "
                f"{before.children}",
                f"{after.memory:.1f} MB; {after.descriptors}; {after.threads}; {after.children}",
                f"{rate:+.2f} MB/h",
            )
        )
    for name in NAMES:
        if all(one.pid not in steady.values() for one in first.of(name)):
            rows.append((f"{name}, started again and again: all memory; descriptors", *(
                f"{sum(one.memory for one in sample.of(name)):.1f} MB; "
                f"{sum(one.descriptors for one in sample.of(name))}"
                for sample in (first, last)
            ), ""))  # fmt: skip
    rows.append(("processes", str(len(first.processes)), str(len(last.processes)), ""))
    if first.redis and last.redis:
        rate, _ = redis_growth(samples)
        rows.append(
            (
                "Redis: data; connections",
                f"{first.redis.memory:.2f} MB; {first.redis.clients}",
                f"{last.redis.memory:.2f} MB; {last.redis.clients}",
                f"{rate:+.2f} MB/h",
            )
        )
        rows += _counts("keys", first.redis.keys, last.redis.keys)
        rows += _counts("members", first.redis.members, last.redis.members)
    for part, name in (("temporary", "temporary files"), ("state", "files of state and logs")):
        shown = (
            f"{number}; {size / 2**20:.2f} MB"
            for number, size in (getattr(first, part), getattr(last, part))
        )
        rows.append((name, *shown, ""))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---|---|---|---|", *lines[1:]])


def _counts(
    what: str, before: Mapping[str, int], after: Mapping[str, int]
) -> Iterator[tuple[str, str, str, str]]:
    """The total, and the kinds whose number changed."""
    yield f"all {what}", str(sum(before.values())), str(sum(after.values())), ""
    for kind in sorted({*before, *after}):
        old, new = before.get(kind, 0), after.get(kind, 0)
        if old != new:
            yield f"{what} of `{kind}`", str(old), str(new), ""


def summary(
    samples: Sequence[Sample],
    tally: Tally,
    faults: Mapping[tuple[Kind, str], int],
    findings: Sequence[tuple[str, str]],
    seed: int,
) -> str:
    """What was asked and done, in two paragraphs of Markdown."""
    minutes = samples[-1].at / 60
    seconds = sorted(tally.seconds) or [0.0]
    by_kind: Counter[str] = Counter()
    for (kind, victim), number in faults.items():
        by_kind[f"{kind} {victim}"] = number
    cores = sum(cpu_seconds(samples).values()) / max(1.0, samples[-1].at)
    asked, answered, left = (sum(one.values()) for one in (tally.asked, tally.answered, tally.left))
    return (
        f"{minutes:.0f} minutes with seed {seed}: {asked} requests "
        f"({_listed(tally.asked)}); {answered} answered right, {left} broken off by their client; "
        f"{sum(tally.retried.values())} attempts were repeated "
        f"({_listed(tally.retried) or 'none'}). {tally.scored} rewards were compared with those "
        f"of an undisturbed service, {tally.cached} of them remembered. Seconds of an attempt that "
        f"was answered: median {seconds[len(seconds) // 2]:.2f}, 99th percentile "
        f"{seconds[len(seconds) * 99 // 100]:.2f}, most {seconds[-1]:.2f}. The stack took "
        f"{cores:.2f} of a core.\n\n"
        f"{sum(faults.values())} faults: {_listed(by_kind) or 'none'}. "
        f"{len(findings)} findings."
    )


def _listed(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {number}" for name, number in ordered)


def picture(samples: Sequence[Sample]) -> str:
    """Memory of each kind of process, and of Redis' data, over time, as SVG."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for sample in samples:
        for name in NAMES:
            if of_name := sample.of(name):
                point = sample.at, sum(one.memory for one in of_name)
                lines.setdefault(name, []).append(point)
    end = samples[-1].at or 1.0
    most = max((memory for line in lines.values() for _, memory in line), default=1.0) * 1.05
    wide, high = _WIDTH - _LEFT - 110, _HEIGHT - _BOTTOM - 12

    def place(at: float, memory: float) -> str:
        return f"{_LEFT + wide * at / end:.1f},{12 + high * (1 - memory / most):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for part in range(5):
        memory, at = most * part / 4, end * part / 4
        x, y = place(at, memory).split(",")
        parts += [
            f'<path d="M{_LEFT} {y}H{_LEFT + wide}" stroke="#ddd"/>',
            f'<text x="{_LEFT - 4}" y="{y}" text-anchor="end">{memory:.0f}</text>',
            f'<text x="{x}" y="{_HEIGHT - 8}" text-anchor="middle">{at / 60:.0f} min</text>',
        ]
    parts.append('<text x="2" y="10">MB</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(place(*point) for point in line)
        y = 20 + 16 * number
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}"/>',
            f'<text x="{_LEFT + wide + 8}" y="{y}" fill="{colour}">{name}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])
