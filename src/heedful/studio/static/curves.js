// Curves with a band, drawn by plotly: mean over seeds, and mean ± standard deviation behind it.

import { make } from "./make.js";

const COLOURS = ["#3b6ea8", "#c8693a", "#4f8f5b", "#8a5aa8", "#a8893b", "#5a9aa8", "#a84f6b", "#7b7b7b"];
const BRIGHT = ["#7fb0e6", "#f0986a", "#7cc48b", "#bd93d8", "#d6ba66", "#86c8d6", "#dd86a2", "#b0b0b0"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const FIRST = 4; // the rest is folded away
const figures = new Map(); // by the metric's name: the element, and what it shows

const column = (points, n) => points.map((point) => point[n]);
const faint = (colour) => `${colour}${dark.matches ? "40" : "2e"}`;

/** Losses that fall by decades are told apart on a log scale only: its ends, or null for a linear one. */
function decades({ lines }) {
  const means = lines.flatMap((line) => column(line.points, 1)), [low, high] = [Math.min(...means), Math.max(...means)];
  return low > 0 && high / low > 50 ? [low / 2, high * 2] : null;
}

/** Of one metric: for each variant a band over its seeds, and the line of their mean. */
function traces({ lines }, ends) {
  const foot = (low) => (ends ? Math.max(low, ends[0] / 10) : low); // a band may reach below zero, a log scale does not
  return lines.flatMap((line, n) => {
    const colour = (dark.matches ? BRIGHT : COLOURS)[n % 8], [steps, means] = [column(line.points, 0), column(line.points, 1)];
    const band = line.seeds > 1 ? [{
      x: [...steps, ...[...steps].reverse()], y: [...column(line.points, 3), ...column(line.points, 2).map(foot).reverse()],
      fill: "toself", fillcolor: faint(colour), line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false, legendgroup: line.label,
    }] : [];
    return [...band, {
      x: steps, y: means, mode: steps.length > 1 ? "lines" : "markers", name: `${line.label} (${line.seeds} seed${line.seeds === 1 ? "" : "s"})`, legendgroup: line.label,
      line: { color: colour, width: 2, dash: n < 8 ? "solid" : "dash" }, marker: { color: colour },
      customdata: line.points.map((point) => point[3] - point[1]),
      hovertemplate: `%{y:.4~g}${line.seeds > 1 ? " ± %{customdata:.2~g}" : ""}<extra>%{fullData.name}</extra>`,
    }];
  });
}

function layout({ name, lines }, ends) {
  const style = getComputedStyle(document.documentElement), word = (kind) => style.getPropertyValue(kind).trim();
  const axis = { gridcolor: word("--line"), linecolor: word("--line"), zeroline: false, automargin: true };
  return {
    height: 280 + 20 * Math.ceil(lines.length / 2), margin: { l: 48, r: 12, t: 12, b: 28 }, hovermode: "x unified",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: "system-ui, sans-serif", size: 12, color: word("--soft") },
    hoverlabel: { bgcolor: word("--panel"), bordercolor: word("--line"), font: { color: word("--ink") } },
    xaxis: axis, yaxis: { ...axis, type: ends ? "log" : "linear", ...(ends ? { range: ends.map(Math.log10) } : {}) },
    showlegend: true, legend: { orientation: "h", y: -0.14, yanchor: "top", x: 0, font: { size: 12 } },
    uirevision: name, // zoom and hidden lines stay as they are
  };
}

const OPTIONS = { responsive: true, displaylogo: false, modeBarButtons: [["zoom2d", "pan2d", "autoScale2d", "toImage"]] };

const told = ({ name, lines }) => `${name} by step: ${lines.map((line) => {
  const last = line.points[line.points.length - 1];
  return last ? `${line.label} is at ${Number(last[1].toPrecision(4))} after ${last[0]}` : line.label;
}).join("; ")}`;

function draw({ place, shown }) {
  place.setAttribute("aria-label", told(shown));
  const ends = decades(shown);
  if (place.offsetParent !== null) Plotly.react(place, traces(shown, ends), layout(shown, ends), OPTIONS);
}

const all = () => { for (const figure of figures.values()) draw(figure); };

/** Show every metric that was logged; those there already change in their place. */
export function curves(box, pictures) {
  for (const shown of pictures.filter((one) => one.lines.some((line) => line.points.length))) {
    if (!figures.has(shown.name)) figures.set(shown.name, { place: placed(box, shown) });
    const figure = figures.get(shown.name);
    figure.shown = shown;
    draw(figure);
  }
}

function placed(box, { name, hidden }) {
  if (!figures.size) box.replaceChildren(make("div", { class: "curves" }));
  if (figures.size === FIRST) {
    box.append(make("details", {}, make("summary", {}, "More curves"), make("div", { class: "curves" })));
    box.lastChild.addEventListener("toggle", all); // what is folded has no width to be drawn in
  }
  const place = make("div", { role: "img" }), more = hidden ? `; ${hidden} more variants are not drawn` : "";
  const grids = box.querySelectorAll(".curves");
  grids[grids.length - 1].append(make("figure", { class: "curve" }, make("figcaption", {}, `${name}, by step${more}`), place));
  return place;
}

dark.addEventListener("change", all);
