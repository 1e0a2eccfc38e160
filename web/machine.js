/**
 * The Tidings client as one pure reducer: `reduce(state, event, now, random) -> [state, effects]`.
 *
 * Nothing in this file reads a clock, draws a random number, sets a timer or opens a socket. `now` is milliseconds on any
 * clock that only goes forward, `random` one number in [0, 1). The shell (tidings.js) feeds events in, carries effects out
 * in their order, and keeps ONE timer, at `wakeAt(state)`: a second timer, and with it a second chain of retries, cannot
 * exist.
 *
 * The connection is in one of these states; each has at most one `deadline`.
 *
 *   state        what is going on                     leaves by
 *   idle         made, never started                  start -> authorizing
 *   authorizing  the page is asked for a token        token -> connecting; tokenFailed, 30 s -> waiting
 *   connecting   a socket is in CONNECTING            open -> greeting (hello goes out); closed, 10 s -> waiting
 *   greeting     waiting for `welcome`                welcome -> replaying; closed, silence -> waiting | stopped
 *   replaying    catch-up runs                        synced -> live; closed, silence, a gap -> waiting | stopped
 *   live         nothing is missing                   closed, silence, a gap -> waiting | stopped
 *   waiting      no socket; the retry is at deadline  the deadline, start -> authorizing
 *   stopped      no socket, no timer, nothing runs    start -> authorizing
 *
 * `close` leads from every state to stopped, `aside` (the browser puts the page into its cache, where no socket may be) to
 * waiting without a deadline. `wake` (the page is shown, resumed or online again) ends that; it brings other retries
 * forward, but for those that the gateway has asked for; and it asks a connection that has been silent for a while
 * whether it is still there. Silence is the time since the last frame, judged when something looks at it,
 * so the throttled timers of a hidden page change nothing. Token calls and sockets carry the number of their dial, loads
 * their own: what an abandoned one still says is ignored.
 *
 * Beside it stands the page's own state, as far as load() is concerned.
 *
 *   load     when                                                    leaves by
 *   null     the page is whole up to `position`                      welcome resumed:false, resync
 *   resync   a position was sent and refused: its resync comes next  resync -> due; connection lost -> null
 *   due      load() starts at `at`                                   the time -> running
 *   running  load() is on its way                                    loaded -> null; failed, 60 s -> due, with backoff
 *
 * Three positions (per log: `""` is the user's own, `"~name"` a topic's):
 *   position  what a reconnect sends and the page may store: everything up to here is in the page.
 *   reached   the same for a session that began with a hole. It becomes `position` when load() has succeeded. Until then
 *             a reconnect sends the older position, or none, and the hole is found again.
 *   cursor    the last id heard on this connection, and the whole dedupe memory: the ids of a log rise by exactly one, so
 *             a lower one is a repeat, and a higher one or another epoch is a hole. The gateway should never let us see
 *             such a hole; if it does, we start over from our own position.
 *
 * Durable events heard while load() runs are held, bounded, and handed over right after it. Handed over at once, they would
 * be overwritten by a snapshot taken before them, and the page would be out of date with no sign of it. At every other time,
 * also between a resync and its load(), events are handed over as they come. Ephemeral events never wait.
 */

import { ANY_OTHER_CODE, CLOSE_CODES, MAX_TOKEN_REFUSALS } from "./closing.js";
import { giveLoadUp, LOAD_MS, loadDue, loaded, loadFailed } from "./load.js";
import { BASE_MS, backoff, milliseconds } from "./pacing.js";
import { formatPosition, logOf, parsePart, parsePosition } from "./position.js";

/** @type {Record<State["name"], Record<string, Handler>>} */
const TABLE = {
  idle: { start, close },
  authorizing: { token: dial, tokenFailed, tick, loaded, loadFailed, aside, close },
  connecting: { open: greet, closed, tick, loaded, loadFailed, aside, close },
  greeting: { frame, closed, tick, loaded, loadFailed, aside, close },
  replaying: { frame, closed, tick, loaded, loadFailed, wake: probe, aside, close },
  live: { frame, closed, tick, loaded, loadFailed, wake: probe, aside, close },
  waiting: { start, tick, loaded, loadFailed, wake: hurry, aside, close },
  stopped: { start },
};
/** @type {Record<string, Handler>} */
const FRAMES = { welcome, resync, event: eventOrSkip, skip: eventOrSkip, synced, heartbeat, goodbye, error };

