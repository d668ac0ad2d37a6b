const drawings = byId("vega") ? inflated("charts").then(JSON.parse) : Promise.resolve([]);
let openAnswers = null; // of the item browser, where there is one: a click on a chart opens the answers behind it
// Charts: the pictures on the page are drawn again by Vega as one comes near them, so that they tell their numbers.
async function drawCharts() {
  if (!byId("vega")) return;
  document.head.append(make("script", "", await inflated("vega"))); // the policy allows it by its hash
  const [config, ...specifications] = await drawings;
  const show = (_, event, item, value) => {
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    tip.textContent = typeof value === "object" ? Object.values(value).join("\n") : String(value);
    beside(event);
  };
  for (const place of document.querySelectorAll(".vega")) { // a chart keeps the width that its texts need
    const { least } = specifications[place.dataset.chart].usermeta ?? {};
    if (least) place.style.minWidth = least + "px";
  }
  // A chart is one picture with one name: Vega gives a role, and no name, to hundreds of its parts.
  const quiet = (place) => new MutationObserver(() => {
    for (const part of place.querySelectorAll("svg[role], svg [role]"))
      for (const name of ["role", "aria-roledescription", "aria-label"]) part.removeAttribute(name);
  }).observe(place, { subtree: true, childList: true, attributes: true, attributeFilter: ["role"] });
  const draw = async (place) => {
    const specification = { ...specifications[place.dataset.chart], config, width: "container" };
    const picture = place.innerHTML;
    try {
      const options = { ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: show };
      quiet(place);
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
