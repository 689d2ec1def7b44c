// For every text in sight: its words, its colours and how well they contrast (WCAG 2.1, 1.4.3).
() => {
  const parse = (text) => {
    const srgb = text.startsWith("color(srgb");
    const [r, g, b, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return srgb ? [255 * r, 255 * g, 255 * b, alpha] : [r, g, b, alpha];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((part, i) => part * a + under[i] * (1 - a));
  const linear = (part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ratio = (a, b) => {
    const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (light + 0.05) / (dark + 0.05);
  };
  const canvas = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
  // Texts share most of their ancestors, so each element is computed once.
  const computed = new Map([[null, { under: canvas, opacity: 1 }]]);
  const behind = (node) => {
    if (!computed.has(node)) {
      const { backgroundColor, opacity } = getComputedStyle(node);
      const parent = behind(node.parentElement);
      computed.set(node, { under: over(parse(backgroundColor), parent.under), opacity: parent.opacity * opacity });
    }
    return computed.get(node);
  };

  const judge = (node, words, colour) => {
    const style = getComputedStyle(node);
    const { under, opacity } = behind(node);
    const [r, g, b, alpha] = parse(colour);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const found = ratio(over([r, g, b, alpha * opacity], under), under);
    return { words: words.trim().slice(0, 40), within: node.className || node.localName, ratio: found, least: large ? 3 : 4.5 };
  };
  const results = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const inSight = range.getClientRects().length > 0 && node.checkVisibility();
    if (!walker.currentNode.data.trim() || !inSight || node.closest(":disabled")) continue;
    const style = getComputedStyle(node);
    results.push(judge(node, walker.currentNode.data, node.closest("svg") ? style.fill : style.color));
  }
  for (const field of document.querySelectorAll("input, select")) {
    results.push(judge(field, field.value || field.name, getComputedStyle(field).color));
    if (field.placeholder) results.push(judge(field, field.placeholder, getComputedStyle(field, "::placeholder").color));
  }
  return results;
}