export const HEALTHY_MS = 10_000; // a connection that lived so long puts the retry counter back
export const CONNECT_MS = 10_000;
export const TOKEN_MS = 30_000;
export const PROBE_MS = 4_000; // what the answer to a probe may take
export const PROBE_AFTER_MS = 2_000; // who was heard so lately is not asked
export const HELD_MAX = 4096; // more events during one load(): it is given up and tried again
const SILENCE_MS = 30_000; // until `welcome` brings the session's own heartbeat_ms + timeout_ms
// Codes this client closes with. Browsers take only 1000 and 3000 to 4999.
const CLOSE_SILENT = 3008;
const CLOSE_RESTART = 4000;

/**
 * @typedef {import("./position.js").Places} Places
 * @typedef {{id: string|null, type: string, data: unknown, time: number, replay: boolean, topic: string|null}} TidingsEvent
 * @typedef {{phase: "resync"} | {phase: "due", at: number, reason: string, missed: number|null}
 *   | {phase: "running", at: number, reason: string, missed: number|null, id: number}} Load
 * @typedef {{code: number, reason: string}} Ending
 * @typedef {object} State
 * @property {"idle"|"authorizing"|"connecting"|"greeting"|"replaying"|"live"|"waiting"|"stopped"} name
 * @property {number} dial number of the current or last dial
 * @property {number|null} deadline when this state gives up; in waiting: when it dials, null: when the page is back
 * @property {number} attempt retries since the last healthy connection
 * @property {number} refusals 4401 in a row
 * @property {boolean} known a welcome was seen at least once
 * @property {boolean} sent the hello of this dial held a position
 * @property {number} silence_ms what this connection may be silent for
 * @property {number|null} welcomed_at
 * @property {{id: string, user: string}|null} session
 * @property {{code: number, retry_ms: number|null}|null} goodbye
 * @property {Ending|null} last how the last connection ended
 * @property {Places|null} position
 * @property {Places|null} reached
 * @property {Places|null} cursor
 * @property {Load|null} load
 * @property {number} loads number of the last load
 * @property {number} load_failures in a row
 * @property {ReadonlyArray<{log: string, id: string, event: TidingsEvent|null}>} held
 * @typedef {{type: string, dial?: number, load?: number, [more: string]: any}} Event
 *   start, close, tick, token, tokenFailed {message}, open, frame {frame}, closed {code, reason}, loaded, loadFailed {message},
 *   aside, wake {token: whether there is one}
 * @typedef {{type: string, [more: string]: any}} Effect
 *   token, dial, hello {position}, send {frame}, probe, drop {code, reason}, stop, load {load, reason, missed}, abort (the load),
 *   deliver {event}, report {code, message, close?}, diagnose (why did the first dial of all fail?)
 * @typedef {[State, ReadonlyArray<Effect>]} Step
 * @typedef {(state: State, event: any, now: number, random: number) => Step} Handler
 */

const NOTHING = /** @type {ReadonlyArray<Effect>} */ (Object.freeze([]));
const DISCONNECTED = { welcomed_at: null, session: null, goodbye: null, cursor: null };

/** @param {string|null} [position] where the page stands; what is no position counts as none @returns {State} */
export function initial(position = null) {
  return {
    name: "idle", dial: 0, deadline: null, attempt: 0, refusals: 0, silence_ms: SILENCE_MS, welcomed_at: null, known: false,
    sent: false, session: null, goodbye: null, last: null, position: parsePosition(position), reached: null, cursor: null,
    load: null, loads: 0, load_failures: 0, held: [],
  };
}

/** @param {State} state @param {Event} event @param {number} now @param {number} random @returns {Step} */
export function reduce(state, event, now, random) {
  if (event.dial !== undefined && event.dial !== state.dial) return [state, NOTHING];
  if (event.load !== undefined && !(state.load?.phase === "running" && state.load.id === event.load)) return [state, NOTHING];
  return TABLE[state.name][event.type]?.(state, event, now, random) ?? [state, NOTHING];
}

/** When `tick` is due; null: never. @param {State} state @returns {number|null} */
export function wakeAt(state) {
  if (state.held.length > 0 && state.load?.phase !== "running") return -Infinity;
  const load = state.load === null || state.load.phase === "resync" ? Infinity : state.load.at;
  const at = Math.min(state.deadline ?? Infinity, load);
  return at === Infinity ? null : at;
}

