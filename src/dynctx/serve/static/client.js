// What the page asks of the service.

let key = "";
export function useKey(value) {
  key = value;
}

export class Refused extends Error {}

async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  let answer;
  try {
    answer = await fetch(path, body === undefined ? { signal } : { method: "POST", headers, body: JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The service does not answer. Is it still running?");
  }
  if (!answer.ok) {
    const reason = await answer.json().then((content) => content.error, () => answer.statusText);
    throw new Refused(reason);
  }
  return answer;
}

export async function describe() {
  return (await ask("/v1/model")).json();
}

// Each sentence as soon as it is translated.
async function* stream(body, signal) {
  const answer = await ask("/v1/documents", { ...body, stream: true }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Refused("The service broke off.");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const record = JSON.parse(line);
      if (record.done) return;
      if (record.error) throw new Refused(record.error);
      yield record;
    }
  }
}

// A document of any length, in requests that the service takes; every request brings the context before it.
export async function* translate(sentences, selector, model, signal) {
  // lines that are kept as they are stand between candidates: some more come along
  const before = Math.min(4 * model.scope, model.limits.sentences >> 1);
  const step = Math.max(1, model.limits.sentences - before);
  for (let first = 0; first < sentences.length; first += step) {
    const offset = Math.max(0, first - before);
    const last = Math.min(first + step, sentences.length);
    const numbers = Array.from({ length: last - first }, (_, k) => first - offset + k + 1);
    const body = { sentences: sentences.slice(offset, last), selector, numbers };
    for await (const record of stream(body, signal)) yield { ...record, place: record.sentence - 1 + offset };
  }
}

// One sentence again, with the context that was chosen by hand.
export async function again(sentences, place, distances, reach) {
  const offset = place - reach;
  const number = place - offset + 1;
  const body = { sentences: sentences.slice(offset, place + 1), numbers: [number], selection: { [number]: distances } };
  const answer = await (await ask("/v1/documents", body)).json();
  return answer.sentences[0];
}

// A file with markup: its sentences, and the file with their translations.
export async function readFile(name, text) {
  return (await ask("/v1/files/read", { name, text })).json();
}

export async function writeFile(name, text, translations) {
  return (await (await ask("/v1/files/write", { name, text, translations })).json()).text;
}
