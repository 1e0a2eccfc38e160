// The machine behind the words of tests/vectors/client_traces.json: what any client is told, and what any client does.

import { initial, publicName, reduce, wakeAt } from "../../machine.js";
import { formatPosition } from "../../position.js";
import { frozen } from "./frozen.js";

/** @type {Record<string, string>} */
const STATES = { idle: "idle", live: "live", waiting: "waiting", stopped: "stopped" };

/** @param {string|null} position where the page stands @param {number} draw the random number, every time */
export function traceClient(position, draw) {
  let state = frozen(initial(position));
  let now = 0;
  /** @type {string|null|undefined} */
  let token;
  let socket = false;
  let loading = false;
  /** @type {object[]} */
  let out = [];

  /** @type {Record<string, (effect: any) => void>} */
  const effects = {
    token: () => out.push({ ask_token: true }),
    dial: () => {
      if (socket) throw new Error("two sockets at once");
      socket = true;
      out.push({ connect: true });
    },
    hello: ({ position }) => out.push({ send: { type: "hello", ...(token != null && { token }), ...(position !== null && { position }) } }),
    send: ({ frame }) => out.push({ send: frame }),
    drop: () => {
      if (socket) out.push({ drop: true });
      socket = false;
    },
    load: ({ reason, missed }) => {
      if (loading) throw new Error("two fetches at once");
      loading = true;
      out.push({ load: { reason, missed } });
    },
    abort: () => {
      if (loading) out.push({ abort_load: true });
      loading = false;
    },
    deliver: ({ event }) => out.push({ deliver: event }),
    report: ({ code }) => out.push({ report: code }),
    diagnose: () => {}, // a browser's own question, see tidings.js
    stop: () => {
      effects.drop({});
      effects.abort({});
    },
  };

  /** @param {import("../../machine.js").Event} event */
  function step(event) {
    const [next, todo] = reduce(state, event, now, draw);
    state = frozen(next);
    for (const effect of todo) effects[effect.type](effect);
  }

  /** Up to a moment, doing whatever falls due on the way. @param {number} until_ms */
  function pass(until_ms) {
    for (let at = wakeAt(state) ?? Infinity; at <= until_ms; at = wakeAt(state) ?? Infinity) {
      now = Math.max(now, at);
      step({ type: "tick" });
    }
    now = until_ms;
  }

  /** @type {Record<string, (value: any) => import("../../machine.js").Event>} */
  const inputs = {
    start: () => ({ type: "start" }),
    close: () => ({ type: "close" }),
    token: (value) => {
      token = value;
      return { type: "token", dial: state.dial };
    },
    token_fails: (message) => ({ type: "tokenFailed", dial: state.dial, message }),
    opened: () => ({ type: "open", dial: state.dial }),
    frame: (frame) => ({ type: "frame", dial: state.dial, frame }),
    closed: ({ code, reason }) => {
      socket = false;
      return { type: "closed", dial: state.dial, code, reason };
    },
    loaded: () => {
      loading = false;
      return { type: "loaded", load: state.loads };
    },
    late: (what) => {
      if (what === "loaded") return { type: "loaded", load: state.loads - 1 };
      return { type: what, dial: state.dial - 1, code: 1006, reason: "" };
    },
    load_fails: (message) => {
      loading = false;
      return { type: "loadFailed", load: state.loads, message };
    },
  };

  return {
    /** What came out since it was asked last. */
    take() {
      const taken = out;
      out = [];
      return taken;
    },
    /** @param {number} ms */
    after(ms) {
      pass(now + ms);
    },
    /** @param {object} input */
    feed(input) {
      const [[name, value]] = Object.entries(input);
      step(inputs[name](value));
      pass(now);
    },
    get state() {
      return STATES[publicName(state)] ?? "connecting";
    },
    get position() {
      return formatPosition(state.position);
    },
  };
}
