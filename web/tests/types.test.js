// tidings.d.ts, which editors and TypeScript read, against the client itself and the JSDoc it is documented by.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import * as module from "../tidings.js";
import { sockets } from "./support/browser.js";

const read = (/** @type {string} */ name) => readFileSync(new URL(`../${name}`, import.meta.url), "utf8");
const types = read("tidings.d.ts").replace(/\/\*\*.*?\*\//gs, "");
const script = read("tidings.js");

/** The names of a declaration's own members, those of nested types left out. @param {string} head */
function members(head) {
  const start = types.indexOf(`export ${head}`);
  assert.notEqual(start, -1, `no ${head} in tidings.d.ts`);
  let body = types.slice(types.indexOf("{\n", start) + 1, types.indexOf("\n}", start));
  for (let before = ""; before !== body; ) {
    before = body;
    body = body.replace(/\{[^{}]*\}|\([^()]*\)/g, "#");
  }
  return new Set([...body.matchAll(/^ {2}(?:get )?(\w+)/gm)].map(([, name]) => name).filter((name) => name !== "constructor"));
}

/** The words of a union of strings. @param {string} name */
function words(name) {
  const union = /** @type {RegExpExecArray} */ (new RegExp(`export type ${name} =([^;]*);`).exec(types))[1];
  return new Set([...union.matchAll(/"(\w+)"/g)].map(([, word]) => word));
}

/** The properties that the JSDoc of tidings.js gives to a type. @param {string} name */
function documented(name) {
  const [, block] = script.split(`@typedef {object} ${name}\n`);
  const own = block.split(/@typedef|\*\//)[0];
  return new Set([...own.matchAll(/@property \{[^\n]*?\} \[?(\w+)\]?(?=[ \n])/g)].map(([, property]) => property));
}

/** The names that an object or its class shows to everybody. @param {object} object */
function visible(object) {
  const own = Object.keys(object);
  const inherited = Object.getOwnPropertyNames(Object.getPrototypeOf(object));
  return new Set([...own, ...inherited].filter((name) => name !== "constructor"));
}

test("tidings.d.ts exports exactly what the module exports, beside the names of its types.", () => {
  const classes = [...types.matchAll(/export (?:class|function|const) (\w+)/g)].map(([, name]) => name);
  assert.deepEqual(new Set(classes), new Set(Object.keys(module)));
});

test("Each public member of a client is declared, and no other.", () => {
  const tidings = new module.Tidings({ url: "https://push.example", WebSocket: sockets().FakeSocket });
  tidings.close();
  assert.deepEqual(members("class Tidings "), visible(tidings));
});

test("An error has the members that are declared; its codes are the ones that the documentation names.", () => {
  const error = new module.TidingsError("load", "why");
  assert.deepEqual(members("class TidingsError "), new Set(["code", "close"]));
  assert.deepEqual([error.code, error.close, error.name], ["load", null, "TidingsError"]);
  const told = script.slice(0, script.indexOf("export class TidingsError")).split("/**").at(-1) ?? "";
  for (const code of words("ErrorCode")) assert.ok(told.includes(`\`${code}\``), `${code} is not documented`);
  const used = [...script.matchAll(/#report\("(\w+)"/g), ...(read("machine.js") + read("load.js")).matchAll(/type: "report", code: "(\w+)"/g), ...read("machine.js").matchAll(/restart\(\w+, "(\w+)"/g)];
  assert.ok(used.length > 10);
  assert.deepEqual(new Set(used.map(([, code]) => code)), words("ErrorCode"));
});

test("Options and status have the members that the JSDoc gives them.", () => {
  assert.deepEqual(members("interface Options"), documented("Options"));
  assert.deepEqual(members("interface Status"), documented("Status"));
});

test("The states are the ones that the machine has, and `loading`.", () => {
  const names = /@property \{([^}]*)\} name\n/.exec(read("machine.js"))?.[1] ?? "";
  const known = new Set([...names.matchAll(/"(\w+)"/g)].map(([, name]) => name));
  assert.deepEqual(words("StateName"), known.add("loading"));
});

test("An event has the members that a listener is handed.", () => {
  const event = /@typedef \{\{(.*)\}\} TidingsEvent/.exec(read("machine.js"))?.[1] ?? "";
  assert.deepEqual(members("interface TidingsEvent"), new Set([...event.matchAll(/(\w+):/g)].map(([, name]) => name)));
});
