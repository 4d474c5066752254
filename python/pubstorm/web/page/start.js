"use strict";
/* The page without a run: the form, the run that is played, and the list of stored runs. */
(() => {
  const byId = (id) => document.getElementById(id);
  const SIGNS = { pass: "✓", fail: "✗", invalid: "!", open: "?" };
  const POLL_MS = 2000;
  let shown = "";

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function write(target, text) {
    if (target.textContent !== text) target.textContent = text;
  }

  function link(text, className) {
    write(byId("link"), text);
    byId("link").className = `link ${className}`;
  }

  /* Sends a request. The answer has accepted, text and to. */
  async function post(path, body) {
    try {
      const response = await fetch(path, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
      });
      const type = response.headers.get("content-type") || "";
      if (type.startsWith("application/json")) return await response.json();
      return { accepted: false, text: await response.text() };
    } catch {
      return { accepted: false, text: "no connection to the page's server" };
    }
  }

  /* Asks for a run or a comparison, and goes to its page, or shows why there is none. */
  async function ask(path, body) {
    refuse({ text: "" });
    const buttons = [...document.querySelectorAll("#form button, #runs button")];
    const free = buttons.filter((button) => !button.disabled);
    for (const button of free) button.disabled = true;
    const found = await post(path, body);
    for (const button of free) button.disabled = false;
    if (found.accepted) {
      location.assign(found.to);
      return;
    }
    refuse(found);
    byId("refusal").scrollIntoView({ block: "nearest" });
  }

  function refuse({ text, to }) {
    byId("refusal").hidden = !text;
    write(byId("refused"), text || "");
    byId("to-live").hidden = !to;
  }

  const chosen = () => [...document.querySelectorAll("#list input:checked")];

  function choose() {
    byId("compare").disabled = chosen().length !== 2;
  }

  /* Day and time of the reader. */
  function when(started) {
    const at = new Date(started), two = (number) => String(number).padStart(2, "0");
    if (Number.isNaN(at.getTime())) return started;
    const day = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
    return `${day} ${two(at.getHours())}:${two(at.getMinutes())}`;
  }

  function outcome(run) {
    const line = element("p", undefined, "outcome");
    if (run.status) {
      const text = `${SIGNS[run.status] || ""} ${run.word.toUpperCase()}`;
      line.append(element("span", text, `badge ${run.status}`));
    }
    const title = element("strong", run.title);
    title.id = `t-${run.name}`;
    const about = [when(run.started), run.kind === "run" ? "" : run.kind, run.name];
    line.append(title, element("span", about.filter(Boolean).join(" · "), "when"));
    return line;
  }

  function actions(run) {
    const line = element("p", undefined, "buttons");
    if (run.report) {
      const report = element("a", "Report", "button");
      report.href = `/runs/${encodeURIComponent(run.name)}/report.html`;
      line.append(report);
    }
    if (run.command && !run.problem) {
      const button = element("button", "Repeat");
      button.type = "button";
      button.title = run.command;
      button.addEventListener("click", () => ask("/repeat", { run: run.name }));
      line.append(button);
    }
    for (const each of line.children) each.setAttribute("aria-describedby", `t-${run.name}`);
    if (run.problem) line.append(element("span", `Cannot be repeated: ${run.problem}.`, "how"));
    return line;
  }

  function row(run, isChosen) {
    const made = element("li"), box = element("input"), about = element("div");
    box.type = "checkbox";
    box.value = run.name;
    box.checked = isChosen;
    box.disabled = !run.compares;
    box.setAttribute("aria-label", `Compare ${run.name}`);
    box.addEventListener("change", choose);
    about.append(outcome(run));
    if (run.headline) about.append(element("p", run.headline, "found"));
    about.append(actions(run));
    made.append(box, about);
    return made;
  }

  function list(runs, leftOut, folder) {
    const text = JSON.stringify([runs, leftOut]);
    if (text === shown) return;
    shown = text;
    const before = new Set(chosen().map((box) => box.value));
    byId("list").replaceChildren(...runs.map((run) => row(run, before.has(run.name))));
    byId("quiet").hidden = runs.length > 0;
    write(byId("quiet"), `The folder ${folder} has no run yet.`);
    byId("older").hidden = !leftOut;
    write(byId("older"), `${leftOut} older in the folder ${folder} are not listed.`);
    choose();
  }

  function show(state) {
    const { active, failed } = state;
    byId("active").hidden = !active;
    write(byId("command"), active ? active.command : "");
    write(byId("folder"), active ? active.folder : "");
    if (!active) write(byId("ending"), "");
    byId("failed").hidden = !failed;
    write(byId("failed-command"), failed ? failed.command : "");
    write(byId("reason"), failed ? failed.text : "");
    list(state.runs, state.left_out, state.folder);
  }

  async function poll() {
    if (document.visibilityState === "visible") {
      try {
        const response = await fetch("/state");
        if (response.status === 401) location.reload();
        show(await response.json());
        link("live", "live");
      } catch {
        link("no connection, trying again", "broken");
      }
    }
    setTimeout(poll, POLL_MS);
  }

  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    ask("/start", Object.fromEntries(new FormData(byId("form"))));
  });
  byId("compare").addEventListener("click", () => {
    ask("/compare", { runs: chosen().map((box) => box.value) });
  });
  byId("end").addEventListener("click", async () => {
    write(byId("ending"), (await post("/control", { words: "end stage" })).text);
  });
  byId("stop").addEventListener("click", () => byId("sure").showModal());
  byId("sure").addEventListener("close", async () => {
    if (byId("sure").returnValue === "stop") {
      const { accepted, text } = await post("/stop", {});
      write(byId("ending"), accepted ? "The run is ending." : text);
    }
    byId("sure").returnValue = "";
  });
  poll();
})();
