/**
 * The Tidings client for a page.
 *
 *     import { Tidings } from "https://push.example.com/tidings.js";
 *
 *     const tidings = new Tidings({
 *       token: () => fetch("/push-token").then((answer) => answer.text()),
 *       load: ({ signal }) => showJobs(signal), // fetch the page's state, and show it
 *     });
 *     tidings.on("job.*", (event) => showJob(event.data));
 *
 * This file is the shell: the socket, one timer, and the page's own functions. What is done when is decided in machine.js.
 * It may be imported where there is no window, and runs in Node 20 with a WebSocket class passed in.
 */

import { initial, publicName, reduce, wakeAt } from "./machine.js";
import { formatPosition } from "./position.js";

/**
 * @typedef {import("./machine.js").Event} Event
 * @typedef {import("./machine.js").Effect} Effect
 * @typedef {import("./machine.js").TidingsEvent} TidingsEvent
 *   `id` null: ephemeral. `replay`: it happened while the page was away, or before it came. `topic` null: the user's own.
 *
 * @typedef {object} Status
 * @property {string} state idle, authorizing, connecting, greeting, replaying, loading, live, waiting or stopped.
 *   `live` is said only when nothing is missing: connected, caught up, and load() done where one was owed.
 * @property {string|null} previous the state before
 * @property {number|null} code close code of the last connection that ended; 3008 and 4000 are this client's own
 * @property {string} reason in words, as far as they are known
 * @property {number|null} retry_ms in waiting: milliseconds until the next attempt; null: when the page is shown again
 * @property {string|null} session
 * @property {string|null} user who the gateway says we are
 *
 * @typedef {object} Options
 * @property {string|URL} [url] where the gateway is, for example `https://push.example.com`. Default: where this module came from.
 * @property {string|((context: {signal: AbortSignal}) => string|null|undefined|Promise<string|null|undefined>)} [token]
 *   A function is asked before every attempt to connect, never twice at once; 30 s are given. None: the page's cookie counts.
 * @property {(context: {reason: string, missed: number|null, signal: AbortSignal}) => unknown} [load]
 *   Fetches the page's state and shows it. Called when the page has none yet (`reason` "start"), and whenever events may have
 *   been missed for good (`reason` trimmed, epoch, ahead, invalid, forbidden; `missed` how many, where it is known). Done when
 *   its promise is; until then `position` stays where it was. One that fails, or takes longer than 60 s, is tried again.
 *   Durable events that come while it runs are handed over right after it.
 * @property {string|null} [position] where the page's state stands already, if a server rendered it with its position
 * @property {(status: Status) => void} [onstate]
 * @property {(error: TidingsError) => void} [onerror] Default: a warning on the console.
 * @property {any} [WebSocket] a class with the browser's interface; default: the global one
 */

/**
 * `code`: `close` (see there), `token`, `load`, `listener` (a function of the page failed, see `cause`), `refused` (no
 * connection at all, and why, as far as it can be known), `resync` (events may have been missed, and there is no load()),
 * `gap` and `malformed` (the gateway is at fault), `server` (it complained), `socket` (none could be made).
 */
export class TidingsError extends Error {
  /** @param {string} code @param {string} message @param {{close?: {code: number, reason: string}, cause?: unknown}} [details] */
  constructor(code, message, { close, cause } = {}) {
    super(close ? `${message} (closed with ${[close.code, close.reason].filter(Boolean).join(" ")})` : message, { cause });
    this.name = "TidingsError";
    this.code = code;
    this.close = close ?? null;
  }
}

export class Tidings {
  /** @type {Options["onstate"]} */
  onstate;
  /** @type {Options["onerror"]} */
  onerror;
  #options;
  #url;
  #state;
  /** @type {string|null|undefined} */
  #token;
  /** @type {any} */
  #socket = null;
  /** @type {Array<{pattern: string, listener: (event: TidingsEvent) => void}>} */
  #listeners = [];
  /** @type {Record<string, AbortController>} */
  #controllers = {};
  /** @type {Array<Event>} */
  #queue = [];
  #running = false;
  #closes = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;
  #timer_at = Infinity;
  #told = "idle";

