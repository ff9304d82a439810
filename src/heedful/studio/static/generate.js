// Tokens as they are drawn, each with its probability and what it beat; copied stretches underlined at the end.

import { make } from "./make.js";

const at = (id) => document.getElementById(id);
const form = at("wish");
let events = null, tokens = [];

const percent = (share) => (share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`);
const shown = (text) => (text === "" ? "∅" : text.replace(/\n/g, "↵").replace(/ /g, "␣"));

function finish(words) {
  events?.close();
  events = null;
  at("halt").hidden = true;
  at("write").disabled = false;
  at("told").textContent = words;
}

function add(record) {
  const level = Math.max(0, Math.min(4, Math.floor(-Math.log2(Math.max(record.probability, 1e-9)))));
  const span = make("span", { class: `token p${level}`, tabindex: "0" }, record.text);
  const say = () => tell(record);
  span.addEventListener("mouseenter", say);
  span.addEventListener("focus", say);
  at("text").append(span);
  tokens.push({ span, record });
}

function tell(record) {
  const line = (text, probability, chosen) => make("tr", chosen ? { class: "chosen" } : {},
    make("td", { "data-name": "token" }, make("code", {}, shown(text))), make("td", { "data-name": "probability" }, percent(probability)),
    make("td", { class: "bar" }, make("meter", { min: "0", max: "1", value: String(probability), "aria-label": percent(probability) })));
  const rows = [[record.text, record.probability, true], ...record.beat.map((one) => [one.text, one.probability, false])];
  rows.sort((a, b) => b[1] - a[1]);
  at("beat").hidden = false;
  at("beat").replaceChildren(make("table", {}, make("tbody", {}, ...rows.map((row) => line(...row)))));
}

/** Tokens within copied stretches, by their place in the text. */
function underline({ copies, book }) {
  let place = 0, letters = 0;
  for (const { span, record } of tokens) {
    // Places count characters as Python does, not halves of them.
    const end = place + [...record.text].length;
    if (copies.some(([start, length]) => place < start + length && end > start)) span.classList.add("copied");
    place = end;
  }
  for (const [, length] of copies) letters += length;
  if (book === null) return "What it was trained on is not at hand, so copies are not marked.";
  return copies.length ? `Underlined: ${letters} of ${place} characters stand letter for letter in ${book}, in stretches of 20 or more.`
    : `No stretch of 20 characters or more stands in ${book}.`;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  events?.close();
  tokens = [];
  at("problem").hidden = true;
  at("beat").hidden = true;
  at("text").hidden = false;
  at("text").replaceChildren(make("span", { class: "prompt" }, at("prompt").value));
  at("told").textContent = "writing…";
  at("halt").hidden = false;
  at("write").disabled = true;
  let last = "";
  events = new EventSource(`/generate/events?${new URLSearchParams(new FormData(form))}`);
  events.onmessage = (message) => {
    const record = JSON.parse(message.data);
    if ("copies" in record) last = underline(record);
    else add(record);
    if (tokens.length && !("copies" in record)) at("told").textContent = `${tokens.length} tokens`;
  };
  events.addEventListener("over", () => finish(last));
  events.addEventListener("problem", (message) => {
    at("problem").textContent = JSON.parse(message.data);
    at("problem").hidden = false;
    finish("");
  });
  events.onerror = () => { if (events) finish("The studio does not answer. Is it still running?"); };
});
at("halt")?.addEventListener("click", () => finish(`stopped after ${tokens.length} tokens`));