/** The state as a page sees it: `live` only when nothing is missing, `loading` until then. @param {State} state */
export function publicName(state) {
  return state.name === "live" && state.load !== null ? "loading" : state.name;
}

// The connection

/** @type {Handler} */
function start(state, _event, now) {
  return authorize({ ...state, attempt: 0, refusals: 0 }, now);
}

/** @param {State} state @param {number} now @returns {Step} */
function authorize(state, now) {
  const dial = state.dial + 1;
  return [{ ...state, name: "authorizing", dial, deadline: now + TOKEN_MS }, [{ type: "token", dial }]];
}

/** @type {Handler} */
function dial(state, _event, now) {
  return [{ ...state, name: "connecting", deadline: now + CONNECT_MS }, [{ type: "dial", dial: state.dial }]];
}

/** @type {Handler} */
function greet(state, _event, now) {
  const sent = state.position !== null;
  return [{ ...state, name: "greeting", silence_ms: SILENCE_MS, deadline: now + SILENCE_MS, sent },
    [{ type: "hello", position: formatPosition(state.position) }]];
}

/** @type {Handler} */
function close(state) {
  return stop(state, { code: 1000, reason: "closed by the page" }, NOTHING);
}

/** @type {Handler} */
function aside(state) {
  return disconnect(state, { code: 1000, reason: "the page was put aside" }, null, [{ type: "drop", code: 1000, reason: "aside" }]);
}

/** @type {Handler} */
function hurry(state, _event, now, random) {
  if (state.deadline === null) return authorize(state, now);
  if (CLOSE_CODES[state.last?.code ?? 0]?.retry_ms !== undefined) return [state, NOTHING];
  return [{ ...state, deadline: Math.min(state.deadline, now + random * BASE_MS) }, NOTHING];
}

/** A path that died while the page slept tells nobody: `auth` is the one frame that a gateway answers. Without a token
 * there is nothing to ask with, and silence has to do. @type {Handler} */
function probe(state, event, now) {
  const deadline = state.deadline ?? Infinity;
  const silent_ms = now - (deadline - state.silence_ms);
  if (!event.token || deadline <= now + PROBE_MS || silent_ms < PROBE_AFTER_MS) return [state, NOTHING];
  return [{ ...state, deadline: now + PROBE_MS }, [{ type: "probe" }]];
}

/** @type {Handler} */
function tokenFailed(state, event, now, random) {
  return lose(state, { code: CLOSE_RESTART, reason: "no token" }, now, random,
    [{ type: "report", code: "token", message: event.message }]);
}

/** @type {Handler} */
function closed(state, event, now, random) {
  // Proxies and dying processes swallow close frames: then the goodbye before it tells the code.
  const code = state.goodbye && (event.code === 1005 || event.code === 1006) ? state.goodbye.code : event.code;
  const first = state.name === "connecting" && !state.known && state.attempt === 0;
  return lose(state, { code, reason: event.reason ?? "" }, now, random, first ? [{ type: "diagnose" }] : NOTHING);
}

/** Give the socket up and start over from our own position.
 * @param {State} state @param {"gap"|"malformed"} code @param {string} message @param {number} now @param {number} random */
function restart(state, code, message, now, random) {
  return lose(state, { code: CLOSE_RESTART, reason: code }, now, random,
    [{ type: "drop", code: CLOSE_RESTART, reason: code }, { type: "report", code, message }]);
}

/** A connection has ended, or none came about: the one place that decides what is next.
 * @param {State} state @param {Ending} last @param {number} now @param {number} random
 * @param {ReadonlyArray<Effect>} effects @returns {Step} */
function lose(state, last, now, random, effects) {
  const { client, retry_ms, report } = CLOSE_CODES[last.code] ?? ANY_OTHER_CODE;
  const refusals = state.refusals + (client === "new_token" ? 1 : 0);
  const told = report ?? (refusals >= MAX_TOKEN_REFUSALS ? "fresh tokens were refused too" : null);
  const all = told === null ? effects : [...effects, { type: "report", code: "close", message: told, close: last }];
  if (client === "stop" || client === "stay_closed" || refusals >= MAX_TOKEN_REFUSALS) return stop(state, last, all);

  const healthy = state.welcomed_at !== null && now - state.welcomed_at >= HEALTHY_MS;
  const attempt = healthy ? 0 : state.attempt;
  const asked = state.goodbye?.code === last.code ? state.goodbye.retry_ms : null;
  const base = Math.max(BASE_MS, asked ?? retry_ms ?? 0);
  const paused = client === "jitter";
  const window = paused ? base : backoff(base, attempt);
  return disconnect({ ...state, attempt: paused ? attempt : attempt + 1, refusals }, last, now + random * window, all);
}

