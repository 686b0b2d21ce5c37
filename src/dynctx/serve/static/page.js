// The page: a document goes in, translations come out line by line, and each line shows the context it was given.

import * as client from "./client.js";
import { EXAMPLES, UNREAD, compare, decode, markedName, parse, write } from "./formats.js";

const LARGEST_FILE = 5_000_000; // bytes
const $ = (id) => document.getElementById(id);
const state = { model: null, name: "", text: null, lines: [], stop: null, active: -1, held: -1, row: -1 };

// what a line looks like

function makeLine(text, place) {
  const row = document.createElement("li");
  row.className = "line waiting";
  row.tabIndex = place ? -1 : 0;
  row.dataset.place = place;
  const [number, source, translation, plain, context] = ["number", "source", "translation", "plain", "context"].map((name) => {
    const cell = document.createElement("div");
    cell.className = name;
    return row.appendChild(cell);
  });
  number.textContent = place + 1;
  source.textContent = text;
  for (const cell of [source, translation, plain]) cell.dir = "auto";
  source.lang = state.model.source.code;
  translation.lang = plain.lang = state.model.target.code;
  context.setAttribute("role", "group");
  context.setAttribute("aria-label", `Context of line ${place + 1}`);
  return { text, row, cells: { translation, plain, context }, answer: null, chosen: null, plain: null, busy: false };
}

// How bright a candidate is: half where it is as probable as needing none at all, more or less with the difference.
function strength(line, distance) {
  const { probabilities, non, selected } = line.answer;
  if (!(distance in probabilities)) return selected.includes(distance) ? 0.8 : 0;
  const differences = Object.values(probabilities).map((p) => Math.abs(p - non));
  return 0.5 + (probabilities[distance] - non) / (2 * Math.max(0.05, ...differences));
}

function percent(line, distance) {
  const p = line.answer.probabilities[distance];
  return p === undefined ? "" : `, probability ${Math.round(100 * p)} %`;
}

function show(place) {
  const line = state.lines[place];
  const { translation, plain, context } = line.cells;
  line.row.classList.toggle("waiting", !line.answer || line.busy);
  if (!line.answer) return;
  const whole = [[[line.answer.translation, false]], [[line.plain ?? "", false]]];
  const both = line.plain !== null && $("beside").checked;
  const [left, right] = both ? compare(line.answer.translation, line.plain) : whole;
  translation.replaceChildren(...pieces(left));
  plain.replaceChildren(...pieces(right));
  if (line.answer !== line.chosen && line.answer.translation !== line.chosen.translation) {
    const note = document.createElement("span");
    note.className = "as-chosen";
    note.textContent = `as chosen by the model: ${line.chosen.translation}`;
    translation.append(note);
  }
  showSquares(place, line, context);
}

function pieces(parts) {
  return parts.map(([text, differs]) => {
    if (!differs || !text.trim()) return document.createTextNode(text);
    const mark = document.createElement("mark");
    mark.textContent = text;
    return mark;
  });
}

// How far back the lines are that a line may use, nearest first; what is kept as it is is nobody's context, nor is an
// empty line.
function candidates(place) {
  const found = [];
  for (let other = place - 1; other >= 0 && found.length < state.model.scope; other--)
    if (state.lines[other].text.trim() && !state.lines[other].answer?.kept) found.push(place - other);
  return found;
}

function showSquares(place, line, context) {
  const focused = document.activeElement?.dataset?.distance;
  const inside = context.contains(document.activeElement);
  if (line.answer.kept) return void (context.textContent = "kept as it is"); // in another script: nothing to choose
  const squares = [];
  if (line.answer !== line.chosen) {
    const undo = document.createElement("button");
    undo.type = "button";
    undo.className = "undo";
    undo.textContent = "undo";
    undo.setAttribute("aria-label", `Line ${place + 1}: back to the model's own choice`);
    squares.push(undo);
  }
  const reach = candidates(place);
  for (let slot = state.model.scope; slot >= 1; slot--) {
    const distance = reach[slot - 1] ?? place - reach.length + slot;
    const square = document.createElement("button");
    square.type = "button";
    square.className = "square";
    square.dataset.distance = distance;
    if (distance > place) square.classList.add("gap");
    else {
      const used = line.answer.selected.includes(distance);
      square.textContent = place - distance + 1;
      square.style.setProperty("--strength", strength(line, distance));
      square.setAttribute("aria-pressed", used);
      square.setAttribute("aria-label", `Line ${place - distance + 1}, ${distance} back: ${used ? "used" : "not used"}${percent(line, distance)}`);
      square.title = `line ${place - distance + 1}${percent(line, distance)}`;
    }
    squares.push(square);
  }
  for (const button of squares) {
    button.tabIndex = place === state.row ? 0 : -1;
    button.disabled = button.classList.contains("gap");
    button.setAttribute("aria-disabled", line.busy); // not disabled, which would lose the focus
  }
  context.replaceChildren(...squares);
  if (inside && focused) context.querySelector(`[data-distance="${focused}"]`)?.focus();
}

