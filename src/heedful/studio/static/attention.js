// The picture and the plan follow the form.

const at = (id) => document.getElementById(id);
const form = at("view"), frame = at("picture");
let waiting = null, asked = 0;

async function update() {
  const query = new URLSearchParams(new FormData(form));
  const now = ++asked;
  const answer = await fetch(`/attention/plan?${query}`).catch(() => null);
  if (now !== asked) return; // the form has changed since
  const words = answer ? await answer.text() : "The studio does not answer. Is it still running?";
  const good = answer?.ok ?? false;
  at("problem").hidden = good;
  at("problem").textContent = good ? "" : words;
  at("plan").textContent = good ? words : "";
  if (good) frame.contentWindow.location.replace(`/attention/picture?${query}`); // no step back for every move
}

function soon() {
  at("beta").value = (10 ** at("beta-slider").value).toPrecision(3);
  at("beta-now").textContent = Number(at("beta").value);
  at("window-now").textContent = at("window").value;
  clearTimeout(waiting);
  waiting = setTimeout(update, 200);
}

function fit() {
  const page = frame.contentDocument?.documentElement;
  if (page) frame.style.height = `${page.scrollHeight + 4}px`;
}

form.addEventListener("input", soon);
form.addEventListener("submit", (event) => { event.preventDefault(); update(); });
frame.addEventListener("load", () => {
  fit();
  if (frame.contentDocument?.body) new ResizeObserver(fit).observe(frame.contentDocument.body);
});
soon();
