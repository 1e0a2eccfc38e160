/**
 * The gateways, each as a box with a dot for every tab on it. While one drains, the places of those who left stay as empty
 * rings: that is how evenly it lets go.
 */

const DOTS_MAX = 80;
const SETTLED_MS = 3_000;

const WORDS = /** @type {Record<string, string>} */ ({
  starting: "starting",
  ready: "takes tabs",
  unready: "cannot reach Redis",
  draining: "letting its tabs go",
  dead: "down",
});

/** @typedef {{name: string, state: string, starts: number, tabs: number}} Gateway */
/** @typedef {{element: HTMLElement, state: HTMLElement, count: HTMLElement, dots: HTMLElement, places: number, starts: number}} Box */

/** @param {HTMLElement} list @param {HTMLElement} between says how many tabs are on no gateway just now */
export function createFleet(list, between) {
  /** @type {Map<string, Box>} */
  const boxes = new Map();
  let most = 0;
  let unsettled_at = 0;

  return {
    /** @param {Gateway[]} gateways @param {string|null} here the gateway of this tab */
    show(gateways, here) {
      const now = performance.now();
      for (const gateway of gateways) fill(boxes.get(gateway.name) ?? make(gateway.name), gateway, here);
      const tabs = gateways.reduce((sum, gateway) => sum + gateway.tabs, 0);
      if (gateways.some(({ state }) => state !== "ready")) unsettled_at = now;
      // A tab that was closed is not on its way for ever.
      const nobody = gateways.every(({ state }) => state === "dead");
      most = nobody || now - unsettled_at > SETTLED_MS ? tabs : Math.max(most, tabs);
      between.textContent = most > tabs ? `${most - tabs} on the way` : "";
    },
  };

  /** @param {string} name */
  function make(name) {
    const [element, title, state, count, dots] = ["li", "h3", "span", "p", "div"].map((tag) => document.createElement(tag));
    title.textContent = name;
    state.className = "chip";
    count.className = "quiet";
    dots.className = "dots";
    dots.setAttribute("aria-hidden", "true");
    element.append(title, state, count, dots);
    list.append(element);
    const box = { element, state, count, dots, places: 0, starts: 0 };
    boxes.set(name, box);
    return box;
  }

  /** @param {Box} box @param {Gateway} gateway @param {string|null} here */
  function fill(box, { name, state, starts, tabs }, here) {
    const mine = name === here;
    box.element.dataset.gateway = state;
    box.element.toggleAttribute("data-here", mine);
    box.state.textContent = WORDS[state] ?? state;
    box.count.textContent = `${tabs} ${tabs === 1 ? "tab" : "tabs"}${mine ? ", this one too" : ""}`;
    if (starts !== box.starts || state === "ready") box.places = 0;
    box.starts = starts;
    box.places = Math.min(Math.max(box.places, tabs), DOTS_MAX);
    while (box.dots.children.length > box.places) box.dots.lastChild?.remove();
    while (box.dots.children.length < box.places) box.dots.append(document.createElement("i"));
    [...box.dots.children].forEach((dot, index) => {
      dot.className = index >= tabs ? "left" : mine && index === 0 ? "mine" : "";
    });
  }
}
