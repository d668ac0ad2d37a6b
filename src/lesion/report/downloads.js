// Downloads: every figure as CSV, PNG, SVG and Vega-Lite, every table as CSV, from what lies in the page.
const PRESENTATION = new Set(["tip", "size", "ink", "room", "begin", "end", "left", "right", "from", "to", "zero"]);

function save(parts, type, name) {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// As `spreadsheet` of files.py: no text is a formula, a negative number stays one, and what is not seen is written out.
const FORMULA = /^[\s\x00-\x1f\x7f-\xa0\u00ad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff"'`]*[=+\-@\t\r]/;
const NUMBER = /^-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const ESCAPED = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const SHORT = { 2: "\\x", 4: "\\u", 8: "\\U" };
function writtenOut(letter) {
  if (letter === "\r") return "\\r";
  const digits = letter.codePointAt(0).toString(16);
  const width = digits.length <= 2 ? 2 : digits.length <= 4 ? 4 : 8;
  return SHORT[width] + digits.padStart(width, "0");
}
function guarded(text) {
  const live = FORMULA.test(text.normalize("NFKC")) && !NUMBER.test(text);
  return (live ? "'" : "") + text.replace(ESCAPED, writtenOut);
}
function csvCell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = typeof value === "number" ? text : text.split(";").map(guarded).join(";");
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
const csv = (rows) => rows.map((row) => row.map(csvCell).join(",")).join("\n") + "\n";

// Colours by role as they are now, so that a file needs no style sheet.
const plainColours = (text) => {
  const style = getComputedStyle(document.documentElement);
  return text.replace(/var\((--\w+)\)/g, (role, name) => style.getPropertyValue(name).trim() || role);
};

function downloadRow(kinds, label) {
  const row = make("p", "downloads");
  for (const [words, action] of kinds) {
    const button = make("button", "step download", words);
    button.type = "button";
    button.setAttribute("aria-label", `Download ${label} as ${words}`);
    button.addEventListener("click", action);
    row.append(button);
  }
  return row;
}

for (const table of document.querySelectorAll("table[data-name]")) {
  const whole = () => {
    const cell = (one) => (one.dataset.v === undefined ? one.textContent : one.dataset.v === "None" ? "" : one.dataset.v);
    const head = [...table.tHead.rows[0].cells].map((one) => one.textContent);
    const rows = [head, ...[...table.tBodies[0].rows].map((row) => [...row.cells].map(cell))];
    save([csv(rows)], "text/csv", table.dataset.name + ".csv");
  };
  table.closest(".scroll").after(downloadRow([["CSV", whole]], "this table"));
}

// The rows that a chart draws: of its data sets the one with most numbers, without what only places things.
function chartRows(specification) {
  const cells = (rows) => rows.length * Object.keys(rows[0] ?? {}).filter((key) => !PRESENTATION.has(key)).length;
  const sets = Object.values(specification.datasets ?? {}).filter((rows) => rows.length && !("begin" in rows[0]));
  return sets.sort((a, b) => cells(b) - cells(a))[0] ?? [];
}

for (const figure of document.querySelectorAll("figure")) {
  const places = [...figure.querySelectorAll(".vega")];
  if (!places.length) continue;
  const heading = (place) => place.closest(".panel").querySelector("h3")?.textContent ?? "";
  const own = async () => {
    const [config, ...specifications] = await drawings;
    return [config, places.map((place) => [heading(place), specifications[place.dataset.chart]])];
  };
  const name = figure.dataset.name;
  const asCsv = async () => {
    const rows = (await own())[1].flatMap(([panel, one]) => chartRows(one).map((row) => ({ panel, ...row })));
    const keys = [...new Set(rows.flatMap(Object.keys))].filter((key) => !PRESENTATION.has(key));
    const used = keys.filter((key) => rows.some((row) => row[key] !== "" && row[key] !== null && row[key] !== undefined));
    save([csv([used, ...rows.map((row) => used.map((key) => row[key]))])], "text/csv", name + ".csv");
  };
  const asVegaLite = async () => {
    const [config, charts] = await own();
    const parts = charts.map(([title, one]) => ({ ...one, ...(title ? { title } : {}) }));
    const whole = parts.length === 1 ? { ...parts[0] } : { concat: parts, columns: 2 };
    whole.$schema = "https://vega.github.io/schema/vega-lite/v6.json";
    save([plainColours(JSON.stringify({ ...whole, config }))], "application/json", name + ".vl.json");
  };
  const asSvg = () => save([drawnWhole(places, heading).text], "image/svg+xml", name + ".svg");
  const asPng = () => {
    const { text, width, height } = drawnWhole(places, heading);
    const picture = new Image();
    picture.onload = () => {
      const canvas = make("canvas");
      [canvas.width, canvas.height] = [2 * width, 2 * height];
      canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save([blob], "image/png", name + ".png"));
    };
    picture.src = "data:image/svg+xml;base64," + btoa(String.fromCodePoint(...new TextEncoder().encode(text)));
  };
  const kinds = [["CSV", asCsv], ["PNG", asPng], ["SVG", asSvg], ["Vega-Lite", asVegaLite]];
  figure.append(downloadRow(kinds, figure.querySelector("figcaption b")?.textContent.replace(".", "") ?? name));
}

// The pictures of a figure under one another, with their headings and the legend, as one SVG of its own.
function drawnWhole(places, heading) {
  const space = "http://www.w3.org/2000/svg";
  const whole = document.createElementNS(space, "svg");
  const style = getComputedStyle(document.body);
  let [y, width] = [8, 0];
  const write = (text, bold) => {
    const line = document.createElementNS(space, "text");
    const marks = { x: 8, y: y + 14, "font-size": 13, "font-weight": bold ? 600 : 400, fill: style.color };
    for (const [key, value] of Object.entries(marks)) line.setAttribute(key, value);
    line.textContent = text;
    whole.append(line);
    y += 22;
  };
  const legend = [...places[0].closest("figure").querySelectorAll(".legend span")];
  for (const place of places) {
    if (heading(place)) write(heading(place), true);
    const shown = place.querySelector("svg");
    const size = shown.getBoundingClientRect();
    const copy = shown.cloneNode(true);
    for (const [key, value] of Object.entries({ x: 0, y, width: size.width, height: size.height })) copy.setAttribute(key, value);
    whole.append(copy);
    y += size.height + 8;
    width = Math.max(width, size.width);
  }
  for (const entry of legend) {
    const swatch = entry.querySelector("svg").cloneNode(true);
    for (const [key, value] of Object.entries({ x: 8, y: y + 2, width: 34, height: 14 })) swatch.setAttribute(key, value);
    whole.append(swatch);
    write("\u2003\u2003\u2003\u2003" + entry.textContent);
  }
  const sizes = { xmlns: space, width: Math.ceil(width + 8), height: Math.ceil(y + 8), "font-family": style.fontFamily };
  for (const [key, value] of Object.entries(sizes)) whole.setAttribute(key, value);
  const ground = document.createElementNS(space, "rect");
  for (const [key, value] of Object.entries({ width: "100%", height: "100%", fill: "var(--paper)" })) ground.setAttribute(key, value);
  whole.prepend(ground);
  return { text: plainColours(new XMLSerializer().serializeToString(whole)), width: sizes.width, height: sizes.height };
}

// A table that has no room for all its rows ends with a whole one, and says that there are more.
function endWithWholeRow(box) {
  box.style.maxHeight = "";
  const table = box.querySelector("table"), rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
  const long = box.scrollHeight > box.clientHeight + 1;
  const bottom = (row) => table.offsetTop + row.offsetTop + row.offsetHeight;
  const last = rows.findLast((row) => bottom(row) <= box.clientHeight);
  box.classList.toggle("longer", long);
  if (long && last) box.style.maxHeight = `${bottom(last) + box.offsetHeight - box.clientHeight}px`;
}

// What is wider than its box says so; it is moved sideways.
const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const box = target.closest(".scroll, #grid");
    if (!box) continue;
    const wide = box.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("overflows", wide);
    if (box.classList.contains("tall")) endWithWholeRow(box);
    if (!wide || box.hasAttribute("tabindex")) continue;
    box.tabIndex = 0; // what moves sideways moves by keys too
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `${box.firstElementChild?.getAttribute("aria-label") ?? "Chart"}, moved sideways`);
  }
});
for (const box of document.querySelectorAll(".scroll")) {
  box.after(make("p", "hint"));
  if (box.classList.contains("tall")) box.after(make("p", "rest"));
  for (const part of [box, ...box.children]) widths.observe(part);
}