// which lines are lit

const shown = () => (state.held >= 0 ? state.held : state.active);

function light() {
  const place = shown();
  $("lines").classList.toggle("holding", state.held >= 0);
  for (const row of document.querySelectorAll(".line.lit, .line.candidate, .line.active, .line.held"))
    row.classList.remove("lit", "candidate", "active", "held");
  const line = state.lines[place];
  if (!line) return;
  line.row.classList.add(state.held >= 0 ? "held" : "active");
  if (!line.answer) return;
  for (const distance of candidates(place)) {
    const { row } = state.lines[place - distance];
    row.classList.add("candidate");
    if (line.answer.selected.includes(distance)) {
      row.classList.add("lit");
      row.style.setProperty("--strength", strength(line, distance));
    }
  }
}

function activate(place) {
  if (place === state.active) return;
  state.active = place;
  light();
}

function hold(place) {
  state.held = state.held === place ? -1 : place;
  light();
}

function moveTo(place) {
  if (!state.lines[place]) return;
  const before = state.row;
  state.row = place;
  for (const k of [before, place]) {
    const line = state.lines[k];
    if (!line) continue;
    line.row.tabIndex = k === place ? 0 : -1;
    for (const button of line.row.querySelectorAll("button")) button.tabIndex = line.row.tabIndex;
  }
}

// translating

async function translateAll() {
  let sentences;
  try {
    sentences = await sentencesOf($("text").value);
  } catch (error) {
    return complain(error.message);
  }
  if (!sentences.length) return complain("There is nothing to translate yet.");
  complain("");
  state.stop?.abort();
  const stop = state.stop = new AbortController();
  Object.assign(state, { active: -1, held: -1, row: 0, lines: sentences.map(makeLine) });
  $("lines").replaceChildren(...state.lines.map((line) => line.row));
  $("lines").setAttribute("aria-busy", "true");
  $("result").hidden = $("stop").hidden = false;
  progress();
  try {
    for await (const record of client.translate(sentences, null, state.model, stop.signal)) {
      const line = state.lines[record.place];
      line.answer = line.chosen = record;
      show(record.place);
      if (record.place === shown()) light();
      progress();
    }
    await translatePlain(stop);
  } catch (error) {
    if (error.name !== "AbortError") complain(error.message);
  } finally {
    if (state.stop === stop) {
      $("stop").hidden = true;
      $("lines").setAttribute("aria-busy", "false");
    }
  }
}

async function sentencesOf(content) {
  const name = markedName(content, state.name);
  if (!name) {
    state.text = parse(content, state.model.source.code, $("split").checked);
    return state.text.blocks.flatMap((block) => block.sentences);
  }
  const { format, sentences } = await client.readFile(name, content);
  state.text = { kind: format, name, content };
  return sentences;
}

async function translatePlain(stop) {
  const missing = state.lines.some((line) => line.plain === null && line.answer);
  if (!$("beside").checked || !missing || !state.model.scope) return;
  const sentences = state.lines.map((line) => line.text);
  for await (const record of client.translate(sentences, "none", state.model, stop.signal)) {
    state.lines[record.place].plain = record.translation;
    show(record.place);
  }
}

async function switchContext(place, distance) {
  const line = state.lines[place];
  if (!line?.answer || line.answer.kept || line.busy || !candidates(place).includes(distance)) return;
  const used = new Set(line.answer.selected);
  if (!used.delete(distance)) used.add(distance);
  line.busy = true;
  show(place);
  try {
    const sentences = state.lines.map((other) => other.text);
    const answer = await client.again(sentences, place, [...used].sort((a, b) => a - b), candidates(place).at(-1) ?? 0);
    const same = String(answer.selected) === String(line.chosen.selected);
    line.answer = same ? line.chosen : { ...answer, probabilities: line.chosen.probabilities, non: line.chosen.non };
    complain("");
    say(`Line ${place + 1} with ${answer.selected.length} lines of context: ${line.answer.translation}`);
  } catch (error) {
    complain(error.message);
  }
  line.busy = false;
  show(place);
  light();
}

function undo(place) {
  const line = state.lines[place];
  if (!line?.answer || line.busy) return;
  line.answer = line.chosen;
  show(place);
  light();
  line.row.focus();
}

// messages

