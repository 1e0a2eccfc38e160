/** A seeded generator (mulberry32): the same walk every time. @param {number} seed */
export function generator(seed) {
  let a = seed >>> 0;
  const random = () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    random,
    /** @param {number} p */
    chance: (p) => random() < p,
    /** @template T @param {ReadonlyArray<T>} list @returns {T} */
    pick: (list) => list[Math.floor(random() * list.length)],
    /** An integer in [low, high]. @param {number} low @param {number} high */
    integer: (low, high) => low + Math.floor(random() * (high - low + 1)),
  };
}
