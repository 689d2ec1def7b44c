// Numbers as `plumb compare` prints them, to the last digit: exact decimal, halves to the even digit.

// The decimals of a number without its sign. A double has a finite decimal expansion, of which
// toFixed gives the first hundred digits; a half is exact within them.
function decimals(value, places) {
  const [whole, fraction] = Math.abs(value).toFixed(100).split(".");
  const [kept, rest] = [BigInt(whole + fraction.slice(0, places)), fraction.slice(places)];
  const half = "5".padEnd(rest.length, "0");
  const up = rest > half || (rest === half && kept % 2n === 1n);
  const text = String(up ? kept + 1n : kept).padStart(places + 1, "0");
  return places ? `${text.slice(0, -places)}.${text.slice(-places)}` : text;
}

const negative = (value) => value < 0 || Object.is(value, -0);
const known = (value) => value !== null && value !== undefined;

export const fixed = (value, places) => (known(value) ? `${negative(value) ? "-" : ""}${decimals(value, places)}` : "–");
export const percent = (share) => (known(share) ? `${fixed(100 * share, 1)}\u00a0%` : "–");
// A difference of shares in percentage points, with its sign.
export const points = (value) => (known(value) ? `${negative(value) ? "-" : "+"}${decimals(100 * value, 1)}` : "–");
export const interval = (ends) => (ends ? `${points(ends[0])} … ${points(ends[1])}` : "–");

// Three significant digits, as %g of C.
export function significant(value) {
  if (!known(value)) return "–";
  if (value === 0) return "0";
  const [mantissa, power] = value.toExponential(2).split("e").map(Number);
  if (power < -4 || power > 2) return `${mantissa}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  const text = fixed(value, 2 - power);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