function complain(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

function say(text) {
  $("status").textContent = text;
}

function progress() {
  const done = state.lines.filter((line) => line.answer).length;
  $("progress").max = state.lines.length;
  $("progress").value = done;
  say(`${done} of ${state.lines.length} lines`);
}

// what comes out

async function output() {
  const translations = state.lines.map((line) => line.answer?.translation ?? "");
  if (state.text.content !== undefined) return client.writeFile(state.text.name, state.text.content, translations);
  return write(state.text, translations, state.model.target.code);
}

async function copy() {
  let text;
  try {
    text = await output();
  } catch (error) {
    return complain(error.message);
  }
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch { // not allowed, or not over https: the old way
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    say(document.execCommand("copy") ? "Copied." : "The browser does not let pages copy.");
    area.remove();
  }
}

async function download() {
  const link = document.createElement("a");
  let text;
  try {
    text = await output();
  } catch (error) {
    return complain(error.message);
  }
  const stem = (state.name || "translation").replace(/\.[^.]*$/, "");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  link.download = `${stem}.${state.model.target.code}.${state.text.kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// what goes in

async function openFile(file) {
  if (!file) return;
  if (file.size > LARGEST_FILE) return complain(`${file.name} is larger than ${LARGEST_FILE / 1e6} MB.`);
  if (UNREAD.test(file.name)) {
    return complain(`${file.name} is not read by this page; dynctx translate on the command line reads more.`);
  }
  try {
    $("text").value = decode(await file.arrayBuffer());
  } catch {
    return complain(`${file.name} is not a text in UTF-8. Save it as UTF-8, or use dynctx translate --encoding.`);
  }
  state.name = file.name;
  await translateAll();
}

function listen() {
  $("translate").addEventListener("click", translateAll);
  $("stop").addEventListener("click", () => { state.stop?.abort(); say("Stopped."); });
  $("open").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => { openFile($("file").files[0]); $("file").value = ""; });
  $("example").addEventListener("click", () => { $("text").value = EXAMPLES[state.model.source.code]; state.name = ""; translateAll(); });
  $("text").addEventListener("input", () => { state.name = ""; });
  $("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translateAll(); });
  $("key").addEventListener("input", () => client.useKey($("key").value));
  $("copy").addEventListener("click", copy);
  $("download").addEventListener("click", download);
  $("beside").addEventListener("change", async () => {
    $("result").classList.toggle("alone", !$("beside").checked);
    state.lines.forEach((_, place) => show(place));
    try {
      if (state.stop && !state.stop.signal.aborted) await translatePlain(state.stop);
    } catch (error) {
      if (error.name !== "AbortError") complain(error.message);
    }
  });
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
      || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    setTheme(dark ? "light" : "dark");
  });
  listenToLines();
  listenToFiles();
}

const placeOf = (event) => Number(event.target.closest?.(".line")?.dataset.place ?? -1);

function listenToLines() {
  const lines = $("lines");
  lines.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch") activate(placeOf(event)); });
  lines.addEventListener("pointerleave", () => activate(lines.contains(document.activeElement) ? state.row : -1));
  lines.addEventListener("focusin", (event) => {
    const place = placeOf(event);
    moveTo(place);
    activate(place);
  });
  lines.addEventListener("focusout", (event) => { if (!lines.contains(event.relatedTarget)) activate(-1); });
  lines.addEventListener("click", (event) => {
    const place = placeOf(event);
    if (place < 0) return;
    const square = event.target.closest(".square");
    if (square) return switchContext(place, Number(square.dataset.distance));
    if (event.target.closest(".undo")) return undo(place);
    if (!getSelection().isCollapsed) return; // the user marks text
    const back = state.held - place;
    if (state.held >= 0 && candidates(state.held).includes(back)) switchContext(state.held, back);
    else hold(place);
  });
  lines.addEventListener("keydown", (event) => {
    const place = placeOf(event);
    if (place < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -place, End: state.lines.length - 1 - place }[event.key];
    if (step !== undefined) {
      state.lines[Math.min(Math.max(place + step, 0), state.lines.length - 1)].row.focus();
    } else if (/^[1-9]$/.test(event.key)) switchContext(place, candidates(place)[event.key - 1]);
    else if (event.key === "0") undo(place);
    else if (event.key === "Enter" && event.target.matches(".line")) hold(place);
    else if (event.key === "Escape") { state.held = -1; light(); }
    else return;
    event.preventDefault();
  });
}

function listenToFiles() {
  const holdsFile = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    $("drop").hidden = false;
  });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").hidden = true; });
  addEventListener("drop", (event) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    $("drop").hidden = true;
    openFile(event.dataTransfer.files[0]);
  });
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch { /* a browser that keeps nothing */ }
}

async function begin() {
  try {
    const theme = localStorage.getItem("theme");
    if (theme) document.documentElement.dataset.theme = theme;
  } catch { /* see above */ }
  listen();
  try {
    const model = state.model = await client.describe();
    $("languages").textContent = `${model.source.name} to ${model.target.name}`;
    $("languages").title = `model: ${model.kind}; context: ${model.selector}`;
    $("key-field").hidden = !model.key_required;
    $("example").hidden = !(model.source.code in EXAMPLES);
    $("result").style.setProperty("--strip", `${model.scope * 1.7 + 3}rem`);
    if (!model.scope) $("beside").checked = false;
    $("beside").closest("label").hidden = !model.scope;
    $("result").classList.toggle("alone", !$("beside").checked);
  } catch (error) {
    complain(error.message);
    $("translate").disabled = $("open").disabled = true;
  }
}

begin();
