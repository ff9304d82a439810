// Curves with a band, as SVG: mean over seeds, and mean ± standard deviation behind it.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 440, HEIGHT = 240, LEFT = 52, RIGHT = 10, TOP = 10, BOTTOM = 26;

/** An element with attributes and children; text is never read as HTML. */
export function make(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "g", "circle", "title"].includes(name);
  const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Round numbers that cover low to high, about as many as asked for. */
export function ticks(low, high, count) {
  const rough = (high - low) / count;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 5, 10].find((factor) => factor * size >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n++) found.push(n * step);
  return found;
}

/** Powers of ten within low to high, five at most. */
function decades(low, high) {
  const [first, last] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
  const every = Math.max(1, Math.ceil((last - first) / 5));
  const found = [];
  for (let n = first; n <= last; n += every) found.push(10 ** n);
  return found;
}

const written = (number) => {
  const size = Math.abs(number);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return number.toExponential(0);
  return String(Number(number.toPrecision(4)));
};

/** One picture: a metric against steps, a line for each variant. */
export function picture({ name, lines, hidden }) {
  const points = lines.flatMap((line) => line.points);
  let [left, right] = [Math.min(...points.map((p) => p[0])), Math.max(...points.map((p) => p[0]))];
  let [low, high] = [Math.min(...points.map((p) => p[2])), Math.max(...points.map((p) => p[3]))];
  // Losses that fall by decades are told apart on a log scale only; a band's foot may lie below zero there.
  const means = points.map((p) => p[1]);
  const least = Math.min(...means);
  const log = least > 0 && Math.max(...means) / least > 50;
  if (log) low = Math.max(low, least / 2);
  if (left === right) [left, right] = [left - 0.5, right + 0.5];
  if (low === high) [low, high] = [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
  const x = (step) => LEFT + ((step - left) / (right - left)) * (WIDTH - LEFT - RIGHT);
  const scale = log ? (value) => Math.log10(Math.max(value, low)) : (value) => value;
  const y = (value) => TOP + ((scale(high) - scale(value)) / (scale(high) - scale(low))) * (HEIGHT - TOP - BOTTOM);
  const path = (found) => found.map(([a, b], n) => `${n ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
  const drawing = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told(name, lines) });
  for (const value of log ? decades(low, high) : ticks(low, high, 4)) {
    drawing.append(make("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
    drawing.append(make("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, written(value)));
  }
  for (const step of ticks(left, right, 5).filter(Number.isInteger)) {
    drawing.append(make("text", { x: x(step), y: HEIGHT - 8, "text-anchor": "middle" }, written(step)));
  }
  lines.forEach((line, n) => {
    const colour = `c${n % 8}`;
    if (line.seeds > 1) {
      const around = [...line.points.map((p) => [x(p[0]), y(p[3])]), ...line.points.map((p) => [x(p[0]), y(p[2])]).reverse()];
      drawing.append(make("path", { class: `band ${colour}`, d: `${path(around)}Z` }));
    }
  });
  lines.forEach((line, n) => {
    const [colour, style] = [`c${n % 8}`, n < 8 ? "" : "dashed"];
    drawing.append(make("path", { class: `line ${colour} ${style}`, d: path(line.points.map((p) => [x(p[0]), y(p[1])])) },
      make("title", {}, line.label)));
    const last = line.points[line.points.length - 1];
    if (last) drawing.append(make("circle", { class: `dot ${colour}`, cx: x(last[0]), cy: y(last[1]), r: 2.6 }));
  });
  const legend = make("ul", { class: "legend" }, ...lines.map((line, n) => make("li", {},
    make("svg", { viewBox: "0 0 16 10", "aria-hidden": "true" }, make("path", { class: `line c${n % 8} ${n < 8 ? "" : "dashed"}`, d: "M0 5L16 5" })),
    `${line.label} (${line.seeds} seed${line.seeds === 1 ? "" : "s"})`)));
  if (hidden) legend.append(make("li", {}, `and ${hidden} more that are not drawn`));
  return make("figure", { class: "curve" }, make("figcaption", {}, `${name}, by step${log ? ", log scale" : ""}`), drawing, legend);
}

const told = (name, lines) => `${name} by step: ` + lines.map((line) => {
  const last = line.points[line.points.length - 1];
  return last ? `${line.label} is at ${written(last[1])} after ${last[0]}` : line.label;
}).join("; ");
