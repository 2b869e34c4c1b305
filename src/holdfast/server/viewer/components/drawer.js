// The session list as a drawer on a phone.

import { byId } from "./dom.js";

function setOpen(isOpen) {
  document.body.classList.toggle("drawer-open", isOpen);
  byId("drawer").setAttribute("aria-expanded", String(isOpen));
}

export const closeDrawer = () => setOpen(false);

export function initDrawer() {
  byId("drawer").addEventListener("click", () => {
    const isOpen = byId("drawer").getAttribute("aria-expanded") !== "true";
    setOpen(isOpen);
    if (isOpen) byId("side").querySelector("input")?.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !document.body.classList.contains("drawer-open")) return;
    closeDrawer();
    byId("drawer").focus();
  });
}
