// The answers: a grid of items and edits, filters and a search over all texts, and the answers of an item side by side.
const BASELINE = "baseline";
const KINDS = { // how an edit's answer stands to the unedited one: its sign in the grid, and its words
  right: ["✓", "right"], broken: ["✗", "broken by the edit"], repaired: ["+", "repaired"], wrong: ["–", "wrong before and after"],
  unparsed: ["?", "unparsed"], unclosed: ["…", "thinking never closed"], unknown: ["", "not answered yet"],
};
const FILTERS = { all: "all", broken: "broken by the edit", repaired: "repaired", unparsed: "unparsed", unclosed: "thinking never closed",
  same: "same verdict" };
const FINISHES = { s: "ended by itself", l: "hit the token limit", r: "ended in a loop", n: "broken off: logits not finite" };
const UNCLOSED = -2; // in place of the number of what was read: the thinking was never closed
const CLOSE = "</think>"; // behind it stands the final answer
const CELL = 26; // pixels of a cell of the grid
const LABEL = 150; // of the item's name before them
const HEAD = 96; // of the names of edits above them
const NAME = 30; // characters of a question beside its cells
const MOST_BESIDE = 6; // answers are shown side by side at most

async function browse() {
  const data = JSON.parse(await inflated("data"));
  if (!data.cells.length) return;
  const [models, tasks, edits] = ["model", "task", "edit"].map((name) => byId("choose-" + name));
  const [find, grid, body, view] = ["find", "grid", "grid-body", "item-view"].map(byId);
  // `asked`: whether the reader chose the filter; `kept`: further edits whose answers stand beside.
  const shown = { filter: "all", asked: false, item: 0, kept: new Set() };
  view.hidden = true; // until an item is chosen
  const words = data.words ?? {}; // of a study that compares something else than an edit with the unedited model
  const thinks = data.cells.some((cell) => cell.parsed.includes(UNCLOSED));
  const filters = Object.entries(words.filters ?? FILTERS).filter(([name]) => thinks || name !== "unclosed");
  const inWords = (kind) => (words.filters ?? {})[kind] ?? KINDS[kind][1];
  for (const [select, word] of [[models, words.model], [edits, words.edit]])
    if (word) select.parentElement.firstChild.textContent = word + " ";
  let cells = []; // of the model and task, the unedited one first
  let rows = []; // the items that fit
  let cursor = [0, 1]; // row and column of the grid's own focus; column 0 is the item
  let lower = null; // every text in small letters, made at the first search
  const cellsOf = (model, task) => data.cells.filter((cell) => cell.model === model && cell.task === task);
  const option = (text, value) => { const made = make("option", "", text); made.value = value; return made; };
  const baseline = () => cells.find((cell) => cell.edit === BASELINE);
  const edited = () => cells.find((cell) => cell.edit === edits.value);
  const beside = () => cells.filter((cell) => cell.edit !== BASELINE && (cell.edit === edits.value || shown.kept.has(cell.edit)));
  const items = () => data.tasks[+tasks.value].items;
  const short = (text) => (text.length > NAME ? text.slice(0, NAME) + "…" : text);

  function kindOf(cell, index) {
    const after = cell?.verdicts[index] ?? "-";
    if (after === "-") return "unknown";
    if (after === "0" && cell.parsed[index] === UNCLOSED) return "unclosed";
    if (after === "0" && cell.parsed[index] === -1) return "unparsed";
    if (cell === baseline()) return after === "1" ? "right" : "wrong";
    const before = baseline()?.verdicts[index] ?? "-";
    return { 10: "broken", "01": "repaired", 11: "right", "00": "wrong" }[before + after] ?? "unknown";
  }
  const changes = (cell, index) => { // by the verdicts alone, and unparsed or unclosed besides
    const pair = (baseline()?.verdicts[index] ?? "-") + (cell?.verdicts[index] ?? "-");
    const change = { 10: ["broken"], "01": ["repaired"], 11: ["right", "same"], "00": ["wrong", "same"] }[pair] ?? [];
    return [...change, kindOf(cell, index)];
  };
  const fits = (index) => shown.filter === "all" || beside().some((cell) => changes(cell, index).includes(shown.filter));

  function searched() { // of every item whether a text of it holds what is searched for
    const wanted = find.value.trim().toLowerCase();
    if (!wanted) return () => true;
    lower ??= data.texts.map((text) => text.toLowerCase());
    const holds = lower.map((text) => text.includes(wanted));
    return (index) => items()[index].some((text) => text.toLowerCase().includes(wanted))
      || cells.some((cell) => holds[cell.texts[index]]);
  }

  function fillEdits(wanted) {
    const found = cells.filter((cell) => cell.edit !== BASELINE);
    edits.replaceChildren(...found.map((cell) => option(cell.label, cell.edit)));
    const worst = found.find((cell) => /, (critical|exceeds the effect)$/.test(cell.label)) ?? found[0];
    const kept = found.find((cell) => cell.edit === wanted) ?? worst;
    if (kept) edits.value = kept.edit;
  }

  function fillFilters() { // with how many items each has, of those that hold what is searched for
    const { total } = data.tasks[+tasks.value];
    const counted = find.value.trim() ? items().map((_, index) => index).filter(searched()) : [...Array(total).keys()];
    const counts = { all: counted.length };
    for (const index of counted)
      for (const kind of new Set(beside().flatMap((cell) => changes(cell, index)))) counts[kind] = (counts[kind] ?? 0) + 1;
    const labels = filters.map(([name, called]) => {
      const label = make("label");
      const input = make("input");
      Object.assign(input, { type: "radio", name: "filter", value: name, checked: name === shown.filter });
      input.addEventListener("change", () => { [shown.filter, shown.asked] = [name, true]; fillRows(); });
      label.append(input, `${called} (${counts[name] ?? 0})`);
      return label;
    });
    byId("filters").replaceChildren(byId("filters").querySelector("legend"), ...labels);
  }

  function fillRows(keep) {
    const holds = searched();
    rows = items().map((_, index) => index).filter((index) => fits(index) && holds(index));
    byId("item-count").textContent = rows.length
      ? `${rows.length} of the ${items().length} items in this page.`
      : "No item of this page is of that kind.";
    grid.setAttribute("aria-rowcount", rows.length + 1);
    grid.setAttribute("aria-colcount", cells.length + 1);
    body.style.width = `${LABEL + CELL * cells.length}px`;
    body.style.height = `${HEAD + CELL * rows.length}px`;
    grid.scrollTop = 0;
    open(keep !== undefined && rows.includes(keep) ? keep : view.hidden ? undefined : rows[0]);
  }

  // Of the grid only what is seen is in the page, so that a thousand items under sixty edits are no burden.
  function drawGrid(focus) {
    const first = Math.max(0, Math.floor((grid.scrollTop - HEAD) / CELL) - 3);
    const last = Math.min(rows.length, first + Math.ceil(grid.clientHeight / CELL) + 8);
    const begin = Math.max(0, Math.floor((grid.scrollLeft - LABEL) / CELL) - 2);
    const end = Math.min(cells.length, begin + Math.ceil(grid.clientWidth / CELL) + 6);
    const place = (element, row, column, x, y) => {
      element.setAttribute("aria-colindex", column + 1);
      element.dataset.row = row;
      element.dataset.column = column;
      element.tabIndex = row === cursor[0] && column === cursor[1] ? 0 : -1;
      element.style.left = `${x}px`;
      if (y !== undefined) element.style.top = `${y}px`;
      return element;
    };
    const line = (row) => {
      const made = make("div", row < 0 ? "head" : "");
      made.setAttribute("role", "row");
      made.setAttribute("aria-rowindex", row + 2);
      made.style.top = `${row < 0 ? grid.scrollTop : HEAD + CELL * row}px`;
      return made;
    };
    const heads = line(-1);
    const corner = place(make("span", "name", "item"), -1, 0, grid.scrollLeft);
    corner.setAttribute("role", "columnheader");
    heads.append(corner);
    const names = cells.map((cell) => cell.label.split(",")[0]); // of those that are alike, what stands behind
    for (let column = begin; column < end; column++) {
      const { label } = cells[column], name = names[column];
      const only = names.indexOf(name) === names.lastIndexOf(name);
      const head = place(make("span", "top", only ? name : label.slice(name.length + 2)), -1, column + 1, LABEL + CELL * column);
      head.setAttribute("role", "columnheader");
      head.setAttribute("aria-label", cells[column].label);
      head.setAttribute("aria-selected", beside().includes(cells[column]));
      head.dataset.tip = cells[column].label;
      heads.append(head);
    }
    const lines = [heads];
    for (let row = first; row < last; row++) {
      const index = rows[row];
      const made = line(row);
      const name = place(make("span", "name", short(items()[index][1] || items()[index][0])), row, 0, grid.scrollLeft);
      name.setAttribute("role", "rowheader");
      if (index === shown.item) made.classList.add("current");
      made.append(name);
      for (let column = begin; column < end; column++) {
        const kind = kindOf(cells[column], index);
        const cell = place(make("span", kind, KINDS[kind][0]), row, column + 1, LABEL + CELL * column);
        cell.setAttribute("role", "gridcell");
        cell.setAttribute("aria-label", `${cells[column].label}: ${inWords(kind)}`);
        cell.setAttribute("aria-selected", index === shown.item && beside().includes(cells[column]));
        made.append(cell);
      }
      lines.push(made);
    }
    body.replaceChildren(...lines);
    if (focus) body.querySelector(`[data-row="${cursor[0]}"][data-column="${cursor[1]}"]`)?.focus({ preventScroll: true });
  }

  function reveal([row, column]) { // the grid moved until a cell is seen
    const [top, left] = [CELL * row, CELL * (column - 1)];
    const [high, wide] = [grid.clientHeight - HEAD - CELL, grid.clientWidth - LABEL - CELL];
    if (row >= 0) grid.scrollTop = Math.min(top, Math.max(grid.scrollTop, top - high));
    if (column > 0) grid.scrollLeft = Math.min(left, Math.max(grid.scrollLeft, left - wide));
  }

  function act(row, column) { // a click, or the enter key, on a place of the grid
    cursor = [row, column];
    const cell = cells[column - 1];
    if (row < 0) {
      if (!cell || cell.edit === BASELINE) return;
      if (!shown.kept.delete(cell.edit)) shown.kept.add(cell.edit);
      fillFilters();
      fillRows(shown.item);
    } else {
      if (cell && cell.edit !== BASELINE && cell.edit !== edits.value) { edits.value = cell.edit; fillFilters(); }
      open(rows[row]);
    }
    remember();
    drawGrid(true);
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
    if (parsed === UNCLOSED) facts.append(" · unclosed: it never ended its thinking");
    else if (parsed < 0) facts.append(" · unparsed: no answer could be read");
    else if (data.texts[parsed]) facts.append(` · read as: ${data.texts[parsed]}`);
    if (FINISHES[cell.finish[index]]) facts.append(` · ${FINISHES[cell.finish[index]]}`);
    if (cell.tokens[index]) facts.append(` · ${cell.tokens[index]} tokens`);
    const text = data.texts[number];
    if (!text && parsed >= 0 && !data.texts[parsed]) { // a log of verdicts alone
      box.append(facts);
      return box;
    }
    const against = other && other.texts[index] >= 0 ? data.texts[other.texts[index]] : text;
    let same = 0;
    while (same < text.length && same < against.length && text[same] === against[same]) same++;
    if (text !== against) same = Math.max(0, text.slice(0, same).search(/\s\S*$/) + 1); // from the start of the word
    const said = (from, to) => {
      const part = make("pre", "said", text.slice(from, Math.max(from, Math.min(same, to))));
      if (same < to) part.append(make("span", "differs", text.slice(Math.max(from, same), to)));
      if (from === to) part.append(make("em", "", "(nothing)"));
      return part;
    };
    box.append(facts);
    const closed = text.lastIndexOf(CLOSE);
    if (closed >= 0) {
      const trace = make("details", "trace");
      trace.append(make("summary", "", "thinking"), said(0, closed + CLOSE.length));
      box.append(trace);
    }
    box.append(said(closed < 0 ? 0 : closed + CLOSE.length, text.length));
    return box;
  }

  function open(index) {
    view.hidden = index === undefined;
    if (view.hidden) { shown.item = -1; cursor = [0, Math.max(1, cells.indexOf(edited()) + 1)]; drawGrid(); return; }
    shown.item = index;
    const position = rows.indexOf(index);
    cursor = [position, Math.max(1, cells.indexOf(edited()) + 1)];
    reveal(cursor);
    const [id, question, gold, group] = items()[index];
    const heading = make("h3", "", id);
    if (group) heading.append(make("span", "soft", ` · ${group}`));
    const right = make("p", "", "Right answer: ");
    right.append(make("strong", "", gold));
    right.hidden = !gold;
    const pair = make("div", "pair");
    const [before, after] = [baseline(), edited()];
    pair.append(answer((data.words && before?.label) || "Unedited", before, index, after));
    for (const cell of beside().slice(0, MOST_BESIDE)) pair.append(answer(cell.label, cell, index, before));
    const steps = make("div", "steps");
    for (const [words, by] of [["← previous", -1], ["next →", 1]]) {
      const step = make("button", "step", words);
      step.type = "button";
      step.disabled = rows[position + by] === undefined;
      step.addEventListener("click", () => {
        open(rows[position + by]);
        [...view.querySelectorAll(".step")][by < 0 ? 0 : 1].focus({ preventScroll: true });
      });
      steps.append(step);
    }
    steps.append(make("span", "soft", `${position + 1} of ${rows.length}`));
    const answered = [before, after].map((cell) => (cell ? cell.texts[index] : -1));
    if (data.texts[answered[0]] && answered[0] === answered[1]) steps.append(make("span", "soft", "· the same text, word for word"));
    view.replaceChildren(heading, make("pre", "question", question), right, pair, steps);
    for (const part of view.querySelectorAll("pre")) if (part.scrollHeight > part.clientHeight) part.tabIndex = 0;
    drawGrid();
  }

  function remember() { // the address names what is shown, so that it can be passed on
    const named = new URLSearchParams({ model: data.models[+models.value], task: data.tasks[+tasks.value].name,
      edit: edits.value, show: shown.filter, item: items()[shown.item]?.[0] ?? "" });
    for (const edit of shown.kept) named.append("with", edit);
    if (find.value) named.set("find", find.value);
    history.replaceState(null, "", "#answers?" + named);
  }

  function choose(named) {
    const model = data.models.indexOf(named.model);
    if (model >= 0) models.value = model;
    const available = data.tasks.map((_, index) => index).filter((index) => cellsOf(+models.value, index).length);
    const task = data.tasks.findIndex((found) => found.name === named.task);
    const before = tasks.value === "" ? available[0] : +tasks.value;
    tasks.replaceChildren(...available.map((index) => option(data.tasks[index].name, index)));
    tasks.value = available.includes(task) ? task : available.includes(before) ? before : available[0];
    cells = cellsOf(+models.value, +tasks.value).sort((a, b) => (b.edit === BASELINE) - (a.edit === BASELINE));
    fillEdits(named.edit ?? edits.value);
    shown.kept = new Set([...(named.with ?? shown.kept)].filter((edit) => cells.some((cell) => cell.edit === edit)));
    if (named.find !== undefined) find.value = named.find;
    if (filters.some(([name]) => name === named.show)) [shown.filter, shown.asked] = [named.show, true];
    else if (!shown.asked) shown.filter = items().some((_, index) => changes(edited(), index).includes("broken")) ? "broken" : "all";
    fillFilters();
    const item = items().findIndex(([id]) => id === named.item);
    fillRows(item >= 0 ? item : undefined);
  }

  function follow() {
    if (!location.hash.startsWith("#answers?")) return false;
    const named = new URLSearchParams(location.hash.slice("#answers?".length));
    view.hidden = false;
    choose({ find: "", ...Object.fromEntries(named), with: named.getAll("with") });
    byId("answers").scrollIntoView();
    return true;
  }

  byId("key").replaceChildren(...Object.entries(KINDS).filter(([kind]) => kind !== "unknown" && (thinks || kind !== "unclosed")).map(([kind, [sign]]) => {
    const entry = make("span", "", inWords(kind));
    entry.prepend(make("b", kind, sign));
    return entry;
  }));
  models.replaceChildren(...data.models.map((name, index) => option(name, index)));
  if (!follow()) choose(data.opens ? { model: data.models[data.opens.model], task: data.tasks[data.opens.task].name, edit: data.opens.edit } : {});
  for (const select of [models, tasks, edits])
    select.addEventListener("change", () => { view.hidden = false; choose({}); remember(); });
  find.addEventListener("input", () => { fillFilters(); fillRows(shown.item); remember(); });
  view.addEventListener("click", remember);
  byId("filters").addEventListener("change", remember);
  grid.addEventListener("scroll", () => drawGrid(grid.contains(document.activeElement)), { passive: true });
  new ResizeObserver(() => drawGrid(grid.contains(document.activeElement))).observe(grid);
  grid.addEventListener("click", (event) => {
    const place = event.target.closest("[data-row]");
    if (place) act(+place.dataset.row, +place.dataset.column);
  });
  grid.addEventListener("keydown", (event) => {
    const [row, column] = cursor;
    const page = Math.max(1, Math.floor(grid.clientHeight / CELL) - 2);
    const to = { ArrowDown: [row + 1, column], ArrowUp: [row - 1, column], ArrowRight: [row, column + 1],
      ArrowLeft: [row, column - 1], Home: [row, 0], End: [row, cells.length], PageDown: [row + page, column],
      PageUp: [Math.max(0, row - page), column] }[event.key];
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(row, column); }
    if (!to) return;
    event.preventDefault();
    cursor = [Math.min(rows.length - 1, Math.max(-1, to[0])), Math.min(cells.length, Math.max(0, to[1]))];
    reveal(cursor);
    drawGrid(true);
  });
  window.addEventListener("hashchange", follow);
  let touched = null; // a first touch shows the numbers, a second one on the same place opens the answers
  const visit = (place, named, event) => {
    const again = place === touched;
    touched = place;
    if (!place || (event.pointerType === "touch" && !again)) return;
    view.hidden = false;
    choose({ model: named.model, task: named.task, edit: named.edit });
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
