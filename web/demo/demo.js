/** The demo page: your own page, with buttons that do to it what the world does to pages. */

import { Tidings } from "../tidings.js";
import { createCable } from "./cable.js";
import { createJobs } from "./jobs.js";
import { createLedger } from "./ledger.js";
import { createLog } from "./log.js";
import { createStrip } from "./strip.js";

const CUT_S = 6;
const FREEZE_S = 10;
const ASK_EVERY_MS = 1_000;

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

const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const number = (/** @type {number} */ value) => value.toLocaleString("en");
const seqOf = (/** @type {string|null} */ id) => (id === null ? null : Number(/\.(\d+)-/.exec(id)?.[1]));

const cable = createCable();
const ledger = createLedger();
const jobs = createJobs($("jobs"), $("no-jobs"));
const log = createLog($("log"), $("no-events"));
const strip = createStrip(/** @type {HTMLCanvasElement} */ ($("strip")), () => document.body.dataset.state === "live");

/** @type {{name: string, state: string}[]} */
let gateways = [];
/** @type {string|null} */
let session = null;
/** @type {string|null} the position that was refused last */
let refused = null;
/** @type {boolean|null} whether it answered when it was asked last; null: it has not been asked yet */
let applicationAnswers = null;
let helloAt = 0;
/** @type {number[]} */
const latencies = [];

// The application's own doors

/** @param {string} path @param {object} [body] @param {AbortSignal} [signal] */
async function ask(path, body, signal) {
  const post = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(new URL(path, import.meta.url), { cache: "no-store", signal, ...post });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(problem.detail ?? `The application answered ${answer.status}.`), { status: answer.status });
}

async function fetchToken() {
  return (await (await ask("session")).json()).token;
}

/** The page's own fetch of its state. @param {{reason: string, missed: number|null, signal: AbortSignal}} context */
async function load({ reason, missed, signal }) {
  if (reason !== "start") refused = tidings.position;
  const state = await (await ask("state", undefined, signal)).json();
  jobs.show(state.jobs);
  ledger.fetched(state.position);
  showApplication(state);
  if (reason === "start") return;
  $("answer").hidden = true;
  log.add("trouble", `resync (${reason}${missed === null ? "" : `, ${number(missed)} missed`}): the state was fetched`);
  announce("Events were missed for good, so the page fetched its state.");
}

/** What the application says, asked past Tidings: how much was published, and how the gateways are. @param {any} state */
function showApplication(state) {
  ledger.published(state.position);
  gateways = state.gateways ?? [];
  applicationAnswers = true;
  showGateways();
  redraw();
}

async function watchApplication() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, ASK_EVERY_MS));
    if (document.hidden || tidings.state === "idle") continue;
    try {
      showApplication(await (await ask("state", undefined, AbortSignal.timeout(5_000))).json());
    } catch {
      applicationAnswers = false; // Redis is frozen, or the demo was ended
      redraw();
    }
  }
}

// Tidings

const tidings = new Tidings({
  token: fetchToken,
  load,
  WebSocket: cable.WebSocket,
  onstate: showState,
  onerror: (error) => log.add("trouble", error.message),
});

