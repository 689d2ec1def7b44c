// Line diff of two texts, side by side, in bounded time.
import { el, visible } from "./dom.js";

const MOST_LINES = 4000; // of a text; the rest is not shown
const MOST_EDITS = 500; // beyond these what lies between equal ends counts as replaced

// The diagonal from which one more edit reaches diagonal k the furthest.
function step(reached, k, edits) {
  const down = k === -edits || (k !== edits && reached.get(k - 1) < reached.get(k + 1));
  return down ? k + 1 : k - 1;
}

// Shortest edit script by Myers' greedy algorithm: pairs of equal lines as [i, j], in order.
function equalLines(first, second) {
  const limit = Math.min(MOST_EDITS, first.length + second.length);
  const reached = new Map([[1, 0]]);
  const trace = [];
  for (let edits = 0; edits <= limit; edits++) {
    trace.push(new Map(reached));
    for (let k = -edits; k <= edits; k += 2) {
      const before = step(reached, k, edits);
      let x = reached.get(before) + (before < k ? 1 : 0);
      let y = x - k;
      while (x < first.length && y < second.length && first[x] === second[y])
        [x, y] = [x + 1, y + 1];
      reached.set(k, x);
      if (x >= first.length && y >= second.length)
        return backwards(trace, first.length, second.length);
    }
  }
  return [];
}

function backwards(trace, length, width) {
  const pairs = [];
  let [x, y] = [length, width];
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const reached = trace[edits];
    const before = step(reached, x - y, edits);
    const start = reached.get(before);
    while (x > start && y > start - before) {
      [x, y] = [x - 1, y - 1];
      pairs.push([x, y]);
    }
    [x, y] = [start, start - before];
  }
  return pairs.reverse();
}

// Rows of both sides: [first line or null, second line or null]; null where a side has none.
export function aligned(one, other) {
  const [first, second] = [one, other].map((text) => text.split("\n").slice(0, MOST_LINES));
  let head = 0;
  while (head < first.length && head < second.length && first[head] === second[head]) head++;
  let tail = 0;
  while (
    tail < first.length - head &&
    tail < second.length - head &&
    first.at(-1 - tail) === second.at(-1 - tail)
  )
    tail++;
  const [left, right] = [
    first.slice(head, first.length - tail),
    second.slice(head, second.length - tail),
  ];
  const rows = first.slice(0, head).map((line) => [line, line]);
  let [i, j] = [0, 0];
  for (const [x, y] of [...equalLines(left, right), [left.length, right.length]]) {
    while (i < x || j < y) rows.push([i < x ? left[i++] : null, j < y ? right[j++] : null]);
    if (x < left.length) rows.push([left[i++], right[j++]]);
  }
  return [...rows, ...first.slice(first.length - tail).map((line) => [line, line])];
}

// Both texts as labelled boxes with the same number of lines; differing ones are marked by sign and colour.
export function sideBySide(label, one, other) {
  const rows = aligned(one, other);
  const box = (side, sign, mark) => {
    const line = (row) => {
      const [mine, same] = [row[side], row[0] === row[1]];
      if (mine === null) return el("span", { class: "absent" }, "\n");
      const parts = [same ? "  " : `${sign} `, ...visible(mine), "\n"];
      return same ? parts : el("span", { class: mark }, parts);
    };
    return el(
      "pre",
      { class: "diff", tabindex: 0, role: "group", "aria-label": label[side] },
      rows.flatMap(line),
    );
  };
  return [box(0, "-", "lost"), box(1, "+", "kept")];
}
