// Choices on the left, the plan beside them, and below who listens to whom; all three change together.

import { view } from "./looking.js";

const at = (id) => document.getElementById(id);
const form = at("view"), show = view(at("looking"));
const named = Object.fromEntries([...at("neighbors").options].map((option) => [option.value, option]));
let waiting = null, asking = null, again = false;

/** The fields of this kind of listener; of a set's, a plain graph's and a typed graph's own, where they count. */
function arrange() {
  const { value: who, selectedOptions: [option] } = at("who"), kind = option.dataset.kind;
  const plain = ["words", "patches", "nodes"].includes(who);
  for (const part of form.querySelectorAll("[data-for]")) {
    const fits = part.dataset.for.split(" ").includes(kind) && (plain || !("plain" in part.dataset))
      && (!("set" in part.dataset) || !at("picture").value.startsWith("sent-"))
      && (!("typed" in part.dataset) || at("graph").value === "typed");
    part.hidden = !fits;
    for (const field of part.querySelectorAll("input, select, textarea")) field.disabled = !fits;
  }
  const known = ["own", ...at("neighbors").dataset[kind].split(",")].filter((word) => plain || kind !== "graph" || word !== "everyone");
  for (const [word, each] of Object.entries(named)) each.hidden = each.disabled = !known.includes(word);
  if (!known.includes(at("neighbors").value)) at("neighbors").value = "own";
  at("window").max = { text: 16, picture: 8, graph: 4 }[kind];
  for (const option of at("similarity").options) option.hidden = option.disabled = !plain && kind === "graph" && !["own", "uniform"].includes(option.value);
  if (at("similarity").selectedOptions[0]?.disabled) at("similarity").value = "own";
  at("beta").value = String(Number((10 ** Number(at("beta-slider").value)).toPrecision(3)));
  at("beta-now").textContent = at("beta").value;
  for (const output of form.querySelectorAll("output[for]")) output.textContent = at(output.htmlFor.value).value;
  at("window").disabled = !at("neighbors").value.includes("window");
}

/** A model is shown pictures of the kind it knows, where they are at hand. */
function familiar() {
  const known = at("who").selectedOptions[0].dataset.knows;
  if (known && [...at("picture").options].some((option) => option.value === known)) at("picture").value = known;
}

function complain(words) {
  at("problem").textContent = words;
  at("problem").hidden = words === "";
}

/** One question at a time: while it is answered, the newest of the next ones waits. */
async function ask() {
  if (asking) { again = true; return; }
  asking = true;
  at("looking").setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(`/attention/look?${new URLSearchParams(new FormData(form))}`);
    const told = await answer.json();
    complain(told.problem ?? "");
    if (answer.ok) {
      show(told);
      at("plan").textContent = told.plan;
      at("looking").hidden = false;
    }
  } catch {
    complain("The studio does not answer. Is it still running?");
  }
  asking = false;
  at("looking").setAttribute("aria-busy", "false");
  if (again) { again = false; ask(); }
}

function soon() {
  arrange();
  clearTimeout(waiting);
  waiting = setTimeout(ask, 120);
}

at("file").addEventListener("change", async () => {
  const [file] = at("file").files;
  if (!file) return;
  if (file.size > Number(at("file").dataset.largest)) {
    complain(`${file.name} has ${(file.size / 1048576).toFixed(1)} MB; a picture has ${at("file").dataset.largest / 1048576} MB at most.`);
    return;
  }
  try {
    const answer = await fetch("/attention/pictures", { method: "POST", body: file });
    const told = await answer.json();
    if (!answer.ok) { complain(told.problem); return; }
    Object.assign(at("sent"), { value: told.picture, hidden: false, textContent: file.name });
    at("picture").value = told.picture;
    soon();
  } catch {
    complain("The picture could not be sent. Is the studio still running?");
  }
});
form.addEventListener("input", (event) => {
  if (event.target === at("who")) familiar();
  if (event.target !== at("file")) soon();
});
form.addEventListener("submit", (event) => { event.preventDefault(); soon(); });
if (!new URLSearchParams(location.search).has("picture")) familiar();
at("beta-slider").value = String(Math.log10(Number(at("beta").value) || 1));
arrange();
ask();
