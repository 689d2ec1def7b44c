// Which view an address shows, and what is there on every view.
import { el, name } from "./dom.js";
import { showRun } from "./run.js";
import { showRuns } from "./runs.js";
import { showSample } from "./sample.js";

const main = document.getElementById("main");
const crumbs = document.getElementById("crumbs");
const notice = document.getElementById("notice");
let leave = () => {};

export function warn(error) {
  notice.replaceChildren(error ? name(error.message ?? error) : "");
}

function where() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { parts, query: new URLSearchParams(query) };
}

function trail(parts) {
  const links = [];
  if (parts[0] === "run") links.push(["run", `#/run/${encodeURIComponent(parts[1])}`, parts[1]]);
  if (parts.length > 2) links.push(["sample", location.hash, `${parts[2]} / ${parts[3]} / ${parts[4]}`]);
  return links.map(([, href, text]) => el("a", { href }, name(text))).flatMap((link) => [" › ", link]);
}

async function show() {
  leave();
  leave = () => {};
  warn("");
  const { parts, query } = where();
  crumbs.replaceChildren(...trail(parts));
  document.title = parts[1] ? `${parts.slice(1).join(" / ")} – Plumbline` : "Plumbline";
  const view = parts[0] !== "run" ? showRuns : parts.length < 5 ? showRun : showSample;
  try {
    leave = (await view(main, parts.slice(1), query)) ?? leave;
  } catch (error) {
    main.replaceChildren(el("h1", {}, "This cannot be shown"), el("p", {}, name(error.message)));
  }
}

addEventListener("hashchange", show);
show();
