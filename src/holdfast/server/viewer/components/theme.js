// The theme: light, dark, or the system's.

const KEY = "holdfast.theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };

function currentTheme() {
  const stored = localStorage.getItem(KEY);
  return Object.hasOwn(NEXT, stored) ? stored : "auto";
}

function apply(button) {
  document.documentElement.dataset.theme = currentTheme();
  button.textContent = `Theme: ${currentTheme()}`;
}

/** Apply the chosen theme, and let the button of the page switch it. */
export function initTheme() {
  const button = document.getElementById("theme");
  apply(button);
  button.addEventListener("click", () => {
    localStorage.setItem(KEY, NEXT[currentTheme()]);
    apply(button);
  });
}
