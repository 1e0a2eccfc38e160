/** The last minute as a picture: bars for events, and below them a line for the connection. */

const SPAN_MS = 60_000;
const SLOT_MS = 200;
const SLOTS = SPAN_MS / SLOT_MS;
const STILL_MS = 5_000; // for who wants no motion: a picture that is renewed, instead of one that glides

/** @param {HTMLCanvasElement} canvas @param {() => boolean} isLive */
export function createStrip(canvas, isLive) {
  /** @type {Map<number, {live: number, replay: number, away: boolean}>} by number of the slot */
  const slots = new Map();
  const started = Date.now();
  const slotAt = (/** @type {number} */ now) => Math.floor(now / SLOT_MS);

  function slot() {
    const number = slotAt(Date.now());
    const found = slots.get(number) ?? { live: 0, replay: 0, away: false };
    slots.set(number, found);
    return found;
  }

  function draw() {
    const { live, replay, away } = colours();
    const last = slotAt(Date.now());
    for (const number of slots.keys()) if (number < last - SLOTS) slots.delete(number);
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    if (context === null) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const step = width / SLOTS;
    const line = 6;
    for (let index = 0; index <= SLOTS; index += 1) {
      const number = last - SLOTS + index;
      if (number < slotAt(started)) continue;
      const { live: lives = 0, replay: replays = 0, away: wasAway = false } = slots.get(number) ?? {};
      const x = Math.round(index * step);
      context.fillStyle = wasAway ? away : live;
      context.globalAlpha = wasAway ? 1 : 0.35;
      context.fillRect(x, height - line, Math.round((index + 1) * step) - x, line);
      context.globalAlpha = 1;
      // Logarithmic: one event must be seen, and a thousand must fit.
      const tall = (/** @type {number} */ count) => (count === 0 ? 0 : Math.min(1, 0.22 + Math.log10(count) / 4) * (height - line - 6));
      const bar = Math.max(2, step - 0.5);
      context.fillStyle = replay;
      context.fillRect(x, height - line - 2 - tall(replays), bar, tall(replays));
      context.fillStyle = live;
      context.fillRect(x, height - line - 2 - tall(lives), bar, tall(lives));
    }
  }

  function colours() {
    const style = getComputedStyle(canvas);
    return { live: style.getPropertyValue("--live"), replay: style.getPropertyValue("--replay"), away: style.getPropertyValue("--away") };
  }

  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let drawn = 0;
  setInterval(() => {
    slot().away ||= !isLive();
    if (still.matches && Date.now() - drawn < STILL_MS) return;
    drawn = Date.now();
    draw();
  }, SLOT_MS);
  draw();
  return {
    /** @param {boolean} replayed */
    add(replayed) {
      slot()[replayed ? "replay" : "live"] += 1;
    },
  };
}
