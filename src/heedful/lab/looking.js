// Who listens to whom: heat map and graph of every layer and head.
// `const show = view(root)` fills an element; `show(data)` as often as there is something else to see.

const SVG = "http://www.w3.org/2000/svg";
const PARTS = `
<p class="soft" data-part="about"></p>
<section data-part="choice"><h2>Layers and heads</h2>
  <p class="soft">A row a layer, from the input on; a column a head. Choose one.</p>
  <div class="sideways"><div class="heads" data-part="heads" role="group" aria-label="layers and heads"></div></div></section>
<section data-part="said"><h2>Text</h2><div class="tokens" data-part="tokens"></div></section>
<p class="told" data-part="told" aria-live="polite"></p>
<div class="two">
  <section><h2>Heat map</h2>
    <p class="soft">A row listens, a column speaks. Full colour is <span data-part="full"></span>.</p>
    <canvas data-part="map" role="img"></canvas></section>
  <section><h2>Graph</h2>
    <p class="soft pruning"><label>strongest <input type="range" data-part="strongest" min="0" step="1"></label> <span data-part="count"></span></p>
    <div class="sideways" data-part="graph"></div>
    <p class="soft legend" data-part="legend"></p></section>
</div>`;

const visible = (token) => token === "\n" ? "↵" : token === "" ? "∅" : token.trim() === "" ? "·".repeat(token.length) : token.replace(/\n/g, "↵");
const blank = (token) => token.trim() === "";
const percent = (w) => `${(100 * w).toFixed(w < 0.095 ? 1 : 0)} %`;

function element(kind, attributes, parent, text) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

