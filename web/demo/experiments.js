/** The buttons: what each does, and how the page knows that what it promised was seen. */

import { ask } from "./application.js";

const CUT_S = 6;
const FREEZE_S = 10;
const BURST = 1_000;

const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const number = (/** @type {number} */ value) => value.toLocaleString("en");
const since = (/** @type {number} */ began) => `${((performance.now() - began) / 1000).toFixed(1)} s`;

/** @param {any} page the parts of demo.js that the buttons move */
export function wireExperiments({ tidings, cable, ledger, jobs, log, tour, known, gatewayName, look, session, resynced }) {
  /** Everything that was published is here, as far as both sides know. */
  const even = () => {
    const { coming, missing, twice } = ledger.view;
    return tidings.state === "live" && known.redis && !known.gone && coming + missing + twice === 0;
  };

  /** What was told in place of replaying, if it was. @param {object|null} before */
  const refetched = (before) => resynced() !== before && "More was missed than the log keeps, so the page was told, and fetched its state.";

  /** A button that is busy for a while: it stays where the keyboard is, says how long, and does nothing.
   * @param {HTMLElement} button @param {() => Promise<number|void>} action tells for how many seconds it goes on */
  function onPress(button, action) {
    const label = button.textContent ?? "";
    const step = /** @type {HTMLElement} */ (button.closest("[data-step]")).dataset.step ?? "";
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
        tour.tell(step, status === undefined ? "The application cannot be reached. Is the demo still running?" : message, "trouble");
      } finally {
        button.textContent = label;
        button.removeAttribute("aria-disabled");
      }
    });
  }

  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-seconds]"))) {
    onPress(button, async () => {
      const seconds = Number(button.dataset.seconds);
      const { id } = await (await ask("jobs", { seconds })).json();
      jobs.started(id, seconds);
      tour.expect("job", () => {
        const job = jobs.get(id);
        if (job?.status !== "complete") return null;
        return job.age === null ? "It ended while this tab was away, and the tab learnt it when it was back." : `Done, and on this screen ${number(job.age)} ms after it was published.`;
      });
    });
  }

  onPress($("cut"), async () => {
    const [began, before, resync, replayed] = [performance.now(), session(), resynced(), ledger.view.replayed];
    cable.pull();
    setTimeout(() => {
      cable.plug();
      if (tidings.state === "waiting") tidings.connect(); // as a page does when the browser says it is online again
    }, CUT_S * 1000);
    let back = 0;
    tour.expect("cut", () => {
      if (tidings.state !== "live" || session() === before || !even()) return null;
      back ||= performance.now();
      const count = ledger.view.replayed - replayed;
      const came = count > 0 ? `${number(count)} replayed in order, nothing missing.` : "Nothing that is kept happened meanwhile, so nothing was to be replayed. Try it right after the start of a job of 3 s.";
      return `Back after ${((back - began) / 1000).toFixed(1)} s. ${refetched(resync) || came}`;
    });
    return CUT_S;
  });

  onPress($("burst"), async () => {
    const [began, resync, { published, replayed }] = [performance.now(), resynced(), ledger.view];
    try {
      await ask("burst", { count: BURST });
    } catch (error) {
      const { message, problem } = /** @type {any} */ (error);
      if (problem?.code !== "unacknowledged") throw error;
      // What no receipt was given for may be stored all the same. The count shows it once Redis answers again.
      const answers = known.answers;
      tour.expect("burst", () => {
        if (!even() || known.stage.frozen || known.answers < answers + 2) return null;
        const stored = ledger.view.published - published;
        return stored === 0 ? "Redis is back. None of them had been stored, and none is here: the ledger is even."
          : `Redis is back. ${number(stored)} had been stored all the same, and all of those are here: the ledger is even.`;
      });
      tour.tell("burst", `${message} A worker would send them again under the same idempotency keys, so that each is stored once.`, "trouble");
      return;
    }
    tour.expect("burst", () => {
      const view = ledger.view;
      if (view.published < published + BURST || !even()) return null;
      const came = view.replayed - replayed;
      return `All ${number(BURST)} are here after ${since(began)}. ${refetched(resync) || (came > 0 ? `${number(Math.min(came, BURST))} of them were replayed.` : "Each in its order, each once.")}`;
    });
  });

  onPress($("restart"), async () => {
    const find = (/** @type {string} */ name) => known.stage.gateways.find((/** @type {any} */ gateway) => gateway.name === name);
    const name = gatewayName() ?? known.stage.gateways[0]?.name;
    const [starts, tabs] = [find(name)?.starts ?? 0, find(name)?.tabs ?? 0];
    await ask("restart", { gateway: name });
    log.add("connection", `gateway ${name} is told to go (SIGTERM)`);
    look();
    let first = 0;
    let last = 0;
    tour.expect("restart", () => {
      const gateway = find(name);
      if (gateway === undefined) return null;
      if (gateway.starts === starts && gateway.tabs < tabs) first ||= performance.now();
      if (first && !last && (gateway.tabs === 0 || gateway.starts > starts)) last = performance.now();
      if (gateway.starts === starts || gateway.state !== "ready" || !even()) return null;
      return `${name} let ${tabs === 1 ? "its one tab" : `its ${tabs} tabs`} go over ${((last - first) / 1000).toFixed(1)} s and is back. This tab went on at ${gatewayName()}, nothing missing.`;
    });
    return 3;
  });

  onPress($("freeze"), async () => {
    const before = session();
    await ask("freeze", { seconds: FREEZE_S });
    log.add("connection", `Redis is frozen for ${FREEZE_S} s`);
    look();
    const answers = known.answers;
    let frozen = false;
    tour.expect("freeze", () => {
      frozen ||= known.stage.frozen;
      if (!frozen || known.stage.frozen || known.answers < answers + 2 || !even()) return null;
      return `Redis is back. ${session() === before ? "This tab stayed connected all along" : "This tab had to come back"}, and nothing is missing.`;
    });
    return FREEZE_S;
  });

  onPress($("explain"), async () => {
    const last = resynced();
    const position = last?.position ?? tidings.position ?? "";
    const words = await (await ask(`explain?position=${encodeURIComponent(position)}`)).text();
    if (last === null) {
      tour.tell("explain", `This tab did not have to so far.\n${words}`, "note");
      return;
    }
    const missed = last.missed === null ? "" : ` It had missed ${number(last.missed)} events.`;
    tour.seen("explain", `${words}\nThis page did so at ${last.time} (${last.reason}).${missed}`);
  });
}