  /** Connects by itself, once the code that made it has run to its end. @param {Options} [options] */
  constructor(options = {}) {
    this.#options = { WebSocket: globalThis.WebSocket, ...options };
    if (!this.#options.WebSocket) throw new TypeError("there is no WebSocket here: pass a class as {WebSocket}");
    this.#url = socketUrl(options.url, import.meta.url);
    this.#state = initial(options.position);
    this.onstate = options.onstate;
    this.onerror = options.onerror;
    queueMicrotask(() => {
      if (this.#state.name === "idle") this.connect();
    });
  }

  /** What a reconnect would send: everything up to here is in the page. Null: not known yet. */
  get position() {
    return formatPosition(this.#state.position);
  }

  /** One of the names in `Status`. */
  get state() {
    return publicName(this.#state);
  }

  /** Calls `listener` with every event whose type is `pattern`; `"job.*"` stands for all that begin with `job.`, `"*"` for all.
   * Durable events come in order and once; only one that came while load() was owed may come again, if load() never succeeded.
   * @param {string} pattern @param {(event: TidingsEvent) => void} listener @returns {() => void} stops it */
  on(pattern, listener) {
    if (typeof pattern !== "string" || typeof listener !== "function") throw new TypeError("on(pattern, listener)");
    const entry = { pattern, listener };
    this.#listeners = [...this.#listeners, entry];
    return () => void (this.#listeners = this.#listeners.filter((other) => other !== entry));
  }

  /** Connects after `close()` or a final refusal, from the position reached; while waiting for a retry: now. Else nothing. */
  connect() {
    if (this.#controllers.page?.signal.aborted ?? true) this.#watchPage();
    this.#dispatch({ type: "start" });
  }

  /** Ends the connection and everything else at once: no listener, no timer, no request after it. `connect()` goes on. */
  close() {
    this.#closes += 1;
    this.#queue.length = 0;
    this.#step({ type: "close" });
    this.#arm();
  }

  /** @param {Event} event */
  #dispatch(event) {
    this.#queue.push(event);
    if (this.#running) return;
    this.#running = true;
    try {
      for (let next = this.#next(); next !== undefined; next = this.#next()) this.#step(next);
    } finally {
      this.#running = false;
      this.#arm();
    }
  }

  #next() {
    if (this.#queue.length > 0) return this.#queue.shift();
    return (wakeAt(this.#state) ?? Infinity) <= performance.now() ? { type: "tick" } : undefined;
  }

  /** @param {Event} event */
  #step(event) {
    const closes = this.#closes;
    const [state, effects] = reduce(this.#state, event, performance.now(), Math.random());
    this.#state = state;
    for (const effect of effects) {
      this.#effects[effect.type](effect);
      if (this.#closes !== closes) return; // close() was called in one of the page's functions
    }
    this.#tellState();
  }

  /** @type {Record<string, (effect: any) => unknown>} */
  #effects = {
    token: ({ dial }) => this.#fetchToken(dial),
    dial: ({ dial }) => this.#dial(dial),
    hello: ({ position }) => this.#send({ type: "hello", token: this.#token ?? undefined, position: position ?? undefined }),
    send: ({ frame }) => this.#send(frame),
    probe: () => this.#send({ type: "auth", token: this.#token }),
    drop: ({ code, reason }) => this.#drop(code, reason),
    load: (effect) => this.#load(effect),
    abort: () => this.#controllers.load?.abort(),
    deliver: ({ event }) => this.#deliver(event),
    report: ({ code, message, close }) => this.#report(code, message, { close }),
    diagnose: () => this.#diagnose(),
    stop: () => {
      this.#drop(1000, "");
      for (const controller of Object.values(this.#controllers)) controller.abort();
    },
  };

  /** One timer, moved only when it would be too late: most frames push its moment back, and cost no timer call. */
  #arm() {
    const at = wakeAt(this.#state) ?? Infinity;
    if (at >= this.#timer_at && at !== Infinity) return;
    clearTimeout(this.#timer);
    this.#timer_at = at;
    if (at === Infinity) return;
    this.#timer = setTimeout(() => {
      this.#timer_at = Infinity;
      this.#dispatch({ type: "tick" });
    }, Math.max(at - performance.now(), 0));
  }

  /** What a browser does to pages, told to the machine. Nothing here unloads: that alone would keep the page out of the
   * browser's cache. Where there is no page, nothing is ever told. */
  #watchPage() {
    const { document } = globalThis;
    const options = { signal: this.#signal("page") };
    const wake = () => this.#dispatch({ type: "wake", token: Boolean(this.#token) });
    globalThis.addEventListener?.("online", wake, options);
    globalThis.addEventListener?.("pageshow", ({ persisted }) => persisted && wake(), options);
    globalThis.addEventListener?.("pagehide", ({ persisted }) => persisted && this.#dispatch({ type: "aside" }), options);
    document?.addEventListener("resume", wake, options);
    document?.addEventListener("visibilitychange", () => document.visibilityState === "visible" && wake(), options);
  }

  /** @param {number} dial */
  #dial(dial) {
    let socket;
    try {
      socket = new this.#options.WebSocket(this.#url, ["tidings.v1"]);
    } catch (cause) {
      this.#report("socket", `no WebSocket to ${this.#url}: ${messageOf(cause)}`, { cause });
      return this.#dispatch({ type: "closed", dial, code: 1006, reason: String(cause) });
    }
    this.#socket = socket;
    socket.onopen = () => this.#dispatch({ type: "open", dial });
    socket.onmessage = (/** @type {{data: unknown}} */ message) => this.#dispatch({ type: "frame", dial, frame: parseFrame(message.data) });
    socket.onerror = () => {}; // close always follows, and says more
    socket.onclose = (/** @type {{code: number, reason: string}} */ close) => {
      this.#socket = null;
      this.#dispatch({ type: "closed", dial, code: close.code, reason: close.reason });
    };
  }

  /** @param {object} frame */
  #send(frame) {
    this.#socket?.send(JSON.stringify(frame));
  }

  /** @param {number} code @param {string} reason */
  #drop(code, reason) {
    const socket = this.#socket;
    if (socket === null) return;
    this.#socket = null;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close(code, reason);
  }

  /** A browser tells a page nothing of a refused upgrade. The gateway answers a plain request to the same address with the
   * reason, and lets every origin read it. Asked once, by a client that never got through. */
  async #diagnose() {
    const address = this.#url.replace(/^ws/, "http").replace(/\?.*/, ""); // a ticket in the query is for one use only
    const signal = this.#signal("diagnose");
    let why;
    try {
      const answer = await fetch(address, { signal, credentials: "omit", cache: "no-store" });
      const { detail, origin } = await answer.json().catch(() => ({}));
      if (answer.status === 403 && detail) why = `${origin ?? globalThis.location?.origin}: ${detail}`;
      // To its own origin a browser sends no Origin header here, though it does in the upgrade: the gateway cannot tell.
      else if (answer.status === 426) why = "the gateway is there, but no WebSocket: do TIDINGS_ALLOWED_ORIGINS and every proxy on the way let it through?";
      else why = `${address} answered ${answer.status}${detail ? ` (${detail})` : ""}: is that where the gateway is?`;
    } catch {
      why = `nobody answers at ${address}, or nothing that this page may read`;
    }
    if (!signal.aborted && !this.#state.known) this.#report("refused", `no connection: ${why}`);
  }

  /** A fresh signal for one kind of work; the one before is aborted. @param {string} name */
  #signal(name) {
    this.#controllers[name]?.abort();
    return (this.#controllers[name] = new AbortController()).signal;
  }

  /** @param {number} dial */
  async #fetchToken(dial) {
    const { token: ask } = this.#options;
    let event = /** @type {Event} */ ({ type: "token", dial });
    try {
      const token = typeof ask === "function" ? await ask({ signal: this.#signal("token") }) : ask;
      if (typeof (token ?? "") !== "string") throw new TypeError("it is not a string");
      // A file that was written by hand ends in a line break, and no token has white space in it.
      if (dial === this.#state.dial) this.#token = token?.trim();
    } catch (error) {
      event = { type: "tokenFailed", dial, message: `no token: ${messageOf(error)}` };
    }
    this.#dispatch(event);
  }

  /** @param {Effect} effect */
  async #load({ load, reason, missed }) {
    if (!this.#options.load && reason !== "start") {
      this.#report("resync", `events may have been missed (${reason}), and there is no load() to fetch the page's state`);
    }
    let event = /** @type {Event} */ ({ type: "loaded", load });
    try {
      await this.#options.load?.({ reason, missed, signal: this.#signal("load") });
    } catch (error) {
      event = { type: "loadFailed", load, message: `load() failed: ${messageOf(error)}` };
    }
    this.#dispatch(event);
  }

  /** @param {TidingsEvent} event */
  #deliver(event) {
    for (const { pattern, listener } of this.#listeners) {
      const matches = pattern.endsWith("*") ? event.type.startsWith(pattern.slice(0, -1)) : event.type === pattern;
      if (matches) this.#call(listener, event);
    }
  }

  #tellState() {
    const [previous, state] = [this.#told, this.state];
    this.#told = state;
    if (state === previous || !this.onstate) return;
    const { last, session, deadline } = this.#state;
    const retry_ms = state === "waiting" && deadline !== null ? Math.max(0, deadline - performance.now()) : null;
    this.#call(this.onstate, { state, previous, code: last?.code ?? null, reason: last?.reason ?? "", retry_ms,
      session: session?.id ?? null, user: session?.user ?? null });
  }

  /** @param {string} code @param {string} message @param {ConstructorParameters<typeof TidingsError>[2]} [details] */
  #report(code, message, details) {
    const error = new TidingsError(code, message, details);
    if (!this.onerror) return console.warn(`tidings: ${error.message}`);
    try {
      this.onerror(error);
    } catch (thrown) {
      uncaught(thrown);
    }
  }

  /** @param {(argument: any) => void} callback @param {unknown} argument */
  #call(callback, argument) {
    try {
      callback(argument);
    } catch (cause) {
      if (this.onerror) this.#report("listener", `a listener failed: ${messageOf(cause)}`, { cause });
      else uncaught(cause);
    }
  }
}

/** As if nobody had caught it: with its stack on the console, and seen by error trackers. @param {unknown} error */
function uncaught(error) {
  (globalThis.reportError ?? console.error)(error);
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/** @param {unknown} data @returns {unknown} null for what is no JSON text */
function parseFrame(data) {
  try {
    return typeof data === "string" ? JSON.parse(data) : null;
  } catch {
    return null;
  }
}

/** @param {string|URL|undefined} url @param {string} module_url */
function socketUrl(url, module_url) {
  const resolved = new URL(url ?? ".", url === undefined ? module_url : globalThis.location?.href);
  if (!/^(https?|wss?):$/.test(resolved.protocol)) {
    throw new TypeError(`${resolved} is not where a gateway is: pass its address as {url}`);
  }
  resolved.protocol = resolved.protocol.replace("http", "ws");
  resolved.hash = "";
  if (!resolved.pathname.endsWith("/v1/ws")) resolved.pathname = resolved.pathname.replace(/\/*$/, "/v1/ws");
  return resolved.href;
}
