/** The demo page: your own page, with buttons that do to it what the world does to pages. */

import { Tidings } from "../tidings.js";
import { ask, watchApplication } from "./application.js";
import { createCable, PULLED } from "./cable.js";
import { wireExperiments } from "./experiments.js";
import { createFleet } from "./fleet.js";
import { createJobs } from "./jobs.js";
import { createLedger } from "./ledger.js";
import { createLog } from "./log.js";
import { createStrip } from "./strip.js";
import { createTour } from "./tour.js";

const WORDS = {
  idle: ["Starting", "One moment."],
  authorizing: ["Asking for a token", "Your application says who you are, freshly before every connection."],
  connecting: ["Connecting", "On the way to a gateway."],
  greeting: ["Saying hello", "The page says who it is, and up to where it has everything."],
  replaying: ["Catching up", "What happened meanwhile is replayed, in order."],
  loading: ["Fetching the state", "Events may have been missed for good, so the page fetches its state before it says it is up to date."],
  live: ["Live", "Nothing is missing."],
  waiting: ["Connection lost", ""],
  stopped: ["Stopped", ""],
};
const ENDS = /** @type {Record<number, string>} */ ({
  1006: "The connection broke",
  1012: "The gateway is restarted and let this tab go",
  3008: "Nothing was heard for too long",
  4999: "The cable is pulled",
});
const FROZEN = ["Live, but Redis does not answer", "The connection stands. Nothing can be published, so nothing can be missed. It goes on by itself."];
const GONE = ["The demo has ended", "Its process is gone, as after Ctrl-C in its terminal. Nothing is wrong with this page: start the demo again, and it goes on by itself."];

const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const number = (/** @type {number} */ value) => value.toLocaleString("en");
const seqOf = (/** @type {string|null} */ id) => (id === null ? null : Number(/\.(\d+)-/.exec(id)?.[1]));

const cable = createCable();
const ledger = createLedger();
const jobs = createJobs($("jobs"));
const log = createLog($("log"), $("no-events"));
const fleet = createFleet($("gateways"), $("between"));
const tour = createTour($("steps"), $("tour"), (text) => announce("outcome", text));
const strip = createStrip(/** @type {HTMLCanvasElement} */ ($("strip")), () => document.body.dataset.state === "live");

/** What is known beside Tidings. @type {{redis: boolean, gone: boolean, stage: import("./application.js").Stage, answers: number}} */
const known = { redis: true, gone: false, stage: { gateways: [], frozen: false, restarting: false }, answers: 0 };
/** The last time events were missed for good. @type {{position: string|null, reason: string, missed: number|null, time: string}|null} */
let resynced = null;
/** @type {string|null} */
let session = null;
/** @type {string[]} of the connection, as Tidings tells it */
let words = WORDS.idle;
let helloAt = 0;
/** @type {number[]} */
const latencies = [];

async function fetchToken() {
  return (await (await ask("session")).json()).token;
}

/** The page's own fetch of its state. @param {{reason: string, missed: number|null, signal: AbortSignal}} context */
async function load({ reason, missed, signal }) {
  const position = tidings.position;
  const state = await (await ask("state", undefined, signal)).json();
  jobs.show(state.jobs);
  ledger.fetched(state.position);
  showState(state);
  application.look();
  if (reason === "start") return;
  resynced = { position, reason, missed, time: new Date().toTimeString().slice(0, 8) };
  tour.clear("explain");
  log.add("trouble", `resync (${reason}${missed === null ? "" : `, ${number(missed)} missed`}): the state was fetched`);
  announce("resync", "Events were missed for good, so the page fetched its state.");
}

/** What the application says it published. @param {any} state */
function showState(state) {
  ledger.published(state.position);
  known.answers += 1;
  redraw();
}

const application = watchApplication({
  asks: () => tidings.state !== "idle",
  onstate: showState,
  onstage(stage) {
    known.stage = stage;
    redraw();
  },
  onredis(answers) {
    if (answers === known.redis) return;
    known.redis = answers;
    log.add("connection", answers ? "Redis answers again" : "Redis does not answer");
    showWords();
  },
  ongone(gone) {
    if (gone === known.gone) return;
    known.gone = gone;
    log.add(gone ? "trouble" : "connection", gone ? "the demo has ended" : "the demo is back");
    if (!gone && tidings.state === "waiting") tidings.connect();
    showWords();
  },
});

// Tidings

const tidings = new Tidings({
  token: fetchToken,
  load,
  WebSocket: cable.WebSocket,
  onstate: showStatus,
  onerror: (error) => {
    if (!known.gone) log.add("trouble", error.message);
  },
});

tidings.on("job.*", ({ type, data, time, replay }) => {
  const { id, progress, seconds } = /** @type {any} */ (data);
  if (type === "job.progress") jobs.progress(id, progress);
  if (type !== "job.complete") return;
  jobs.complete(id, seconds, replay ? "learnt after a gap" : "pushed", replay ? null : Math.max(0, Date.now() - time));
  announce("job", `A job of ${seconds} seconds is done.`);
});

