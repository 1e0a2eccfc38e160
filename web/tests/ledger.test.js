// The demo's referee: a ledger that cannot count a loss would prove nothing.

import assert from "node:assert/strict";
import test from "node:test";

import { createLedger } from "../demo/ledger.js";

const at = (/** @type {number} */ seq, epoch = "abcdefgh") => `${epoch}.${seq}-1`;
const came = (/** @type {number} */ seq, replay = false) => ({ id: at(seq), replay });

/** A page that was opened when the log was at 100. */
function opened() {
  const ledger = createLedger();
  ledger.fetched(at(100));
  return ledger;
}

test("What was there before the page counts on neither side.", () => {
  assert.deepEqual(opened().view, { published: 0, here: 0, received: 0, replayed: 0, refetched: 0, coming: 0, missing: 0, twice: 0 });
});

test("An event counts once, by the way it came; one published and not here yet is still to come.", () => {
  const ledger = opened();
  ledger.came(came(101));
  ledger.came(came(102, true));
  ledger.came({ id: null, replay: false });
  ledger.published(at(104));
  assert.deepEqual(ledger.view, { published: 4, here: 2, received: 2, replayed: 1, refetched: 0, coming: 2, missing: 0, twice: 0 });
});

test("A hole is missing for good, also when later events come.", () => {
  const ledger = opened();
  ledger.came(came(101));
  ledger.came(came(104));
  ledger.came(came(105));
  assert.deepEqual([ledger.view.missing, ledger.view.published, ledger.view.here], [2, 5, 3]);
});

test("An id that comes again is seen, however late.", () => {
  const ledger = opened();
  for (const seq of [101, 102, 103, 101]) ledger.came(came(seq));
  assert.equal(ledger.view.twice, 1);
  assert.equal(ledger.view.here, 3);
});

test("A fetched state makes good what it holds; events that it holds already do not count again.", () => {
  const ledger = opened();
  ledger.came(came(101));
  ledger.fetched(at(150));
  ledger.came(came(150));
  ledger.came(came(151));
  assert.deepEqual(ledger.view, { published: 51, here: 51, received: 2, replayed: 0, refetched: 49, coming: 0, missing: 0, twice: 0 });
});

test("A log that begins anew starts from the state that was fetched; what the application says of another log counts for nothing.", () => {
  const ledger = opened();
  ledger.came(came(101));
  ledger.published(at(9, "otherlog"));
  assert.equal(ledger.view.coming, 0);
  ledger.fetched(at(3, "otherlog"));
  ledger.came({ id: at(4, "otherlog"), replay: false });
  assert.deepEqual([ledger.view.published, ledger.view.here, ledger.view.missing], [2, 2, 0]);
});
