"use strict";
// The icicles: one zoom for all devices, one tab stop each, arrow keys inside.
const icicles = [...document.querySelectorAll(".icicle")];
const byPath = icicles.map((icicle) => new Map([...icicle.children].map((cell) => [cell.dataset.path, cell])));
const above = (path) => path.slice(0, Math.max(path.lastIndexOf("."), 0));
let zoomed = "";

function mark() {
  for (const icicle of icicles) {
    for (const cell of icicle.children) {
      const width = (cell.dataset.width / icicle.style.getPropertyValue("--zw")) * icicle.clientWidth;
      cell.classList.toggle("narrow", width < 22);
    }
  }
}

function zoom(path) {
  zoomed = path;
  icicles.forEach((icicle, n) => {
    let target = path;
    while (!byPath[n].has(target)) target = above(target);
    const cell = byPath[n].get(target);
    icicle.style.setProperty("--zx", cell.dataset.x);
    icicle.style.setProperty("--zw", cell.dataset.width);
  });
  document.getElementById("zoomed").textContent = path
    ? icicles.map((_, n) => byPath[n].get(path)?.getAttribute("aria-label")).filter(Boolean).join("; ")
    : "";
  mark();
}

function focus(cell) {
  if (!cell) return;
  for (const other of cell.parentElement.children) other.tabIndex = -1;
  cell.tabIndex = 0;
  cell.focus();
}

function adjacent(cell, key) {
  const cells = [...cell.parentElement.children];
  const level = Number(cell.getAttribute("aria-level"));
  const same = cells.filter((other) => Number(other.getAttribute("aria-level")) === level);
  const at = same.indexOf(cell);
  if (key === "ArrowRight") return same[at + 1];
  if (key === "ArrowLeft") return same[at - 1];
  const from = cells.indexOf(cell);
  if (key === "ArrowDown") {
    const next = cells[from + 1];
    return next && Number(next.getAttribute("aria-level")) === level + 1 ? next : undefined;
  }
  return cells.slice(0, from).reverse().find((other) => Number(other.getAttribute("aria-level")) < level);
}

icicles.forEach((icicle) => {
  icicle.style.setProperty("--zw", "1");
  icicle.addEventListener("click", (event) => {
    const cell = event.target.closest(".cell");
    if (!cell) return;
    zoom(cell.dataset.path === zoomed ? above(zoomed) : cell.dataset.path);
    focus(cell);
  });
  icicle.addEventListener("keydown", (event) => {
    const cell = event.target.closest(".cell");
    if (!cell) return;
    if (event.key === "Enter" || event.key === " ") zoom(cell.dataset.path);
    else if (event.key === "Escape") zoom(above(zoomed));
    else if (event.key.startsWith("Arrow")) focus(adjacent(cell, event.key));
    else return;
    event.preventDefault();
  });
});
addEventListener("resize", mark);
if (icicles.length) mark();
