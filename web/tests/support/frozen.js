/** Freezes a value to its leaves: a reducer that changes its input throws. @template T @param {T} value @returns {T} */
export function frozen(value) {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    Object.values(value).forEach(frozen);
  }
  return value;
}
