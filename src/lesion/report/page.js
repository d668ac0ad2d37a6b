// The page's script: numbers on pointing, a sortable table, the item browser. Texts enter by textContent only.
"use strict";
document.documentElement.classList.add("live");
const byId = (id) => document.getElementById(id);
const make = (name, className, text) => {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};

// What is large lies in the page compressed: zlib in base64.
const inflated = (id) => {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
};

// Pointing at a block or a cell shows its numbers.
const tip = byId("tip");
const told = (event) => (event.target.closest ? event.target.closest("[data-tip]") : null);
document.addEventListener("pointermove", (event) => {
  const place = told(event);
  if (event.target.closest?.(".vega")) return; // Vega tells of its own charts
  tip.hidden = !place;
  if (!place) return;
  tip.textContent = place.dataset.tip;
  beside(event);
});
function beside(event) {
  const { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + 14 + width > window.innerWidth - 6;
  tip.style.left = Math.max(6, right ? event.clientX - width - 14 : event.clientX + 14) + "px";
  tip.style.top = Math.max(6, Math.min(event.clientY + 14, window.innerHeight - height - 6)) + "px";
}
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true, capture: true });
document.addEventListener("pointerleave", () => { tip.hidden = true; });

// Tables sort by any column; the table of all cells can show the marked rows only.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = make("button", "", heading.textContent);
    button.type = "button";
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => {
        const cell = row.cells[column];
        if (cell.dataset.v === undefined) return cell.textContent;
        if (cell.dataset.v === "None") return Infinity;
        const number = Number(cell.dataset.v);
        return Number.isNaN(number) ? cell.dataset.v : number;
      };
      const order = (a, b) => {
        const [x, y] = [value(a), value(b)];
        const numbers = typeof x === "number" && typeof y === "number";
        const sign = numbers ? (x === y ? 0 : x < y ? -1 : 1) : String(x).localeCompare(String(y), "en", { numeric: true });
        return down ? -sign : sign;
      };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
    });
  });
}
for (const box of document.querySelectorAll(".only-marked")) {
  const table = box.closest("p").nextElementSibling.querySelector("table");
  box.addEventListener("change", () => {
    for (const row of table.tBodies[0].rows) row.hidden = box.checked && !row.classList.contains("is-critical");
  });
}

// A chooser shows one of several figures.
for (const chooser of document.querySelectorAll("select[data-shows]")) {
  const show = () => {
    for (const figure of document.querySelectorAll("[data-choice]"))
      if (figure.dataset.group === chooser.dataset.shows) figure.hidden = figure.dataset.choice !== chooser.value;
  };
  chooser.addEventListener("change", show);
  show();
}

// A text narrows down a list; the arrows walk through it.
for (const field of document.querySelectorAll("input[data-filters]")) {
  const group = [...document.querySelectorAll("[data-group]")].filter((part) => part.dataset.group === field.dataset.filters);
  const rows = group.flatMap((part) => [...part.querySelectorAll("[data-text]")]);
  const count = document.querySelector(`[data-counts="${field.dataset.filters}"]`);
  const narrow = () => {
    const wanted = field.value.toLowerCase();
    for (const row of rows) row.hidden = !row.dataset.text.toLowerCase().includes(wanted);
    const here = rows.filter((row) => !row.closest("[data-group]").hidden);
    count.textContent = wanted ? `${here.filter((row) => !row.hidden).length} of ${here.length}` : "";
  };
  field.addEventListener("input", narrow);
  for (const chooser of document.querySelectorAll("select[data-shows]")) chooser.addEventListener("change", narrow);
}
document.addEventListener("keydown", (event) => {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const list = by && event.target.closest?.(".explorer") && event.target.closest("[data-group]");
  if (!list || event.target.localName !== "summary") return;
  const rows = [...list.querySelectorAll(".leaver:not([hidden]) > summary")];
  const next = rows[rows.indexOf(event.target) + by];
  if (!next) return;
  event.preventDefault();
  next.focus();
});

