/**
 * What the application says it published, against what came into this tab. Seqs are read out of the positions here, which no
 * real page should do: this is the referee, and it must not believe the client.
 */

const REMEMBERED = 20_000; // ids, to see one come twice

/** @param {string} position */
function parse(position) {
  const match = /^([0-9A-Za-z]+)\.([0-9]+)-/.exec(position);
  return match && { epoch: match[1], seq: Number(match[2]) };
}

export function createLedger() {
  /** @type {string|null} */
  let epoch = null;
  let base = 0; // published before this page was here
  let seen = 0; // everything up to here came, or is in a state that was fetched
  let top = 0; // what the application published last
  let received = 0;
  let replayed = 0;
  let refetched = 0;
  let skipped = 0;
  let twice = 0;
  /** @type {Set<string>} */
  const ids = new Set();

  return {
    /** The application published up to here. @param {string} position */
    published(position) {
      const at = parse(position);
      if (at !== null && at.epoch === epoch) top = Math.max(top, at.seq);
    },

    /** The page's state was fetched, and shows everything up to here. @param {string} position */
    fetched(position) {
      const at = parse(position);
      if (at === null) return;
      if (at.epoch !== epoch) {
        // The first state, or the log began anew: the count goes on from what this state holds.
        base = at.seq - received - refetched - skipped;
        epoch = at.epoch;
        seen = top = at.seq;
      } else if (at.seq > seen) {
        refetched += at.seq - seen;
        seen = at.seq;
        top = Math.max(top, at.seq);
      }
    },

    /** @param {{id: string|null, replay: boolean}} event */
    came({ id, replay }) {
      if (id === null) return;
      if (ids.has(id)) twice += 1;
      ids.add(id);
      if (ids.size > REMEMBERED) for (const oldest of ids) { ids.delete(oldest); break; }
      const at = parse(id);
      if (at === null || at.epoch !== epoch || at.seq <= seen) return; // in the fetched state already
      skipped += at.seq - seen - 1;
      received += 1;
      if (replay) replayed += 1;
      seen = at.seq;
      top = Math.max(top, at.seq);
    },

    get view() {
      return { published: top - base, here: received + refetched, received, replayed, refetched, coming: top - seen, missing: skipped, twice };
    },
  };
}
