// Line diff of two texts, side by side, in bounded time.
import { el, visible } from "./dom.js";

const MOST_LINES = 4000; // of a text; the rest is not shown
const MOST_CELLS = 4_000_000; // of the table; beyond them what lies between equal ends counts as replaced

// Longest common subsequence: pairs of equal lines as [i, j], in order.
function equalLines(first, second) {
  const width = second.length + 1;
  if (first.length * width > MOST_CELLS) return [];
  const lengths = new Uint16Array((first.length + 1) * width); // of what follows line i and line j
  for (let i = first.length - 1; i >= 0; i--)
    for (let j = second.length - 1; j >= 0; j--) {
      const [here, below] = [i * width + j, (i + 1) * width + j];
      const longest = Math.max(lengths[below], lengths[here + 1]);
      lengths[here] = first[i] === second[j] ? lengths[below + 1] + 1 : longest;
    }
  const pairs = [];
  let [i, j] = [0, 0];
  while (i < first.length && j < second.length) {
    if (first[i] === second[j]) pairs.push([i++, j++]);
    else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i++;
    else j++;
  }
  return pairs;
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
