// Light or dark: as the system says, unless somebody chose. It runs before the first paint.

const KEY = "holdfast.theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };

function chosen() {
  const kept = localStorage.getItem(KEY);
  return kept in NEXT ? kept : "auto";
}

function apply(theme) {
  document.documentElement.dataset.theme = theme;
  const toggle = document.getElementById("theme");
  if (toggle) toggle.textContent = `Theme: ${theme}`;
}

apply(chosen());
document.addEventListener("DOMContentLoaded", () => apply(chosen()));
document.addEventListener("click", (event) => {
  if (event.target.id !== "theme") return;
  localStorage.setItem(KEY, NEXT[chosen()]);
  apply(chosen());
});
