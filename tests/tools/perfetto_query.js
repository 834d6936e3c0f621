// Asks Perfetto's trace processor, which is the WebAssembly program of its web page, one question about a trace:
//   node perfetto_query.js FOLDER TRACE SQL
// FOLDER is that of the page's engine_bundle.js and trace_processor.wasm. Prints a JSON array: the names of the columns,
// then the rows. On the page a web worker loads the engine, here Node does. The engine's messages are those of
// perfetto.protos.TraceProcessorRpcStream.
"use strict";
const fs = require("fs");
const path = require("path");
const [folder, trace, sql] = process.argv.slice(2);

const METHOD = { append: 1, finalize: 2, query: 3 };
const RPC = { message: 1, sequence: 1, request: 2, invalid: 4, fatal: 5, appendData: 101, queryArgs: 103,
              appendResult: 201, queryResult: 203, finalizeResult: 212 };
const CELL = { null: 1, varint: 2, float64: 3, string: 4 };

// ---- Protocol buffers: only what these messages need
function varint(value) {
  const bytes = [];
  for (value = BigInt(value); value > 127n; value >>= 7n) bytes.push(Number(value & 127n) | 128);
  bytes.push(Number(value));
  return Buffer.from(bytes);
}
const numberField = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytesField = (field, bytes) => Buffer.concat([varint(field * 8 + 2), varint(bytes.length), bytes]);

class Reader {
  constructor(bytes) { this.bytes = bytes, this.at = 0; }
  more() { return this.at < this.bytes.length; }
  varint() {
    let value = 0n;
    for (let shift = 0n;; shift += 7n) {
      const byte = this.bytes[this.at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asIntN(64, value);
    }
  }
  take(length) { return this.bytes.subarray(this.at, this.at += length); }
}
// Calls use(field, value) for each field: a BigInt, or bytes.
function eachField(bytes, use) {
  for (const reader = new Reader(bytes); reader.more();) {
    const key = Number(reader.varint());
    const kind = key & 7;
    if (kind === 0) use(key >> 3, reader.varint());
    else if (kind === 1) use(key >> 3, reader.take(8));
    else if (kind === 2) use(key >> 3, reader.take(Number(reader.varint())));
    else throw new Error(`wire type ${kind}`);
  }
}

// ---- The answer to a query
function valuesOf(batch) {
  const cells = [], numbers = [], floats = [], strings = [];
  eachField(batch, (field, value) => {
    if (field === 1) for (const reader = new Reader(value); reader.more();) cells.push(Number(reader.varint()));
    if (field === 2) for (const reader = new Reader(value); reader.more();) numbers.push(Number(reader.varint()));
    if (field === 3) for (let at = 0; at < value.length; at += 8) floats.push(value.readDoubleLE(at));
    if (field === 5) strings.push(...value.toString().split("\0").slice(0, -1));
  });
  return cells.map((cell) => {
    if (cell === CELL.null) return null;
    if (cell === CELL.varint) return numbers.shift();
    if (cell === CELL.float64) return floats.shift();
    if (cell === CELL.string) return strings.shift();
    throw new Error(`a cell of type ${cell}`);
  });
}

class Answers {
  constructor() { this.columns = [], this.values = []; }
  // Takes what the engine says to one request.
  take(stream) {
    eachField(stream, (_, message) => eachField(message, (field, value) => {
      if (field === RPC.fatal) throw new Error(value.toString());
      if (field === RPC.invalid) throw new Error(`the engine does not know request ${value}`);
      if (field === RPC.appendResult) this.refuse(value, 2);
      if (field === RPC.finalizeResult) this.refuse(value, 1);
      if (field === RPC.queryResult) this.takeRows(value);
    }));
  }
  takeRows(result) {
    this.refuse(result, 2);
    eachField(result, (field, value) => {
      if (field === 1) this.columns.push(value.toString());
      if (field === 3) this.values.push(...valuesOf(value));
    });
  }
  refuse(result, errorField) {
    eachField(result, (field, value) => {
      if (field === errorField && value.length > 0) throw new Error(value.toString());
    });
  }
  rows() {
    const rows = [this.columns];
    for (let at = 0; at < this.values.length; at += this.columns.length) {
      rows.push(this.values.slice(at, at + this.columns.length));
    }
    return rows;
  }
}

// ---- The engine, as a function whose arguments stand for what a web worker has and Node has not
function loadEngine(onAnswer) {
  class XMLHttpRequest {
    open(method, name) { this.name = path.join(folder, path.basename(name)); }
    send() { this.response = fs.readFileSync(this.name); }
  }
  const worker = { location: { href: "http://localhost/" } };
  const quiet = { log() {}, warn() {}, error() {} }; // it reports its progress; errors are in its answers
  const given = { self: worker, WorkerGlobalScope: Object, XMLHttpRequest, console: quiet, process: undefined };
  const source = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
  new Function(...Object.keys(given), source)(...Object.values(given));
  const port = { postMessage: (bytes) => onAnswer(Buffer.from(bytes)) };
  worker.onmessage({ data: port });
  return port;
}

async function main() {
  const answers = new Answers();
  const port = loadEngine((bytes) => answers.take(bytes));
  let sequence = 0;
  const ask = (method, ...more) => {
    const message = Buffer.concat([numberField(RPC.sequence, ++sequence), numberField(RPC.request, method), ...more]);
    port.onmessage({ data: new Uint8Array(bytesField(RPC.message, message)) });
  };
  await new Promise(setImmediate);
  ask(METHOD.append, bytesField(RPC.appendData, fs.readFileSync(trace)));
  ask(METHOD.finalize);
  ask(METHOD.query, bytesField(RPC.queryArgs, bytesField(1, Buffer.from(sql))));
  console.log(JSON.stringify(answers.rows()));
}

main().catch((error) => {
  console.error(`perfetto_query: ${error.message}`);
  process.exit(1);
});
