/**
 * The page's own fetch of its state, load(), as far as the machine is concerned: when it is due, what comes of it. The phases
 * are told in machine.js.
 *
 * @typedef {import("./machine.js").State} State
 * @typedef {import("./machine.js").Load} Load
 * @typedef {import("./machine.js").Handler} Handler
 * @typedef {import("./machine.js").Step} Step
 */

import { BASE_MS, backoff } from "./pacing.js";

export const LOAD_MS = 60_000;

/** @param {State} state @param {string} reason @param {number|null} missed @param {number} within_ms
 * @param {number} now @param {number} random @returns {Load} */
export function loadDue(state, reason, missed, within_ms, now, random) {
  const window = Math.max(within_ms, state.load_failures === 0 ? 0 : backoff(BASE_MS, state.load_failures - 1));
  return { phase: "due", at: now + random * window, reason, missed };
}

/** @type {Handler} */
export function loaded(state) {
  return [{ ...state, position: state.reached, reached: null, load: null, load_failures: 0 }, []];
}

/** @type {Handler} */
export function loadFailed(state, event, now, random) {
  if (state.load?.phase !== "running") return [state, []];
  const { reason, missed } = state.load;
  const failed = { ...state, load_failures: state.load_failures + 1 };
  return [{ ...failed, load: loadDue(failed, reason, missed, 0, now, random) },
    [{ type: "report", code: "load", message: event.message }]];
}

/** @param {State} state @param {string} message @param {number} now @param {number} random @returns {Step} */
export function giveLoadUp(state, message, now, random) {
  const [next, effects] = loadFailed(state, { message }, now, random);
  return [next, [{ type: "abort" }, ...effects]];
}
