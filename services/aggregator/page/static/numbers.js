// Numbers as `plumb compare` prints them.

export const known = (value) => value !== null && value !== undefined;
const form = (places, signs) =>
  new Intl.NumberFormat("en", {
    minimumFractionDigits: places,
    maximumFractionDigits: places,
    useGrouping: false,
    roundingMode: "halfEven",
    signDisplay: signs,
  });
const [share, difference] = [form(1, "auto"), form(1, "always")];

export const percent = (value) => (known(value) ? `${share.format(100 * value)}\u00a0%` : "–");
// A difference of shares in percentage points, with its sign.
export const points = (value) => (known(value) ? difference.format(100 * value) : "–");
export const interval = (ends) => (ends ? `${points(ends[0])} … ${points(ends[1])}` : "–");
// Three significant digits.
export const significant = (value) => (known(value) ? String(Number(value.toPrecision(3))) : "–");
// Two ends in a form, null without them.
export const range = (ends, form) => (ends ? `${form(ends[0])} to ${form(ends[1])}` : null);