export function view(root) {
  root.classList.add("looking");
  root.innerHTML = PARTS; // ours, word for word; what the data says goes in as text
  const part = Object.fromEntries([...root.querySelectorAll("[data-part]")].map((each) => [each.dataset.part, each]));
  let data = null, raw = null, starts = [], n = 0;
  let layer = 0, head = 0, chosen = null, pinned = false, asked = null, full = 1; // head −1: the mean of all; asked: edges wanted

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const label = (i) => data.kind === "picture" ? (i < data.extra ? "the class token" : `patch ${data.tokens[i]}`)
    : data.kind === "graph" ? data.tokens[i] : `“${visible(data.tokens[i])}” (${data.numbers[i]})`;

  function weight(i, j) {
    const at = (h) => raw[starts[layer] + (h * n + i) * n + j] / 255;
    if (head >= 0) return at(head);
    let sum = 0;
    for (let h = 0; h < data.heads[layer]; h++) sum += at(h);
    return sum / data.heads[layer];
  }
  /** The largest weight of this head: full colour, so that many faint ones are told apart as well as few strong ones. */
  function most() {
    let found = 1 / 255;
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) found = Math.max(found, weight(i, j));
    return found;
  }
  /** A pixel a pair; the root shows what is faint, too. */
  function pixels() {
    const top = most();
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = n;
    const pen = canvas.getContext("2d"), image = pen.createImageData(n, n), rgb = colour("--strong").split(",").map(Number);
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) {
      image.data.set([...rgb, 255 * Math.sqrt(weight(i, j) / top)], 4 * (i * n + j));
    }
    pen.putImageData(image, 0, 0);
    return canvas;
  }
  function overview() {
    const most = Math.max(...data.heads), box = part.heads, before = [layer, head];
    part.choice.hidden = most === 1 && data.heads.length === 1;
    box.replaceChildren();
    box.style.gridTemplateColumns = `auto repeat(${most + 1}, auto)`;
    const write = (text) => { const span = document.createElement("span"); span.textContent = text; box.append(span); };
    write("");
    for (let h = 0; h < most; h++) write(`head ${h + 1}`);
    write(most > 1 ? "mean" : "");
    data.heads.forEach((heads, l) => {
      write(`layer ${l + 1}`);
      for (let h = 0; h < most + 1; h++) {
        const which = h === most ? -1 : h;
        if (which >= heads || (which < 0 && heads === 1)) { write(""); continue; }
        const button = document.createElement("button");
        [layer, head] = [l, which];
        button.append(pixels());
        [layer, head] = before;
        button.type = "button";
        button.setAttribute("aria-label", `layer ${l + 1}, ${which < 0 ? "mean of heads" : `head ${which + 1}`}`);
        button.setAttribute("aria-pressed", l === layer && which === head);
        button.onclick = () => {
          [layer, head] = [l, which];
          for (const each of box.querySelectorAll("button")) each.setAttribute("aria-pressed", each === button);
          draw();
        };
        box.append(button);
      }
    });
  }
  function writing() {
    part.said.hidden = data.kind !== "text";
    part.tokens.replaceChildren();
    if (data.kind !== "text") return;
    data.tokens.forEach((token, i) => {
      if (i && data.numbers[i] > data.numbers[i - 1] + 1) part.tokens.append(" … ");
      const span = document.createElement("span");
      span.className = `token${blank(token) ? " blank" : ""}`;
      span.textContent = token === "\n" ? "↵\n" : token === " " ? " " : visible(token);
      listen(span, i);
      part.tokens.append(span, data.spaced ? " " : "");
    });
  }
  function listen(made, i) {
    made.setAttribute("tabindex", "0");
    made.addEventListener("mouseenter", () => { if (!pinned) choose(i); });
    made.addEventListener("focus", () => { if (!pinned && chosen !== i) choose(i); });
    made.addEventListener("click", () => { pinned = !(pinned && chosen === i); choose(i); });
  }
  function choose(i) { chosen = i; draw(); }

  const margin = () => data.kind === "picture" ? 2 : Math.min(88, Math.max(24, 12 + 8 * Math.max(...data.tokens.map((t) => visible(t).length))));
  const cellSize = () => Math.max(1, (Math.min(part.map.parentElement.clientWidth - 34, 600) - margin()) / n);
  function map() {
    const canvas = part.map, cell = cellSize(), m = margin(), side = m + n * cell + 1, ratio = devicePixelRatio || 1;
    canvas.width = canvas.height = side * ratio;
    canvas.style.width = canvas.style.height = `${side}px`;
    canvas.setAttribute("aria-label", `heat map of ${n} by ${n} weights, layer ${layer + 1}, ${head < 0 ? "mean of heads" : `head ${head + 1}`}`);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(pixels(), m, m, n * cell, n * cell);
    pen.strokeStyle = colour("--line");
    pen.strokeRect(m - .5, m - .5, n * cell + 1, n * cell + 1);
    if (data.kind !== "picture") {
      // Where words find no room, places do; of nodes, which have none, no more is said than the graph says.
      const upright = m < 32, longest = Math.max(...data.tokens.map((token) => visible(token).length));
      const tight = cell < 8 || (upright && cell < 7 * longest), step = tight ? 10 : 1;
      pen.font = `${tight ? 10 : Math.min(13, cell + 1)}px ui-monospace, Menlo, Consolas, monospace`;
      pen.textBaseline = "middle";
      for (let i = tight ? 9 : 0; i < n && !(tight && data.kind === "graph"); i += step) {
        const text = tight ? String(data.numbers[i]) : visible(data.tokens[i]).slice(0, 10);
        pen.fillStyle = colour(i === chosen ? "--warm" : tight ? "--soft" : "--ink");
        pen.textAlign = "right";
        pen.fillText(text, m - 4, m + (i + .5) * cell);
        pen.save();
        pen.translate(m + (i + .5) * cell, m - (upright || tight ? 9 : 4));
        if (!upright && !tight) pen.rotate(-Math.PI / 2);
        pen.textAlign = upright || tight ? "center" : "left";
        pen.fillText(text, 0, 0);
        pen.restore();
      }
    }
    if (chosen !== null) {
      pen.strokeStyle = colour("--warm");
      pen.lineWidth = 1.5;
      pen.strokeRect(m - .5, m + chosen * cell - .5, n * cell + 1, cell + 1);
    }
  }
  part.map.addEventListener("mousemove", (event) => {
    const cell = cellSize(), m = margin(), i = Math.floor((event.offsetY - m) / cell), j = Math.floor((event.offsetX - m) / cell);
    if (i < 0 || j < 0 || i >= n || j >= n || pinned) return;
    if (chosen !== i) choose(i);
    tell(i, j);
  });
  part.map.addEventListener("click", (event) => {
    const i = Math.floor((event.offsetY - margin()) / cellSize());
    if (i >= 0 && i < n) { pinned = !(pinned && chosen === i); choose(i); }
  });

  /** The strongest edges, as many as asked for (some for each token unless told), and the few of whoever is chosen. */
  function strongest() {
    const all = [];
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) {
      const w = weight(i, j);
      if (w > 0 && i !== j) all.push({ i, j, w });
    }
    all.sort((a, b) => b.w - a.w);
    part.strongest.max = Math.min(all.length, 6 * n);
    part.strongest.value = asked ?? Math.ceil(data.kind === "graph" ? 3 * n : 1.5 * n);
    let count = Number(part.strongest.value);
    // Of edges that are equally strong all are drawn, or none: any few of them would look chosen.
    const tied = count && count < all.length && all[count].w === all[count - 1].w ? all.findIndex((edge) => edge.w === all[count].w) : 0;
    if (tied > 0) count = tied;
    return [all.slice(0, count), all.slice(count).filter((edge) => edge.i === chosen).slice(0, 4), all.length];
  }
  function graph() {
    const [edges, own, every] = strongest();
    const least = edges.length ? `, of ${percent(edges[edges.length - 1].w)} or more` : "";
    part.count.textContent = `${edges.length} of ${every} edges${least}; a dot's size is what it hears of itself`;
    edges.push(...own);
    edges.reverse(); // the strong, and the chosen, on top
    edges.sort((a, b) => (a.i === chosen) - (b.i === chosen));
    const before = part.graph.scrollLeft, held = part.graph.contains(document.activeElement);
    part.graph.replaceChildren();
    ({ text: onLine, picture: onPicture, graph: onPlane })[data.kind](part.graph, edges);
    part.graph.scrollLeft = before;
    if (held && chosen !== null) part.graph.querySelectorAll("[tabindex]")[chosen]?.focus();
  }
  function stroke(edge) {
    const on = chosen === null || edge.i === chosen;
    return { class: `edge${edge.i === chosen ? " chosen" : ""}`, "stroke-width": (.8 + 3 * edge.w / full).toFixed(2),
             "stroke-opacity": (on ? .35 + .65 * edge.w / full : .16).toFixed(3) };
  }
  const hint = (made, edge) => element("title", {}, made, `${label(edge.i)} listens to ${label(edge.j)}: ${percent(edge.w)}`);
  const plain = (width, height, top, box) => element("svg", { width, height, viewBox: `0 ${top} ${width} ${height}`,
    role: "group", "aria-label": "graph of attention" }, box);
  function onLine(box, edges) {
    const wide = data.tokens.map((t) => Math.max(15, 9 + 8 * visible(t).length)), x = [];
    wide.reduce((sum, w, i) => { x[i] = sum + w / 2; return sum + w; }, 6);
    const far = Math.max(1, ...edges.map((e) => Math.abs(x[e.i] - x[e.j]))), high = Math.min(260, 18 + far / 2), base = high + 14;
    const svg = plain(wide.reduce((a, b) => a + b, 12), base + 40, 0, box);
    for (const edge of edges) {
      const [a, b] = [x[edge.i], x[edge.j]], up = Math.min(high, 12 + Math.abs(a - b) / 2);
      hint(element("path", { d: `M${a},${base} C${a},${base - up * 1.3} ${b},${base - up * 1.3} ${b},${base}`, ...stroke(edge) }, svg), edge);
    }
    data.tokens.forEach((token, i) => {
      const is = i === chosen ? " chosen" : "";
      element("circle", { cx: x[i], cy: base + 5, r: (1.2 + 4 * weight(i, i)).toFixed(2), class: `node${is}` }, svg);
      listen(element("text", { x: x[i], y: base + 26, class: (blank(token) ? "blank" : "") + is }, svg, visible(token)), i);
    });
  }
  function onPicture(box, edges) {
    const side = Math.min(480, box.clientWidth || 480), [rows, columns] = data.grid, tall = side * rows / columns;
    const above = data.extra ? 34 : 2, svg = plain(side, tall + above, -above, box);
    element("image", { href: data.picture, width: side, height: tall, opacity: .55, preserveAspectRatio: "none", class: "seen" }, svg);
    const place = (i) => i < data.extra ? [side / 2, -16]
      : [((i - data.extra) % columns + .5) * side / columns, (Math.floor((i - data.extra) / columns) + .5) * tall / rows];
    curved(svg, edges, place);
    data.tokens.forEach((token, i) => {
      const [a, b] = place(i), is = i === chosen ? " chosen" : "";
      element("circle", { cx: a, cy: b, r: (2 + 6 * weight(i, i)).toFixed(2), class: `node${is}` }, svg);
      const [w, h] = i < data.extra ? [30, 30] : [side / columns, tall / rows];
      const patch = element("rect", { x: a - w / 2, y: b - h / 2, width: w, height: h, class: `patch${is}`, "aria-label": label(i), role: "img" }, svg);
      listen(patch, i);
    });
  }
  function onPlane(box, edges) {
    const side = Math.min(560, box.clientWidth || 560), around = 24, room = side - 2 * around, svg = plain(side, side, 0, box);
    const place = (i) => data.places[i].map((share) => around + share * room);
    curved(svg, edges, place);
    const named = n <= 48;
    data.tokens.forEach((token, i) => {
      const [a, b] = place(i), is = i === chosen ? " chosen" : "", group = data.groups ? ` g${data.groups[i] % 8}` : "";
      const dot = element("circle", { cx: a, cy: b, r: (3.5 + 5 * weight(i, i)).toFixed(2), class: `node${group}${is}`, "aria-label": label(i), role: "img" }, svg);
      element("title", {}, dot, data.groups ? `${token}: ${data.classes[data.groups[i]]}` : token);
      listen(dot, i);
      if (named || i === chosen) element("text", { x: a, y: b - 10, class: `small${is}` }, svg, token.slice(0, 14));
    });
  }
  /** Bent a little, so that who listens to whom and the way back lie apart. */
  function curved(svg, edges, place) {
    for (const edge of edges) {
      const [[a, b], [c, d]] = [place(edge.i), place(edge.j)];
      hint(element("path", { d: `M${a},${b} Q${(a + c) / 2 + (b - d) / 6},${(b + d) / 2 + (c - a) / 6} ${c},${d}`, ...stroke(edge) }, svg), edge);
    }
  }
  function tell(i, j = null) {
    const best = [...Array(n).keys()].map((k) => [k, weight(i, k)]).sort((a, b) => b[1] - a[1]).slice(0, 4).filter(([, w]) => w > .005);
    const first = j === null ? "" : `${label(j)}, ${percent(weight(i, j))}; most of all to `;
    const group = data.groups ? ` (${data.classes[data.groups[i]]})` : "";
    const heard = best.map(([k, w]) => `${label(k)}, ${percent(w)}`).join("; ") || "nobody here";
    part.told.textContent = `${label(i)}${group} listens to ${first}${heard}${pinned ? " (held; click again to let go)" : ""}`;
  }
  function draw() {
    full = most();
    part.full.textContent = percent(full);
    map();
    graph();
    part.tokens.querySelectorAll(".token").forEach((span, i) => {
      span.classList.toggle("chosen", i === chosen);
      span.style.background = chosen === null ? "" : `rgba(${colour("--strong")}, ${(.85 * Math.sqrt(weight(chosen, i) / full)).toFixed(3)})`;
    });
    const what = { text: "token", picture: "patch", graph: "node" }[data.kind];
    if (chosen === null) part.told.textContent = `Point at a ${what}, or a row of the heat map, to see whom it listens to; click to hold it.`;
    else tell(chosen);
  }
  function legend() {
    part.legend.replaceChildren();
    if (!data.groups) return;
    for (const group of [...new Set(data.groups)].sort((a, b) => a - b)) {
      const span = document.createElement("span");
      const svg = element("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, span);
      element("circle", { cx: 5, cy: 5, r: 4, class: `node g${group % 8}` }, svg);
      span.append(data.classes[group]);
      part.legend.append(span, " ");
    }
  }
  part.strongest.oninput = () => { asked = Number(part.strongest.value); graph(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (data) { overview(); draw(); } });
  addEventListener("resize", () => { if (data) draw(); });

  return function show(given) {
    const same = data && data.kind === given.kind && data.tokens.join("\0") === given.tokens.join("\0");
    data = given;
    n = data.tokens.length;
    raw = Uint8Array.from(atob(data.weights), (c) => c.charCodeAt(0)); // a layer after the other, (heads, n, n) each, 255 is 1
    starts = data.heads.map((_, l) => n * n * data.heads.slice(0, l).reduce((a, b) => a + b, 0));
    if (layer >= data.heads.length) layer = 0;
    if (head >= data.heads[layer]) head = 0;
    if (!same) [chosen, pinned, asked] = [data.chosen ?? (data.kind === "text" && n > 1 ? n - 1 : null), false, null];
    part.about.textContent = data.about;
    overview();
    writing();
    legend();
    draw();
    if (!same) part.graph.scrollLeft = part.graph.scrollWidth;
  };
}
