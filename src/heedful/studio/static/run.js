// A run's page while it works: state, time left, table and curves, as the server sends them.

import { curves } from "./curves.js";
import { make } from "./make.js";

const page = document.getElementById("run");
const at = (id) => document.getElementById(id);
const KINDS = { done: "good", running: "busy", failed: "bad" };

function show(now) {
  at("state").replaceChildren(make("span", { class: `badge ${KINDS[now.state] ?? "open"}` }, now.state));
  at("progress").max = now.total;
  at("progress").value = now.done + now.failed;
  at("count").textContent = `${now.done} of ${now.total} trials`;
  at("left").textContent = remaining(now);
  at("failures").replaceChildren(...now.failures.map((line) => make("p", { class: "problem" }, line)));
  const names = Object.keys(now.rows[0] ?? {});
  const body = at("rows").querySelector("tbody");
  at("rows").querySelector("thead").replaceChildren(make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name))));
  body.replaceChildren(...now.rows.map((row) => make("tr", {}, ...names.map((name) =>
    make("td", { "data-name": name }, make("span", {}, row[name]))))));
  curves(at("curves"), now.pictures);
  for (const part of page.querySelectorAll("[data-when]")) {
    part.hidden = "never" in part.dataset || !part.dataset.when.split(" ").includes(now.state);
  }
  const figure = at("figure");
  if (!now.done) figure.hidden = true;
  const image = figure.querySelector("img");
  if (!figure.hidden && image.dataset.src) {
    image.src = image.dataset.src;
    delete image.dataset.src;
  }
  page.dataset.state = now.state;
}

/** By what finished trials took; before the first, what such a run usually takes. */
function remaining({ state, left }) {
  const { usual } = at("left").dataset;
  if (state !== "running") return "";
  return left !== null ? `about ${spoken(left)} left` : usual ? `usually about ${usual} in all` : "";
}

function spoken(seconds) {
  for (const [size, unit] of [[3600, "h"], [60, "min"]]) {
    if (seconds >= 1.5 * size) return `${Math.round(seconds / size)} ${unit}`;
  }
  return `${Math.max(1, Math.round(seconds))} s`;
}

function trouble(words) {
  at("link").textContent = words;
  at("link").hidden = words === "";
}

show(JSON.parse(at("now").textContent));

const events = new EventSource(page.dataset.events);
events.onmessage = (event) => {
  trouble("");
  show(JSON.parse(event.data));
};
events.addEventListener("over", () => events.close());
events.onerror = () => trouble(events.readyState === EventSource.CLOSED
  ? "The studio was started again, or has ended. The run goes on without it: open the address that heedful studio printed last."
  : "The studio does not answer; trying again. The run goes on without it.");
