/** Virtual time: things happen in the order of their moments, and nothing waits. */
export function timeline() {
  let now = 0;
  let count = 0;
  /** @type {Array<{at: number, order: number, run: () => void}>} */
  const due = [];
  return {
    get now() {
      return now;
    },
    /** @param {number} delay_ms @param {() => void} run @returns {() => void} takes it back */
    after(delay_ms, run) {
      const entry = { at: now + Math.max(0, delay_ms), order: count++, run };
      let index = due.length;
      while (index > 0 && due[index - 1].at > entry.at) index -= 1;
      due.splice(index, 0, entry);
      return () => {
        const found = due.indexOf(entry);
        if (found >= 0) due.splice(found, 1);
      };
    },
    /** Lets everything happen up to a moment. @param {number} until_ms */
    run(until_ms) {
      while (due.length > 0 && due[0].at <= until_ms) {
        const [entry] = due.splice(0, 1);
        now = entry.at;
        entry.run();
      }
      now = until_ms;
    },
  };
}