tidings.on("*", (event) => {
  const kind = event.id === null ? "ephemeral" : event.replay ? "replayed" : "live";
  log.add(kind, event.type, seqOf(event.id));
  if (event.id === null) return;
  ledger.came(event);
  strip.add(event.replay);
  const age = Date.now() - event.time; // true on one machine only, which a demo is
  if (!event.replay && event.type.startsWith("job.") && age >= 0 && age < 60_000) latencies.push(age);
  if (latencies.length > 50) latencies.shift();
  redraw();
});

/** @param {import("../tidings.js").Status} status */
function showStatus(status) {
  const [name, text] = WORDS[/** @type {keyof typeof WORDS} */ (status.state)];
  words = [name, text];
  document.body.dataset.state = status.state;
  const told = status.reason === PULLED ? ENDS[4999] : ENDS[status.code ?? 0] ?? (status.reason || "The connection ended");
  const why = `${told} (${status.code})`;
  if (status.state === "greeting") helloAt = performance.now();
  if (status.state === "replaying") $("round-trip").textContent = `${Math.max(1, Math.round(performance.now() - helloAt))} ms`;
  if (status.state === "waiting") {
    const seconds = ((status.retry_ms ?? 0) / 1000).toFixed(1);
    words = [name, `${why}. The next try is in ${seconds} s, a random time: a thousand tabs must not come back as one.`];
    if (session !== null) log.add("connection", `connection lost: ${why}`);
    tour.clear("explain");
  }
  if (status.state === "stopped") {
    words = [name, `${why}. It will not try again by itself.`];
    log.add("trouble", `stopped: ${why}`);
  }
  if (status.session !== session) {
    session = status.session;
    if (session !== null) log.add("connection", `connected to gateway ${gatewayName()}`);
  }
  showWords();
}

/** Session ids begin with the gateway's name. */
function gatewayName() {
  if (session === null) return null;
  const { gateways } = known.stage;
  return gateways.find(({ name }) => session?.startsWith(name) && !/^[0-9a-z]/i.test(session.slice(name.length)))?.name ?? session.split("-")[0];
}

/** The connection in words. What the application knows beyond it comes first: a page that is live says little when the
 * other end of the world stands still. */
function showWords() {
  const frozen = !known.redis && tidings.state === "live";
  const [name, text] = known.gone ? GONE : frozen ? FROZEN : words;
  document.body.dataset.trouble = known.gone ? "gone" : frozen ? "redis" : "";
  const changed = $("state").textContent !== name;
  $("state").textContent = $("mini-state").textContent = name;
  $("state-words").textContent = text;
  if (changed && (known.gone || ["live", "waiting", "stopped"].includes(tidings.state))) announce("state", name);
  redraw();
}

// What is drawn again and again, at most once per frame

let redrawing = false;
function redraw() {
  if (!redrawing) requestAnimationFrame(draw);
  redrawing = true;
}

function draw() {
  redrawing = false;
  const view = ledger.view;
  const { published, here, received, replayed, refetched, missing, twice } = view;
  for (const [id, value] of Object.entries({ published, received: here, missing, twice })) $(id).textContent = number(value);
  $("ways").textContent = here === 0 ? "" : `${number(received - replayed)} as they happened, ${number(replayed)} replayed after a gap, ${number(refetched)} with a fetched state.`;
  const [verdict, text] = judge(view);
  $("mini-count").textContent = missing + twice > 0 ? text : `${number(here)} of ${number(published)} here`;
  $("verdict").dataset.verdict = verdict;
  $("verdict").textContent = text;
  const sorted = [...latencies].sort((a, b) => a - b);
  $("latency").textContent = sorted.length === 0 ? "–" : `${number(sorted[sorted.length >> 1])} ms`;
  $("position").textContent = tidings.position ?? "–";
  $("gateway").textContent = gatewayName() ?? "–";
  fleet.show(known.gone ? known.stage.gateways.map((gateway) => ({ ...gateway, state: "dead", tabs: 0 })) : known.stage.gateways, gatewayName());
  tour.look();
}

/** @param {typeof ledger.view} view @returns {[string, string]} */
function judge({ published, coming, missing, twice }) {
  if (missing + twice > 0) return ["broken", "This must not happen. Please tell us how you did it."];
  if (known.gone) return ["coming", "The demo has ended. This is the count as it stood."];
  if (coming > 0) return ["coming", `${number(coming)} still to come.`];
  if (!known.redis) return ["coming", "Redis does not answer: nothing can be published, and what has a receipt is stored."];
  if (published === 0) return ["none", "Nothing was published since this page is here. Start a job."];
  if (tidings.state !== "live") return ["coming", "Not connected: whether anything is missing will show when it is."];
  return ["whole", "Nothing missing, nothing twice."];
}

/** For screen readers. What comes within a moment is told together, and of a burst of states only the last.
 * @type {Map<string, string>} */
const announcing = new Map();
let announcement = 0;
/** @param {string} what @param {string} text */
function announce(what, text) {
  announcing.delete(what);
  announcing.set(what, text);
  clearTimeout(announcement);
  announcement = window.setTimeout(() => {
    $("announcer").textContent = [...announcing.values()].join(" ");
    announcing.clear();
  }, 400);
}

wireExperiments({
  tidings, cable, ledger, jobs, log, tour, known, gatewayName, look: application.look,
  session: () => session,
  resynced: () => resynced,
});
$("clear").addEventListener("click", () => log.clear());
