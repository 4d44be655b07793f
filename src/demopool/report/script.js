// Tables sort by a click on a heading and have a filter; without script they are just tables.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const value = (row, i) => {
    const cell = row.cells[i], given = cell.dataset.order ?? cell.textContent;
    return given === "" || isNaN(given) ? given : Number(given);
  };
  [...table.tHead.rows[0].cells].forEach((heading, i) => {
    let down = false;
    heading.tabIndex = 0;
    const sort = () => {
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [value(a, i), value(b, i)];
        return typeof x === typeof y ? (x > y) - (x < y) : typeof x === "number" ? -1 : 1;
      });
      body.append(...(down ? rows.reverse() : rows));
      down = !down;
    };
    heading.addEventListener("click", sort);
    heading.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  });
  if (body.rows.length < 6) continue;
  const filter = document.createElement("input");
  filter.type = "search";
  filter.placeholder = "filter rows";
  filter.setAttribute("aria-label", "filter rows");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    for (const row of body.rows)
      row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  });
  table.before(filter);
}
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("body > details")) details.open = true;
});
