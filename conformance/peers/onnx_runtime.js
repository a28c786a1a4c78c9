// Runs one ONNX model with ONNX Runtime. Requests are lines of JSON on standard input, each answered by one line:
//   {"open": MODEL, "threads": N, "inputs": [TENSOR...], "outputs": [TENSOR...]}
//                      where a tensor has a name, type and dims, and an input the file that holds it
//   {"run": TIMES}     answers {"ms": MEAN}; where it is more than one, after one that doesn't count
//   {"save": FILE}     writes the first output
// An output that is "like" an input lies in the memory of that input.
'use strict';
const fs = require('node:fs');
const ort = require('onnxruntime-node');

const kinds = {float32: Float32Array, int32: Int32Array};
let session, feeds, fetches, saved;

function tensor({name, type, dims, file}) {
  const data = new kinds[type](dims.reduce((a, b) => a * b, 1)).fill(file ? 0 : NaN);
  if (file) {
    fs.readSync(fs.openSync(file), new Uint8Array(data.buffer), 0, data.byteLength);
  }
  return [name, new ort.Tensor(type, data, dims)];
}

async function answer(request) {
  if (request.open) {
    session = await ort.InferenceSession.create(request.open, {
      intraOpNumThreads: request.threads, interOpNumThreads: 1, executionProviders: ['cpu']});
    feeds = Object.fromEntries(request.inputs.map(tensor));
    fetches = Object.fromEntries(request.outputs.map((x) => x.like ? [x.name, feeds[x.like]] : tensor(x)));
    saved = fetches[request.outputs[0].name].data;
    return {};
  }
  if (request.run) {
    if (request.run > 1) {
      await session.run(feeds, fetches);
    }
    const before = performance.now();
    for (let i = 0; i < request.run; ++i) {
      await session.run(feeds, fetches);
    }
    return {ms: (performance.now() - before) / request.run};
  }
  fs.writeFileSync(request.save, new Uint8Array(saved.buffer));
  return {};
}

(async () => {
  for await (const line of require('node:readline').createInterface({input: process.stdin})) {
    let reply;
    try {
      reply = await answer(JSON.parse(line));
    } catch (error) {
      reply = {error: error.message};
    }
    fs.writeSync(1, JSON.stringify(reply) + '\n');
  }
})();
