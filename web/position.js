/**
 * Positions: "I have everything of this log up to and including this entry", `<epoch>.<seq>-<tag>`. A full position is one
 * such part for the user's own log, then `~<topic>.<part>` for each topic. Pages store and return them as they came; only
 * the client looks inside, to see repeats and holes.
 *
 * @typedef {Record<string, string>} Places the part of each log; its name is `""` (the user's own) or `"~topic"`
 */

const PART = /^([0-9A-Za-z]{8,16})\.(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,9})$/;
const TOPIC = /^[A-Za-z0-9._:-]{1,64}$/;
const MAX_TOPICS = 16;
const MAX_LENGTH = 2048;

/** `seq` is a number, so that 9 < 10 < 11. @param {unknown} text @returns {{epoch: string, seq: number}|null} */
export function parsePart(text) {
  const match = typeof text === "string" ? PART.exec(text) : null;
  return match && { epoch: match[1], seq: Number(match[2]) };
}

/** The name of a topic's log, or of the user's own for no topic. @param {unknown} topic @returns {string|null} null: not a topic */
export function logOf(topic) {
  if (topic === undefined) return "";
  return typeof topic === "string" && TOPIC.test(topic) ? `~${topic}` : null;
}

/** @param {unknown} text a full position @returns {Places|null} null: not a position */
export function parsePosition(text) {
  if (typeof text !== "string" || text.length > MAX_LENGTH) return null;
  const [own, ...topics] = text.split("~");
  if (!parsePart(own) || topics.length > MAX_TOPICS) return null;
  /** @type {Places} */
  const places = { "": own };
  for (const item of topics) {
    const cut = item.lastIndexOf(".", item.lastIndexOf(".") - 1); // a topic may hold dots, a part holds exactly one
    const log = cut < 0 ? null : logOf(item.slice(0, cut));
    const part = item.slice(cut + 1);
    if (log === null || log in places || !parsePart(part)) return null;
    places[log] = part;
  }
  return places;
}

/** @param {Places|null} places @returns {string|null} */
export function formatPosition(places) {
  return places && Object.entries(places).map(([log, part]) => (log === "" ? part : `${log}.${part}`)).join("");
}
