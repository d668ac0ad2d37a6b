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
  const bytes = Uint8Array.from(atob(document.querySelector(`script[id="${id}"]`).textContent), (letter) => letter.charCodeAt(0));
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

// The contents name the section that is read.
const contents = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const reading = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const link of contents.values()) link.removeAttribute("aria-current");
    contents.get(entry.target.id)?.setAttribute("aria-current", "true");
  }
}, { rootMargin: "-45px 0px -70% 0px" });
for (const section of document.querySelectorAll("main > section")) reading.observe(section);
