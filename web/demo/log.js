/**
 * The list of what came, newest first. Neighbours of one kind share a row, and rows are drawn once per frame: a burst of 1,000
 * costs one row. It is no live region: a screen reader is told the few things that matter elsewhere.
 */

const ROWS_MAX = 150;
const TOGETHER_MS = 1_500;

/** @typedef {{kind: string, what: string, first: number|null, last: number|null, count: number, at: number, element: HTMLElement|null}} Row */

/** @param {HTMLElement} list @param {HTMLElement} empty */
export function createLog(list, empty) {
  /** @type {Row[]} newest last */
  let rows = [];
  /** @type {Set<Row>} */
  const changed = new Set();
  let drawing = false;

  function draw() {
    drawing = false;
    const follows = list.scrollTop < 8;
    for (const row of changed) {
      row.element ??= list.insertBefore(document.createElement("li"), list.firstChild);
      fill(row.element, row);
    }
    changed.clear();
    while (rows.length > ROWS_MAX) rows.shift()?.element?.remove();
    if (follows) list.scrollTop = 0;
    empty.hidden = rows.length > 0;
    list.hidden = rows.length === 0;
  }

  return {
    /** @param {string} kind live, replayed, ephemeral, connection, trouble @param {string} what @param {number|null} [seq] */
    add(kind, what, seq = null) {
      const now = Date.now();
      const last = rows.at(-1);
      const joins = last && last.kind === kind && last.what === what && kind !== "connection" && (kind === "trouble" || now - last.at < TOGETHER_MS);
      const row = joins ? last : { kind, what, first: seq, last: seq, count: 0, at: now, element: null };
      row.count += 1;
      row.last = seq;
      row.at = now;
      if (!joins) rows.push(row);
      changed.add(row);
      if (!drawing) requestAnimationFrame(draw);
      drawing = true;
    },
    clear() {
      rows = [];
      changed.clear();
      list.replaceChildren();
      draw();
    },
  };
}

/** @param {HTMLElement} element @param {Row} row */
function fill(element, row) {
  element.dataset.kind = row.kind;
  const time = document.createElement("time");
  time.textContent = new Date(row.at).toTimeString().slice(0, 8);
  const what = document.createElement("span");
  what.className = "what";
  what.textContent = row.count > 1 ? `${row.what} × ${row.count.toLocaleString("en")}` : row.what;
  if (row.kind === "replayed" || row.kind === "ephemeral") {
    const mark = document.createElement("span");
    mark.className = "mark";
    mark.textContent = row.kind;
    what.append(" ", mark);
  }
  const which = document.createElement("span");
  which.className = "which";
  if (row.first !== null) which.textContent = row.first === row.last ? `#${row.first}` : `#${row.first}–${row.last}`;
  element.replaceChildren(time, what, which);
}
