"use strict";
/* The controls: Controls.show gets what the run can be asked for now. */
(() => {
  const byId = (id) => document.getElementById(id);
  let shown = "", rates = [], faults = {}, isNew = true;
  /* Windows of this width in pixels have room for the controls beside the figures. */
  const ROOM = 640;

  async function ask(words) {
    const answer = byId("answer");
    answer.className = "answer";
    answer.textContent = "asking …";
    let found = { accepted: false, text: "no connection to the page's server" };
    try {
      const response = await fetch("/control", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ words }),
      });
      const type = response.headers.get("content-type") || "";
      found = type.startsWith("application/json")
        ? await response.json() : { accepted: false, text: await response.text() };
    } catch { /* The server is gone, or not reached: said above. */ }
    answer.textContent = found.text;
    answer.classList.toggle("refused", !found.accepted);
  }

  /* Offers names in a list, and keeps the choice if it is still among them. */
  function choose(list, names) {
    const chosen = list.value;
    list.replaceChildren(...names.map((name) => new Option(name, name)));
    if (names.includes(chosen)) list.value = chosen;
  }

  const factor = () => rates.find(({ name }) => name === byId("rate-of").value)?.factor ?? 1;
  const short = (value) => Number(value.toPrecision(4));

  function rate(value) {
    byId("rate").value = short(value);
    ask(`rate ${short(value)} ${byId("rate-of").value}`);
  }

  function clients(verb) {
    const over = byId("over").value.trim();
    const words = `${verb} ${byId("count").value.trim()} ${byId("clients-of").value}`;
    ask(over ? `${words} over ${over}` : words);
  }

  function inject() {
    const kind = byId("fault").value, lasts = byId("lasts").value.trim();
    const by = kind === "delay" ? ` by ${byId("by").value.trim()}` : "";
    const until = lasts ? ` for ${lasts}` : "";
    ask(`fault ${kind} ${byId("victims").value.trim()}${by}${until}`);
  }

  /* Names of the brokers or bridges that the chosen kind of fault hits. */
  function groups() {
    const kind = byId("fault").value, names = faults[kind] || [];
    byId("groups").replaceChildren(...names.map((name) => new Option(name)));
    if (!byId("victims").value) byId("victims").value = names[0] || "";
    byId("by-label").hidden = kind !== "delay";
  }

  function repairs(names) {
    byId("broken").replaceChildren(...names.map((name) => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.textContent = "Repair";
      button.setAttribute("aria-label", `Repair ${name}`);
      button.addEventListener("click", () => ask(`repair ${name}`));
      item.append(name, button);
      return item;
    }));
  }

  function show(offer) {
    const text = JSON.stringify(offer);
    if (text === shown) return;
    shown = text;
    byId("controls").hidden = !offer;
    if (!offer) return;
    if (isNew) byId("controls").open = innerWidth > ROOM;
    isNew = false;
    ({ rates, faults } = offer);
    choose(byId("rate-of"), rates.map(({ name }) => name));
    choose(byId("clients-of"), offer.clients);
    choose(byId("fault"), Object.keys(faults));
    groups();
    repairs(offer.broken);
    byId("rates").disabled = !rates.length;
    byId("clients").disabled = !offer.clients.length;
    byId("faults").disabled = !Object.keys(faults).length && !offer.broken.length;
    byId("end").disabled = !offer.end;
  }

  byId("set").addEventListener("click", () => rate(Number(byId("rate").value)));
  byId("faster").addEventListener("click", () => rate(factor() * 1.1));
  byId("slower").addEventListener("click", () => rate(factor() / 1.1));
  byId("add").addEventListener("click", () => clients("add"));
  byId("remove").addEventListener("click", () => clients("remove"));
  byId("inject").addEventListener("click", inject);
  byId("fault").addEventListener("change", () => { byId("victims").value = ""; groups(); });
  byId("rate-of").addEventListener("change", () => { byId("rate").value = short(factor()); });
  for (const button of document.querySelectorAll("[data-words]")) {
    button.addEventListener("click", () => ask(button.dataset.words));
  }
  byId("stop").addEventListener("click", () => byId("sure").showModal());
  byId("sure").addEventListener("close", () => {
    if (byId("sure").returnValue === "stop") ask("stop");
    byId("sure").returnValue = "";
  });
  window.Controls = { show };
})();
