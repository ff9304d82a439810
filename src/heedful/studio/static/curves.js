// Curves with a band, drawn by plotly: mean over seeds, and mean ± standard deviation behind it.

import { make } from "./make.js";

const COLOURS = ["#3b6ea8", "#c8693a", "#4f8f5b", "#8a5aa8", "#a8893b", "#5a9aa8", "#a84f6b", "#7b7b7b"];
const BRIGHT = ["#7fb0e6", "#f0986a", "#7cc48b", "#bd93d8", "#d6ba66", "#86c8d6", "#dd86a2", "#b0b0b0"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const figures = new Map(); // by the metric's name: the element, and what it shows

const column = (points, n) => points.map((point) => point[n]);
const faint = (colour) => `${colour}${dark.matches ? "40" : "2e"}`;

/** Of one metric: for each variant a band over its seeds, and the line of their mean. */
function traces({ lines }) {
  return lines.flatMap((line, n) => {
    const colour = (dark.matches ? BRIGHT : COLOURS)[n % 8], [steps, means] = [column(line.points, 0), column(line.points, 1)];
    const band = line.seeds > 1 ? [{
      x: [...steps, ...[...steps].reverse()], y: [...column(line.points, 3), ...column(line.points, 2).reverse()],
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

function layout({ name, lines }) {
  const style = getComputedStyle(document.documentElement), word = (kind) => style.getPropertyValue(kind).trim();
  const means = lines.flatMap((line) => column(line.points, 1)), least = Math.min(...means);
  // Losses that fall by decades are told apart on a log scale only; a band's foot may lie below zero there.
  const log = least > 0 && Math.max(...means) / least > 50;
  const axis = { gridcolor: word("--line"), linecolor: word("--line"), zeroline: false, automargin: true };
  return {
    height: 290 + 20 * Math.ceil(lines.length / 2), margin: { l: 48, r: 12, t: 12, b: 36 }, hovermode: "x unified",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: "system-ui, sans-serif", size: 12, color: word("--soft") },
    hoverlabel: { bgcolor: word("--panel"), bordercolor: word("--line"), font: { color: word("--ink") } },
    xaxis: { ...axis, title: { text: "step", standoff: 6 } },
    yaxis: { ...axis, type: log ? "log" : "linear", ...(log ? { range: [Math.log10(least) - 0.2, Math.log10(Math.max(...means)) + 0.2] } : {}) },
    showlegend: true, legend: { orientation: "h", y: -0.24, yanchor: "top", x: 0, font: { size: 11 } }, uirevision: name, // zoom and hidden lines stay as they are
  };
}

const OPTIONS = { responsive: true, displaylogo: false, modeBarButtons: [["zoom2d", "pan2d", "autoScale2d", "toImage"]] };

const told = ({ name, lines }) => `${name} by step: ${lines.map((line) => {
  const last = line.points[line.points.length - 1];
  return last ? `${line.label} is at ${Number(last[1].toPrecision(4))} after ${last[0]}` : line.label;
}).join("; ")}`;

function draw(name) {
  const { place, shown } = figures.get(name);
  place.setAttribute("aria-label", told(shown));
  place.dataset.points = Math.max(...shown.lines.map((line) => line.points.length));
  return Plotly.react(place, traces(shown), layout(shown), OPTIONS);
}

/** Show every metric that was logged; those there already change in their place. */
export function curves(box, pictures) {
  for (const shown of pictures.filter((one) => one.lines.some((line) => line.points.length))) {
    if (!figures.has(shown.name)) {
      if (!figures.size) box.replaceChildren();
      const place = make("div", { role: "img" });
      const more = shown.hidden ? `; ${shown.hidden} more variants are not drawn` : "";
      box.append(make("figure", { class: "curve" }, make("figcaption", {}, `${shown.name}${more}`), place));
      figures.set(shown.name, { place, shown });
    }
    figures.get(shown.name).shown = shown;
    draw(shown.name);
  }
}

dark.addEventListener("change", () => { for (const name of figures.keys()) draw(name); });
