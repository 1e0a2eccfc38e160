import assert from "node:assert/strict";
import test from "node:test";

import { formatPosition, logOf, parsePart, parsePosition } from "../position.js";

const PART = "k3J9xQ2m.42-8123345";

for (const [text, places] of /** @type {Array<[string, Record<string, string>]>} */ ([
  [PART, { "": PART }],
  ["abcdefgh.0-0", { "": "abcdefgh.0-0" }],
  [`${PART}~all.ABCDEFGH.9-2`, { "": PART, "~all": "ABCDEFGH.9-2" }],
  [`${PART}~org:7.abcdefgh.5-1~a.b.c.abcdefgh0123.6-1`, { "": PART, "~org:7": "abcdefgh.5-1", "~a.b.c": "abcdefgh0123.6-1" }],
  [`${PART}~__proto__.abcdefgh.5-1~constructor.abcdefgh.5-1`, { "": PART, "~__proto__": "abcdefgh.5-1", "~constructor": "abcdefgh.5-1" }],
  [`${PART}${Array.from({ length: 16 }, (_, i) => `~t${i}.abcdefgh.1-1`).join("")}`, { "": PART, ...Object.fromEntries(Array.from({ length: 16 }, (_, i) => [`~t${i}`, "abcdefgh.1-1"])) }],
])) {
  test(`A position is taken apart by log, and put together as it was: ${text.slice(0, 60)}`, () => {
    assert.deepEqual(parsePosition(text), places);
    assert.equal(formatPosition(parsePosition(text)), text);
  });
}

for (const text of [
  "", "42", "k3J9xQ2m", "k3J9xQ2m.42", "k3J9xQ2m.42-", "k3J9xQ2m.-1", "k3J9xQ2m.042-1", "k3J9xQ2m.42-01", "short.1-1", "seventeencharsxxx.1-1",
  "k3J9xQ2m.12345678901234567-1", "k3J9xQ2m.1-12345678901", "k3J9xQ2m.1-1 ", " k3J9xQ2m.1-1", "k3J9xQ2m.1-1\n", "k3J9xQ2m.1-1~", `${PART}~all`,
  `${PART}~.abcdefgh.1-1`, `${PART}~abcdefgh.1-1`, `${PART}~a b.abcdefgh.1-1`, `${PART}~all.abcdefgh.1-1~all.abcdefgh.2-2`,
  `${PART}~${"t".repeat(65)}.abcdefgh.1-1`, `${PART}${Array.from({ length: 17 }, (_, i) => `~t${i}.abcdefgh.1-1`).join("")}`,
  `${PART}${"~".repeat(2048)}`, "٤2J9xQ2m.42-1",
]) {
  test(`No position: ${JSON.stringify(text.slice(0, 60))}`, () => assert.equal(parsePosition(text), null));
}

test("What is no text is no position, no part and no topic.", () => {
  for (const value of [null, undefined, 42, {}, [PART]]) {
    assert.equal(parsePosition(value), null);
    assert.equal(parsePart(value), null);
    if (value !== undefined) assert.equal(logOf(value), null);
  }
  assert.equal(formatPosition(null), null);
});

test("Sequence numbers are numbers: 9 < 10 < 11.", () => {
  const [nine, ten, eleven] = [9, 10, 11].map((seq) => parsePart(`abcdefgh.${seq}-1`)?.seq ?? 0);
  assert.ok(nine < ten && ten < eleven);
});