/** @param {State} state @param {Ending} last @param {number|null} deadline @param {ReadonlyArray<Effect>} effects @returns {Step} */
function disconnect(state, last, deadline, effects) {
  const owed = state.load?.phase === "resync" ? { load: null, reached: null } : {};
  return [{ ...state, ...owed, name: "waiting", deadline, last, ...DISCONNECTED }, effects];
}

/** @param {State} state @param {Ending} last @param {ReadonlyArray<Effect>} effects @returns {Step} */
function stop(state, last, effects) {
  return [{ ...state, name: "stopped", deadline: null, last, ...DISCONNECTED, load: null, reached: null, held: [] },
    [{ type: "stop" }, ...effects]];
}

/** Does one thing that is due; the shell ticks until nothing is. @type {Handler} */
function tick(state, _event, now, random) {
  const { load, deadline } = state;
  if (state.held.length > 0 && load?.phase !== "running") {
    // One at a time: a listener may call close(), and `position` must not have passed what was never handed over.
    const [{ log, id, event }, ...held] = state.held;
    return [place({ ...state, held }, { [log]: id }), deliver(event)];
  }
  if (deadline !== null && deadline <= now) return expire(state, now, random);
  if (load === null || load.phase === "resync" || load.at > now) return [state, NOTHING];
  if (load.phase === "running") return giveLoadUp(state, `load() took longer than ${LOAD_MS} ms`, now, random);
  const { reason, missed } = load;
  const id = state.loads + 1;
  return [{ ...state, loads: id, load: { phase: "running", at: now + LOAD_MS, reason, missed, id } },
    [{ type: "load", load: id, reason, missed }]];
}

/** @param {State} state @param {number} now @param {number} random @returns {Step} */
function expire(state, now, random) {
  if (state.name === "waiting") return authorize(state, now);
  if (state.name === "authorizing") return tokenFailed(state, { message: `token() took longer than ${TOKEN_MS} ms` }, now, random);
  const reason = state.name === "connecting" ? "no connection" : `nothing heard for ${state.silence_ms} ms`;
  return lose(state, { code: CLOSE_SILENT, reason }, now, random, [{ type: "drop", code: CLOSE_SILENT, reason }]);
}

// Frames

/** @type {Handler} */
function frame(state, event, now, random) {
  const type = event.frame?.type;
  if (typeof type !== "string") return restart(state, "malformed", "a frame is no JSON object with a type", now, random);
  const heard = { ...state, deadline: now + state.silence_ms };
  if (!Object.hasOwn(FRAMES, type)) return [heard, NOTHING]; // a newer gateway may say more than we know
  if (type !== "goodbye" && type !== "error" && (type === "welcome") !== (state.name === "greeting")) {
    return restart(state, "malformed", `${type} came while ${state.name}`, now, random);
  }
  return FRAMES[type](heard, event.frame, now, random);
}

/** @type {Handler} */
function welcome(state, frame, now, random) {
  const start = parsePosition(frame.position);
  if (start === null) return restart(state, "malformed", "a welcome without a position", now, random);
  const silence_ms = milliseconds(frame.heartbeat_ms, 20_000) + milliseconds(frame.timeout_ms, 10_000);
  /** @type {State} */
  const next = { ...state, name: "replaying", silence_ms, deadline: now + silence_ms, welcomed_at: now, known: true, refusals: 0,
    session: { id: String(frame.session ?? ""), user: String(frame.user ?? "") } };
  if (frame.resumed === true && state.sent) {
    // Proved whole from what was sent, so a load left over from an earlier connection is settled too. Ours win over
    // theirs: what `position` gained since the hello is in the page, and topics this gateway does not name are kept.
    const cursor = { ...start, ...state.position };
    return rebase({ ...next, position: cursor }, cursor, null);
  }
  return rebase(next, start, state.sent ? { phase: "resync" } : loadDue(state, "start", null, 0, now, random));
}