tidings.on("job.*", ({ type, data, replay }) => {
  const { id, progress, seconds } = /** @type {any} */ (data);
  if (type === "job.progress") jobs.progress(id, progress);
  if (type !== "job.complete") return;
  jobs.complete(id, seconds, replay ? "learnt after a gap" : "pushed");
  announce(`A job of ${seconds} seconds is done.`);
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
function showState(status) {
  const [name, words] = WORDS[/** @type {keyof typeof WORDS} */ (status.state)];
  document.body.dataset.state = status.state;
  $("state").textContent = $("mini-state").textContent = name;
  $("state-words").textContent = words;
  redraw();
  const why = [status.code, status.reason].filter(Boolean).join(" ");
  if (status.state === "greeting") helloAt = performance.now();
  if (status.state === "replaying") $("round-trip").textContent = `${Math.max(1, Math.round(performance.now() - helloAt))} ms`;
  if (status.state === "waiting") {
    const seconds = ((status.retry_ms ?? 0) / 1000).toFixed(1);
    $("state-words").textContent = `${why}. Next try in ${seconds} s, at a random moment: a thousand tabs must not come back as one.`;
    if (session !== null) log.add("connection", `connection lost (${why})`);
  }
  if (status.state === "stopped") {
    $("state-words").textContent = `${why}. It will not try again by itself.`;
    log.add("trouble", `stopped (${why})`);
  }
  if (status.session !== session) {
    session = status.session;
    if (session !== null) log.add("connection", `connected to gateway ${gatewayName()}`);
    showGateways();
  }
  if (["live", "waiting", "stopped"].includes(status.state)) announce(name);
  redraw();
}

/** Session ids begin with the gateway's name. */
function gatewayName() {
  if (session === null) return null;
  return gateways.find(({ name }) => session?.startsWith(name) && !/^[0-9a-z]/i.test(session.slice(name.length)))?.name ?? session.split("-")[0];
}

function showGateways() {
  const here = gatewayName();
  $("gateway").textContent = here ?? "–";
  $("gateways").replaceChildren(...gateways.map(({ name, state }) => {
    const item = document.createElement("li");
    item.dataset.gateway = state;
    item.toggleAttribute("data-here", name === here);
    item.textContent = `${name}: ${state}${name === here ? ", you are here" : ""}`;
    return item;
  }));
}

// What is drawn again and again, at most once per frame

let redrawing = false;
function redraw() {
  if (!redrawing) requestAnimationFrame(drawNumbers);
  redrawing = true;
}

function drawNumbers() {
  redrawing = false;
  const { published, here, received, replayed, refetched, coming, missing, twice } = ledger.view;
  for (const [id, value] of Object.entries({ published, received: here, missing, twice })) $(id).textContent = number(value);
  $("ways").textContent = here === 0 ? "" : `${number(received - replayed)} as they happened, ${number(replayed)} replayed after a gap, ${number(refetched)} with a fetched state.`;
  const [verdict, words] =
    missing + twice > 0 ? ["broken", "This must not happen. Please tell us how you did it."]
    : coming > 0 ? ["coming", `${number(coming)} still to come.`]
    : applicationAnswers === false ? ["coming", "The application does not answer, or cannot reach Redis: nothing can be published."]
    : published > 0 && tidings.state !== "live" ? ["coming", "Not connected: whether anything is missing will show when it is."]
    : published > 0 ? ["whole", "Nothing missing, nothing twice."]
    : ["none", "Nothing was published since this page is here. Start a job."];
  $("mini-count").textContent = `${number(here)} of ${number(published)} here`;
  $("verdict").dataset.verdict = verdict;
  $("verdict").textContent = words;
  const sorted = [...latencies].sort((a, b) => a - b);
  $("latency").textContent = sorted.length === 0 ? "–" : `${sorted[sorted.length >> 1]} ms`;
  $("position").textContent = tidings.position ?? "–";
  $("position").title = tidings.position ?? "";
}

let announcing = 0;
/** For screen readers. A burst of states is told as its last one. @param {string} text */
function announce(text) {
  clearTimeout(announcing);
  announcing = window.setTimeout(() => { $("announcer").textContent = text; }, 400);
}

// Buttons

/** @param {string} text */
function answer(text) {
  $("answer").hidden = false;
  $("answer").textContent = text;
}

/** A button that is busy for a while: it stays where the keyboard is, says how long, and does nothing.
 * @param {HTMLElement} button @param {() => Promise<number|void>} action tells for how many seconds it goes on */
function onPress(button, action) {
  const label = button.textContent ?? "";
  button.addEventListener("click", async () => {
    if (button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    try {
      for (let left = (await action()) ?? 0; left > 0; left -= 1) {
        button.textContent = `${label} (${left} s)`;
        await new Promise((resolve) => setTimeout(resolve, 1_000));
      }
    } catch (error) {
      const { status, message } = /** @type {any} */ (error);
      if (status === 404 && button.dataset.endpoint) hide(button);
      else answer(message);
    } finally {
      button.textContent = label;
      button.removeAttribute("aria-disabled");
    }
  });
}

/** @param {HTMLElement} button */
function hide(button) {
  (button.closest("li") ?? button).hidden = true;
}

for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-seconds]"))) {
  onPress(button, async () => {
    const seconds = Number(button.dataset.seconds);
    const { id } = await (await ask("jobs", { seconds })).json();
    jobs.started(id, seconds);
  });
}
onPress($("cut"), async () => {
  cable.pull();
  setTimeout(() => {
    cable.plug();
    if (tidings.state === "waiting") tidings.connect(); // as a page does when the browser says it is online again
  }, CUT_S * 1000);
  return CUT_S;
});
onPress($("burst"), async () => void (await ask("burst", { count: 1_000 })));
onPress($("restart"), async () => {
  await ask("restart", {});
  log.add("connection", "the gateways are restarted, one after the other");
  return 5;
});
onPress($("freeze"), async () => {
  await ask("freeze", { seconds: FREEZE_S });
  log.add("connection", `Redis is frozen for ${FREEZE_S} s`);
  return FREEZE_S;
});
onPress($("explain"), async () => {
  const position = refused ?? tidings.position ?? "";
  const words = await (await ask(`explain?position=${encodeURIComponent(position)}`)).text();
  answer(refused === null ? `This tab did not have to resync yet. Its position ${position}: ${words}` : `The position that was refused was ${position}. ${words}`);
});
$("clear").addEventListener("click", () => log.clear());

watchApplication();
