/** The page's state: the jobs, newest first. It is fetched as a whole by load(), and kept up to date by events. */

const SHOWN_MAX = 3;

/** @typedef {{id: string, seconds: number, status: string, progress: number, how?: string, age?: number|null}} Job */

/** @param {HTMLElement} list */
export function createJobs(list) {
  /** @type {Map<string, Job>} oldest first */
  const jobs = new Map();
  /** @type {Map<string, HTMLElement>} */
  const elements = new Map();

  function draw() {
    const shown = [...jobs.values()].reverse().slice(0, SHOWN_MAX);
    for (const [id, element] of elements) {
      if (shown.some((job) => job.id === id)) continue;
      element.remove();
      elements.delete(id);
    }
    shown.forEach((job, index) => {
      const element = elements.get(job.id) ?? make();
      elements.set(job.id, element);
      if (list.children[index] !== element) list.insertBefore(element, list.children[index] ?? null);
      fill(element, job);
    });
    list.hidden = shown.length === 0;
  }

  return {
    /** The state as it was fetched: it takes the place of everything. @param {Job[]} fetched newest first */
    show(fetched) {
      const before = new Map(jobs);
      jobs.clear();
      for (const job of [...fetched].reverse()) jobs.set(job.id, { age: null, how: job.status === "complete" ? "from the state" : undefined, ...shown(before.get(job.id)), ...job });
      draw();
    },
    /** @param {string} id @param {number} seconds */
    started(id, seconds) {
      // The answer to the request may come after the first events of the job.
      if (!jobs.has(id)) jobs.set(id, { id, seconds, status: "processing", progress: 0 });
      draw();
    },
    /** @param {string} id @param {number} progress percent */
    progress(id, progress) {
      const job = jobs.get(id);
      if (job === undefined || job.status === "complete") return; // ephemerals have no order relative to the end
      job.progress = Math.max(job.progress, progress);
      job.status = "processing";
      draw();
    },
    /** @param {string} id */
    get(id) {
      return jobs.get(id);
    },
    /** @param {string} id @param {number} seconds @param {string} how @param {number|null} age ms since it was published; null: not told at once */
    complete(id, seconds, how, age) {
      jobs.set(id, { id, seconds, status: "complete", progress: 100, how, age });
      draw();
    },
  };
}

/** How a job's end came, which a fetched state does not tell. @param {Job|undefined} job */
function shown(job) {
  return job?.status === "complete" ? { how: job.how, age: job.age } : {};
}

function make() {
  const element = document.createElement("li");
  const [name, how, progress] = ["span", "span", "progress"].map((tag) => document.createElement(tag));
  name.className = "name";
  how.className = "how";
  /** @type {HTMLProgressElement} */ (progress).max = 100;
  element.append(name, how, progress);
  return element;
}

/** @param {HTMLElement} element @param {Job} job */
function fill(element, job) {
  const [name, how, progress] = /** @type {any} */ (element.children);
  element.dataset.status = job.status;
  element.dataset.job = job.id;
  const id = document.createElement("span");
  id.className = "code";
  id.textContent = job.id;
  name.replaceChildren(`${job.seconds} s `, id);
  how.textContent = job.status === "complete" ? `done, ${job.how}` : job.status === "queued" ? "queued" : `${job.progress} %`;
  progress.value = job.progress;
  progress.setAttribute("aria-label", `Progress of job ${job.id}`);
}