/** @type {Handler} */
function resync(state, frame, now, random) {
  const cursor = parsePosition(frame.position);
  if (cursor === null) return restart(state, "malformed", "a resync without a position", now, random);
  const missed = typeof frame.missed === "number" ? frame.missed : null;
  return rebase(state, cursor, loadDue(state, String(frame.reason), missed, milliseconds(frame.refetch_ms, 0), now, random));
}

/** The session starts here, or goes on from here. What was heard is forgotten, what was held is handed over.
 * @param {State} state @param {Places} cursor @param {Load|null} load @returns {Step} */
function rebase(state, cursor, load) {
  const abort = state.load?.phase === "running" ? [{ type: "abort" }] : NOTHING;
  return [{ ...state, cursor, load, reached: load && cursor, held: [] }, [...abort, ...state.held.flatMap((item) => deliver(item.event))]];
}

/** @type {Handler} */
function eventOrSkip(state, frame, now, random) {
  const { type, id, topic } = frame;
  const event = type === "skip" ? null : { id: id ?? null, type: String(frame.event), data: frame.data, time: frame.time,
    replay: frame.replay === true, topic: topic ?? null };
  if (event?.id === null) return [state, deliver(event)];
  const at = parsePart(id);
  const log = logOf(topic);
  if (at === null || log === null) return restart(state, "malformed", `the id or topic of a ${type} frame is none`, now, random);
  const before = state.cursor?.[log];
  const last = parsePart(before);
  if (last !== null && (last.epoch !== at.epoch || at.seq !== last.seq + 1)) {
    if (last.epoch === at.epoch && (at.seq < last.seq || id === before)) return [state, NOTHING]; // a repeat
    return restart(state, "gap", `${id} came after ${before}`, now, random);
  }
  const next = { ...state, cursor: { ...state.cursor, [log]: id } };
  if (state.load?.phase !== "running" && state.held.length === 0) return [place(next, { [log]: id }), deliver(event)];
  const holding = { ...next, held: [...state.held, { log, id, event }] };
  if (holding.held.length <= HELD_MAX || state.load?.phase !== "running") return [holding, NOTHING];
  return giveLoadUp(holding, `more than ${HELD_MAX} events came during one load()`, now, random);
}

/** @param {State} state @param {Places} parts @returns {State} */
function place(state, parts) {
  if (state.load === null) return { ...state, position: { ...state.position, ...parts } };
  return { ...state, reached: { ...state.reached, ...parts } };
}

/** @param {TidingsEvent|null} event null: a skip @returns {ReadonlyArray<Effect>} */
function deliver(event) {
  return event === null ? NOTHING : [{ type: "deliver", event }];
}

/** @type {Handler} */
function synced(state, frame, now, random) {
  // A resync that was owed and never came is no reason to leave the page without its state.
  const load = state.load?.phase === "resync" ? loadDue(state, "start", null, 0, now, random) : state.load;
  return compare({ ...state, name: "live", load }, frame, now, random, NOTHING);
}

/** @type {Handler} */
function heartbeat(state, frame, now, random) {
  return compare(state, frame, now, random, [{ type: "send", frame: { type: "heartbeat", position: formatPosition(state.cursor) } }]);
}

/** A place the gateway names came through the same queue as the events, so it is ours too, or something was lost on the
 * way. A log that is new to us (a topic granted meanwhile) starts there.
 * @param {State} state @param {any} frame @param {number} now @param {number} random @param {ReadonlyArray<Effect>} effects */
function compare(state, frame, now, random, effects) {
  const ours = state.cursor ?? {};
  const fresh = /** @type {Places} */ ({});
  for (const [log, part] of Object.entries(parsePosition(frame.position) ?? {})) {
    const [mine, theirs] = [parsePart(ours[log]), parsePart(part)];
    if (mine === null) fresh[log] = part;
    else if (mine.epoch !== theirs?.epoch || mine.seq < theirs.seq) {
      return restart(state, "gap", `the gateway is at ${part}, we are at ${ours[log]}`, now, random);
    }
  }
  return /** @type {Step} */ ([place({ ...state, cursor: { ...ours, ...fresh } }, fresh), effects]);
}

/** @type {Handler} */
function goodbye(state, frame) {
  const retry_ms = typeof frame.retry_ms === "number" ? milliseconds(frame.retry_ms, 0) : null;
  return [{ ...state, goodbye: { code: frame.code, retry_ms } }, NOTHING];
}

/** @type {Handler} */
function error(state, frame) {
  return [state, [{ type: "report", code: "server", message: `${frame.code}: ${frame.message}` }]];
}
