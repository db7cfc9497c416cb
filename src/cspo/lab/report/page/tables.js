// Tables: a click on a header sorts by it, a click on the same header turns the order around.
(function () {
  "use strict";

  function sortKey(row, column) {
    const text = row.cells[column].dataset.sort;
    if (text === undefined || text === "") return null;
    const value = Number(text);
    return Number.isNaN(value) ? text : value;
  }

  function compare(a, b) {
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  }

  function sortBy(table, column) {
    const header = table.tHead.rows[0].cells[column];
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => ({ row: row, key: sortKey(row, column) }));
    const numeric = rows.some((item) => typeof item.key === "number");
    const now = header.getAttribute("aria-sort");
    const descending = now ? now === "ascending" : numeric; // of numbers the large ones are asked for first
    rows.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null); // what is missing comes last
      return descending ? compare(b.key, a.key) : compare(a.key, b.key);
    });
    for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    body.append(...rows.map((item) => item.row));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    for (const button of table.tHead.querySelectorAll("button")) {
      button.addEventListener("click", () => sortBy(table, button.closest("th").cellIndex));
    }
  }

  const filter = document.getElementById("main-task");
  if (filter) {
    const show = () => {
      for (const row of document.querySelectorAll("#main-table tbody tr")) {
        row.hidden = filter.value !== "" && row.dataset.task !== filter.value;
      }
    };
    filter.addEventListener("change", show);
    show();
  }

  // A link into a closed box opens it.
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") {
      target.open = true;
      target.scrollIntoView({ block: "start" });
    }
  };
  window.addEventListener("hashchange", open);
  open();
})();
