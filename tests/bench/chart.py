"""Line charts as SVG, for figures over time."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

_WIDTH, _HEIGHT = 900, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 170, 40, 50
_COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")
_TICKS = 5
# Points of a line. More cannot be told apart at this width.
_MOST = 400

Points = Sequence[tuple[float, float]]


def write_line_chart(
    path: Path, title: str, x_label: str, y_label: str, lines: Mapping[str, Points]
) -> None:
    """Draw lines over common axes that begin at 0; a line's name stands beside it in a legend."""
    points = [point for line in lines.values() for point in line]
    most_x = max((x for x, _ in points), default=0.0) or 1.0
    most_y = max((y for _, y in points), default=0.0) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (_WIDTH - _LEFT - _RIGHT) * x / most_x
        return across, _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * y / most_y

    parts = [_text(_LEFT, 22, title, "start", 15)]
    for tick in range(_TICKS + 1):
        x, y = most_x * tick / _TICKS, most_y * tick / _TICKS
        (across, bottom), (left, up) = place(x, 0), place(0, y)
        parts += [_line(left, up, _WIDTH - _RIGHT, up), _text(across, bottom + 18, f"{x:,.0f}")]
        parts.append(_text(left - 6, up + 4, f"{y:,.0f}", "end"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, x_label))
    parts.append(_text(_LEFT - 6, _TOP - 8, y_label, "end"))
    for number, (name, line) in enumerate(lines.items()):
        color = _COLORS[number % len(_COLORS)]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in _few(line)))
        parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{drawn}"/>')
        height = _TOP + 18 * number
        parts.append(_text(_WIDTH - _RIGHT + 12, height, name, "start", color=color))
    view = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
    body = '<rect width="100%" height="100%" fill="white"/>' + "\n".join(parts)
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {view}>{body}</svg>\n')


def _few(line: Points) -> Points:
    step = max(1, -(-len(line) // _MOST))
    return [*line[::step], *line[-1:]]


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="#ddd"/>'


def _text(
    x: float, y: float, text: str, anchor: str = "middle", size: int = 12, color: str = "#333"
) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {where} font-size="{size}" fill="{color}">{escape(text)}</text>'
