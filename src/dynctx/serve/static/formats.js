// Documents in and out: text becomes sentences here; files with markup are read and written by the service.

const TIMING = /^\s*\d+:\d\d:\d\d[,.]\d+\s*-->\s*\d+:\d\d:\d\d[,.]\d+/;
const MARKED = /\.(srt|vtt|ass|ssa|html?)$/i; // what the service reads
// what as plain text would have its markup translated
export const UNREAD = /\.(md|markdown|xlf|xliff|tmx|po|pot|jsonl|tsv|xml|tex|rst|rtf|docx|odt|epub|pdf)$/i;
const NO_SPACES = ["zh", "ja"]; // languages that put none between sentences
// addresses of pages and of mail, as in formats/placeholders.py
const NOT_IN_ADDRESS = "\\s<>\"'(){}\\u3000-\\u30ff\\u3400-\\u9fff\\uff00-\\uffef";
const ADDRESS = new RegExp(
  `(?:https?://|www\\.)[^${NOT_IN_ADDRESS}]*[^${NOT_IN_ADDRESS}.,;:!?]` +
    "|[a-zA-Z0-9][a-zA-Z0-9._%+-]{0,63}@[a-zA-Z0-9][a-zA-Z0-9-]*(?:\\.[a-zA-Z0-9-]+)*\\.[a-zA-Z]{2,}",
  "g",
);

// UTF-8, and UTF-16 that says so; an error for anything else.
export function decode(buffer) {
  const [first, second] = new Uint8Array(buffer, 0, Math.min(2, buffer.byteLength));
  const wide = { 65534: "utf-16le", 65279: "utf-16be" }[second === undefined ? 0 : first * 256 + second];
  const text = new TextDecoder(wide || "utf-8", { fatal: true }).decode(buffer);
  if (text.includes("\0")) throw new TypeError("no text");
  return text;
}

// The name of a file that is to be read by the service; nothing for plain text.
export function markedName(text, name) {
  if (MARKED.test(name || "")) return name;
  if (text.split("\n").slice(0, 40).some((line) => TIMING.test(line))) return "text.srt";
  if (/^\uFEFF?WEBVTT\s/.test(text)) return "text.vtt";
  return /^\uFEFF?\s*\[Script Info\]/i.test(text) ? "text.ass" : "";
}

// A document is a list of blocks. A block has the text before its sentences, the sentences, and the text after them.
export function parse(text, language, split) {
  const clean = text.replace(/^\uFEFF/, "").replace(/\r\n?/g, "\n");
  return { kind: "txt", blocks: textBlocks(clean, language, split) };
}

function textBlocks(text, language, split) {
  const lines = text.replace(/\n+$/, "").split("\n");
  return lines.map((line, k) => {
    const end = k + 1 < lines.length ? "\n" : "";
    const bare = line.trim();
    if (!bare) return { before: line + end, sentences: [], after: "" };
    const start = line.indexOf(bare);
    const sentences = split ? sentencesOf(bare, language) : [bare];
    return { before: line.slice(0, start), sentences, after: line.slice(start + bare.length) + end };
  });
}

function sentencesOf(paragraph, language) {
  if (!("Segmenter" in Intl)) return [paragraph];
  let segmenter;
  try {
    segmenter = new Intl.Segmenter(language, { granularity: "sentence" });
  } catch { // a code that the browser does not know
    segmenter = new Intl.Segmenter(undefined, { granularity: "sentence" });
  }
  const addresses = Array.from(paragraph.matchAll(ADDRESS), (found) => [found.index, found.index + found[0].length]);
  const starts = Array.from(segmenter.segment(paragraph), (part) => part.index)
    .filter((place) => !addresses.some(([begin, end]) => begin < place && place < end)); // at the ? of an address
  return starts.map((place, k) => paragraph.slice(place, starts[k + 1]).trim()).filter(Boolean);
}

export function write(document, translations, language) {
  const joiner = NO_SPACES.includes(language) ? "" : " ";
  let next = 0;
  return document.blocks
    .map((block) => {
      const found = block.sentences.map((sentence) => withAddresses(translations[next++], sentence));
      return block.before + found.join(joiner) + block.after;
    })
    .join("");
}

// An address that a translation has lost is put at its end, as in files.
function withAddresses(translation, sentence) {
  const lost = (sentence.match(ADDRESS) || []).filter((address) => !translation.includes(address));
  return translation ? [translation, ...lost].join(" ") : translation;
}

// The words of two texts that the other has not, as lists of [text, differs].
export function compare(a, b) {
  const [left, right] = [words(a), words(b)];
  const common = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--)
    for (let j = right.length - 1; j >= 0; j--)
      common[i][j] = left[i] === right[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const found = [left.map((word) => [word, true]), right.map((word) => [word, true])];
  for (let i = 0, j = 0; i < left.length && j < right.length; ) {
    if (left[i] === right[j]) found[0][i++][1] = found[1][j++][1] = false;
    else if (common[i + 1][j] >= common[i][j + 1]) i++;
    else j++;
  }
  return found;
}

function words(text) {
  return (text.match(/[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|\s+|[\p{L}\p{N}\p{M}]+|./gu) || []).slice(0, 600);
}

export const EXAMPLES = {
  en: `The council bought an old bus last year.
Everyone in the village knew the driver, and she knew every road.
One morning it broke down at the bridge.
"It has never done that before," she said.
The mechanic looked at the engine for an hour.
He could not find anything wrong with it.
In the end she kicked the door.
It started at once.`,
  zh: `昨天我见到你前妻了
她怎么样
看起来很累
她说什么了
说想见见你
她丈夫知道吗
不能让他知道
一定会生气的`,
};