// A table can be had as CSV, with the numbers as they are.
for (const table of document.querySelectorAll("table[data-name]")) {
  const button = make("button", "step download", "Download CSV");
  button.type = "button";
  button.addEventListener("click", () => {
    const cell = (one) => {
      const text = one.dataset.v === undefined ? one.textContent : one.dataset.v === "None" ? "" : one.dataset.v;
      const safe = /^[=@+\t\r]|^-(?![\d.])/.test(text) ? "'" + text : text; // a spreadsheet would run it
      return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const head = [...table.tHead.rows[0].cells].map((one) => one.textContent);
    const rows = [head.join(","), ...[...table.tBodies[0].rows].map((row) => [...row.cells].map(cell).join(","))];
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([rows.join("\n") + "\n"], { type: "text/csv" }));
    link.download = table.dataset.name + ".csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  table.closest(".scroll").after(button);
}

let openAnswers = null; // of the item browser, where there is one: a click on a chart opens the answers behind it
// Charts: the pictures on the page are drawn again by Vega as one comes near them, so that they tell their numbers.
async function drawCharts() {
  if (!byId("vega")) return;
  document.head.append(make("script", "", await inflated("vega"))); // the policy allows it by its hash
  const [config, ...specifications] = JSON.parse(await inflated("charts"));
  const show = (_, event, item, value) => {
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    tip.textContent = typeof value === "object" ? Object.values(value).join("\n") : String(value);
    beside(event);
  };
  const draw = async (place) => {
    const specification = { ...specifications[place.dataset.chart], config, width: "container" };
    const picture = place.innerHTML;
    try {
      const options = { ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: show };
      const { view } = await vegaEmbed(place, specification, options);
      const named = (item) => item?.datum?.datum ?? item?.datum; // of what is nearest, or of the mark itself
      const opens = (item) => openAnswers && named(item)?.edit;
      view.addEventListener("click", (event, item) => { if (opens(item)) openAnswers(named(item), event); });
      view.addEventListener("pointermove", (event, item) => { place.style.cursor = opens(item) ? "pointer" : ""; });
    } catch (error) {
      place.innerHTML = picture;
      console.error(error);
    }
  };
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px" });
  for (const place of document.querySelectorAll(".vega")) near.observe(place);
}

// The item browser.
const BASELINE = "baseline";
const FILTERS = { all: "all", broken: "broken by the edit", repaired: "repaired", same: "same verdict" };
const FINISHES = { s: "ended by itself", l: "hit the token limit", r: "ended in a loop", n: "broken off: logits not finite" };

async function browse() {
  const data = JSON.parse(await inflated("data"));
  if (!data.cells.length) return;
  const [models, tasks, edits] = ["model", "task", "edit"].map((name) => byId("choose-" + name));
  const list = byId("item-list");
  const view = byId("item-view");
  const shown = { filter: "all", item: 0 };
  const words = data.words ?? {}; // of a study that compares something else than an edit with the unedited model
  const filters = Object.entries(words.filters ?? FILTERS);
  for (const [select, word] of [[models, words.model], [edits, words.edit]])
    if (word) select.parentElement.firstChild.textContent = word + " ";
  const cellsOf = (model, task) => data.cells.filter((cell) => cell.model === model && cell.task === task);
  const option = (text, value) => { const made = make("option", "", text); made.value = value; return made; };
  const baseline = () => cellsOf(+models.value, +tasks.value).find((cell) => cell.edit === BASELINE);
  const edited = () => cellsOf(+models.value, +tasks.value).find((cell) => cell.edit === edits.value);
  const kind = (index) => {
    const pair = (baseline()?.verdicts[index] ?? "-") + (edited()?.verdicts[index] ?? "-");
    return { 10: "broken", "01": "repaired", 11: "right", "00": "wrong" }[pair] ?? "unknown";
  };
  const belongs = (found, filter) =>
    filter === "all" || found === filter || (filter === "same" && (found === "right" || found === "wrong"));
  const fits = (index) => belongs(kind(index), shown.filter);

  function fillEdits(wanted) {
    const found = cellsOf(+models.value, +tasks.value).filter((cell) => cell.edit !== BASELINE);
    edits.replaceChildren(...found.map((cell) => option(cell.label, cell.edit)));
    const worst = found.find((cell) => /, (critical|exceeds the effect)$/.test(cell.label)) ?? found[0];
    const kept = found.find((cell) => cell.edit === wanted) ?? worst;
    if (kept) edits.value = kept.edit;
  }

  function fillFilters() {
    const kinds = Array.from({ length: data.tasks[+tasks.value].total }, (_, index) => kind(index));
    const labels = filters.map(([name, called]) => {
      const label = make("label");
      const input = make("input");
      Object.assign(input, { type: "radio", name: "filter", value: name, checked: name === shown.filter });
      input.addEventListener("change", () => { shown.filter = name; fillList(); });
      label.append(input, `${called} (${kinds.filter((found) => belongs(found, name)).length})`);
      return label;
    });
    byId("filters").replaceChildren(byId("filters").querySelector("legend"), ...labels);
  }

  function fillList(keep) {
    const items = data.tasks[+tasks.value].items;
    const indices = items.map((_, index) => index).filter(fits);
    const rows = indices.map((index) => {
      const row = make("li");
      const button = make("button");
      button.type = "button";
      button.dataset.index = index;
      const change = make("span", "change");
      for (const cell of [baseline(), edited()]) {
        const verdict = cell?.verdicts[index] ?? "-";
        if (change.childNodes.length) change.append("→");
        change.append(make("span", verdict === "1" ? "yes" : "no", { 1: "✓", 0: "✗" }[verdict] ?? "–"));
      }
      button.append(change, make("span", "", items[index][1] || items[index][0]));
      button.addEventListener("click", () => open(index));
      row.append(button);
      return row;
    });
    list.replaceChildren(...rows);
    byId("item-count").textContent = indices.length
      ? `${indices.length} of the ${items.length} items in this page.`
      : "No item of this page is of that kind.";
    open(keep !== undefined && indices.includes(keep) ? keep : indices[0]);
  }

  function answer(title, cell, index, other) {
    const box = make("div", "answer");
    box.append(make("h4", "", title));
    const number = cell ? cell.texts[index] : -1;
    if (number === undefined || number < 0) {
      box.append(make("p", "facts", "Not answered yet."));
      return box;
    }
    const right = cell.verdicts[index] === "1";
    box.classList.add(right ? "is-right" : "is-wrong");
    const facts = make("p", "facts");
    facts.append(make("strong", right ? "yes" : "no", right ? "✓ right" : "✗ wrong"));
    const parsed = cell.parsed[index];
    facts.append(parsed < 0 ? " · no answer could be read" : ` · read as: ${data.texts[parsed]}`);
    facts.append(` · ${FINISHES[cell.finish[index]]}`);
    if (cell.tokens[index]) facts.append(` · ${cell.tokens[index]} tokens`);
    const said = make("pre", "said");
    const text = data.texts[number];
    const against = other && other.texts[index] >= 0 ? data.texts[other.texts[index]] : text;
    let same = 0;
    while (same < text.length && same < against.length && text[same] === against[same]) same++;
    if (text !== against) same = Math.max(0, text.slice(0, same).search(/\s\S*$/) + 1); // from the start of the word
    said.append(text.slice(0, same));
    if (same < text.length) said.append(make("span", "differs", text.slice(same)));
    if (!text) said.append(make("em", "", "(nothing)"));
    box.append(facts, said);
    return box;
  }

  function open(index, focus) {
    for (const button of list.querySelectorAll("button")) {
      const current = +button.dataset.index === index;
      button.setAttribute("aria-current", current);
      if (!current) continue;
      const below = button.offsetTop + button.offsetHeight - list.offsetTop - list.scrollTop - list.clientHeight;
      const above = list.scrollTop - (button.offsetTop - list.offsetTop);
      if (below > 0) list.scrollTop += below + 4;
      if (above > 0) list.scrollTop -= above + 4;
      if (focus) button.focus({ preventScroll: true });
    }
    if (index === undefined) { view.replaceChildren(); return; }
    shown.item = index;
    const [id, question, gold, group] = data.tasks[+tasks.value].items[index];
    const heading = make("h3", "", id);
    if (group) heading.append(make("span", "soft", ` · ${group}`));
    const right = make("p", "", "Right answer: ");
    right.append(make("strong", "", gold));
    const pair = make("div", "pair");
    const [before, after] = [baseline(), edited()];
    pair.append(answer((data.words && before?.label) || "Unedited", before, index, after));
    pair.append(answer(edits.selectedOptions[0]?.textContent ?? "Edited", after, index, before));
    const steps = make("div", "steps");
    const buttons = [...list.querySelectorAll("button")];
    const position = buttons.findIndex((button) => +button.dataset.index === index);
    for (const [words, by] of [["← previous", -1], ["next →", 1]]) {
      const step = make("button", "step", words);
      step.type = "button";
      step.disabled = !buttons[position + by];
      step.addEventListener("click", () => {
        open(+buttons[position + by].dataset.index);
        [...view.querySelectorAll(".step")][by < 0 ? 0 : 1].focus({ preventScroll: true });
      });
      steps.append(step);
    }
    steps.append(make("span", "soft", `${position + 1} of ${buttons.length}`));
    const answered = [before, after].map((cell) => (cell ? cell.texts[index] : -1));
    if (answered[0] >= 0 && answered[0] === answered[1]) steps.append(make("span", "soft", "· the same text, word for word"));
    view.replaceChildren(heading, make("pre", "question", question), right, pair, steps);
  }

  function remember() { // the address names what is shown, so that it can be passed on
    const named = { model: data.models[+models.value], task: data.tasks[+tasks.value].name, edit: edits.value,
      show: shown.filter, item: data.tasks[+tasks.value].items[shown.item]?.[0] ?? "" };
    history.replaceState(null, "", "#answers?" + new URLSearchParams(named));
  }

  function choose(named) {
    const model = data.models.indexOf(named.model);
    if (model >= 0) models.value = model;
    const available = data.tasks.map((_, index) => index).filter((index) => cellsOf(+models.value, index).length);
    const task = data.tasks.findIndex((found) => found.name === named.task);
    const before = tasks.value === "" ? available[0] : +tasks.value;
    tasks.replaceChildren(...available.map((index) => option(data.tasks[index].name, index)));
    tasks.value = available.includes(task) ? task : available.includes(before) ? before : available[0];
    fillEdits(named.edit ?? edits.value);
    if (filters.some(([name]) => name === named.show)) shown.filter = named.show;
    fillFilters();
    const item = data.tasks[+tasks.value].items.findIndex(([id]) => id === named.item);
    fillList(item >= 0 ? item : undefined);
  }

  function follow() {
    if (!location.hash.startsWith("#answers?")) return false;
    choose(Object.fromEntries(new URLSearchParams(location.hash.slice("#answers?".length))));
    byId("answers").scrollIntoView();
    return true;
  }

  models.replaceChildren(...data.models.map((name, index) => option(name, index)));
  if (!follow()) choose({});
  for (const select of [models, tasks, edits]) select.addEventListener("change", () => { choose({}); remember(); });
  view.addEventListener("click", remember);
  list.addEventListener("click", remember);
  byId("filters").addEventListener("change", remember);
  list.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const buttons = [...list.querySelectorAll("button")];
    const next = buttons[buttons.findIndex((button) => +button.dataset.index === shown.item) + by];
    if (next) { open(+next.dataset.index, true); remember(); }
  });
  window.addEventListener("hashchange", follow);
  let touched = null; // a first touch shows the numbers, a second one on the same place opens the answers
  const visit = (place, named, event) => {
    const again = place === touched;
    touched = place;
    if (!place || (event.pointerType === "touch" && !again)) return;
    choose({ model: named.model, task: named.task, edit: named.edit, show: shown.filter });
    remember();
    byId("answers").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  };
  document.addEventListener("click", (event) => {
    if (event.target.closest(".vega")) return;
    const place = event.target.closest("[data-edit]");
    visit(place, place?.dataset, event);
  });
  openAnswers = (named, event) => visit(JSON.stringify([named.model, named.task, named.edit]), named, event);
}

// Resolved when charts can be drawn and answers be read.
const ready = Promise.all([drawCharts(), browse()]).catch((error) => {
  console.error(error);
  byId("unable").hidden = false;
});
