/**
 * The steps of "Try to break it": each ticks itself off once what it promised was seen. A step says below its button what
 * came of it, with the time, so that what was true a minute ago is not taken for what is true now.
 */

/** @param {HTMLElement} list its items carry `data-step` @param {HTMLElement} progress @param {(text: string) => void} announce */
export function createTour(list, progress, announce) {
  /** @type {Map<string, {element: HTMLElement, outcome: HTMLElement, mark: HTMLElement}>} */
  const steps = new Map();
  /** @type {Map<string, () => string|null>} what is waited for, by step */
  const expected = new Map();

  for (const element of /** @type {NodeListOf<HTMLElement>} */ (list.querySelectorAll("[data-step]"))) {
    const [mark, outcome] = [document.createElement("span"), document.createElement("p")];
    mark.className = "mark";
    mark.setAttribute("aria-hidden", "true");
    mark.textContent = String(steps.size + 1);
    outcome.className = "outcome";
    outcome.hidden = true;
    element.prepend(mark);
    element.append(outcome);
    steps.set(element.dataset.step ?? "", { element, outcome, mark });
  }

  /** @param {string} step @param {string} text @param {"seen"|"note"|"trouble"} kind */
  function tell(step, text, kind) {
    const found = steps.get(step);
    if (found === undefined) return;
    const time = document.createElement("time");
    time.textContent = new Date().toTimeString().slice(0, 8);
    found.outcome.dataset.kind = kind;
    found.outcome.replaceChildren(time, " ", text);
    found.outcome.hidden = false;
    announce(text);
  }

  return {
    /** Something to know that is not the promised outcome. @param {string} step @param {string} text @param {"note"|"trouble"} kind */
    tell,
    /** What was told is no longer so. @param {string} step */
    clear(step) {
      const found = steps.get(step);
      if (found !== undefined) found.outcome.hidden = true;
    },
    /** From now on `check` is asked at every look; the text it gives in the end is what was seen.
     * @param {string} step @param {() => string|null} check */
    expect(step, check) {
      this.clear(step);
      expected.set(step, check);
    },
    look() {
      for (const [step, check] of expected) {
        const text = check();
        if (text === null) continue;
        expected.delete(step);
        this.seen(step, text);
      }
    },
    /** @param {string} step @param {string} text */
    seen(step, text) {
      const found = steps.get(step);
      if (found === undefined) return;
      found.element.dataset.seen = "";
      found.mark.textContent = "✓";
      tell(step, text, "seen");
      const count = [...steps.values()].filter(({ element }) => "seen" in element.dataset).length;
      progress.textContent = count === steps.size ? `All ${count} seen` : `${count} of ${steps.size} seen`;
    },
  };
}
