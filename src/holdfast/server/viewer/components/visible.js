// Work that is done when a part of the page becomes visible, so that nothing is downloaded that is not looked at.

const loaders = new WeakMap();
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    loaders.get(target)();
  }
}, { rootMargin: "200px" });

/** Call a function once, when a node becomes visible or nearly so. */
export function whenVisible(node, load) {
  loaders.set(node, load);
  observer.observe(node);
}
