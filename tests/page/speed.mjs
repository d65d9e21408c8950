// Measures the web page with large runs: node speed.mjs BINARY [STEPS] [short]
//
// Starts `levity serve http --offer team` with a model server that writes a plan of 1,000 steps, and
// reads Chromium's own trace while the run is in progress. It prints one line for each figure, and
// fails if one is above its limit. Set LEVITY_PAGE_SLOW to a factor for slow or busy machines.
//
// With `short`, it traces less, and times above their limits are printed only: they depend on what
// else the machine does. Counts, such as the redrawn rows and the memory of scripts, are checked.
//
// LEVITY_PAGE_TRACE names the beginning of the files for the traces; there are none otherwise.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';

import { cleanUp, launch, modelOf, modelServer, open, pause, place, start, startRun, stop, TOKEN } from './harness.mjs';

const [binary, wanted = '1000', form] = process.argv.slice(2);
const isShort = form === 'short';
const steps = Number(wanted);
const slow = Number(process.env.LEVITY_PAGE_SLOW || 1);
const LAYERS = 25;

/** A plan in layers; each step reads what two steps of the layer before wrote. */
function planOf(count) {
  const width = Math.max(1, Math.ceil(count / LAYERS));
  const name = (at) => `s${at}`;
  return { steps: Array.from({ length: count }, (_, at) => {
    const before = at - width;
    const last = at === count - 1;
    const reads = last ? [name(Math.max(0, at - 1))] : before >= 0 ? [...new Set([before, Math.max(0, before - (at % width ? 1 : 0))])].map(name) : [];
    return { id: name(at), agent: 'Thinker', description: `Step ${at}`, prompt: `Think about ${at}.`, reads, writes: [name(at)] };
  }) };
}

async function reply({ messages, goal, system }, { text }) {
  const isPlanner = /planner/i.test(system.slice(0, 400));
  if (isPlanner) return text(JSON.stringify(planOf(steps)));
  const step = goal.match(/step `(s\d+)`/)?.[1] || 's0';
  for (const word of ['{"', step, '":"', 'a ', 'short ', 'thought"}']) {
    text(word);
    await pause(60);
  }
  return undefined;
}

/** Returns the value below which this part of all values is. */
function quantile(values, part) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;
}

const failures = [];
function figure(name, value, unit, limit) {
  const isChecked = limit !== undefined && !(isShort && unit === 'ms');
  const isGood = !isChecked || value <= limit * slow;
  if (!isGood) failures.push(name);
  const goal = limit === undefined ? '' : ` (${isChecked ? 'limit' : 'goal'} ${limit})`;
  console.log(`${isGood ? '' : 'ABOVE THE LIMIT '}${name}: ${Math.round(value * 10) / 10} ${unit}${goal}`);
}

/**
 * Marks each piece of the stream that contains a view in the browser's trace, with the ages of the
 * events in it. The page itself contains nothing for the measurement.
 */
function markPieces() {
  const original = window.fetch;
  let last = 0;
  window.fetch = async (...given) => {
    const answer = await original(...given);
    if (!String(given[0]).includes('v1/stream')) return answer;
    const decoder = new TextDecoder();
    const marked = answer.body.pipeThrough(new TransformStream({ transform(piece, out) {
      const text = decoder.decode(piece, { stream: true });
      if (text.includes('"changes":')) {
        const now = performance.timeOrigin + performance.now();
        const times = [...new Set([...text.matchAll(/"(?:at|updated|started|ended)":(\d{13})/g)].map((match) => Number(match[1])))];
        performance.mark('piece', { detail: times.filter((time) => time > last).map((time) => now - time) });
        last = Math.max(last, ...times);
      }
      out.enqueue(piece);
    } }));
    return new Response(marked, { status: answer.status, headers: answer.headers });
  };
}

/** Counts the rows and boxes that the page creates, and the times that it draws all edges. */
function countDraws() {
  const counts = { rows: 0, boxes: 0, redraws: 0 };
  const known = new WeakSet();
  const add = (node) => {
    if (known.has(node) || !node.classList) return;
    known.add(node);
    if (node.classList.contains('item')) counts.rows += 1;
    else if (node.classList.contains('box')) counts.boxes += 1;
  };
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach(add))).observe(document, { childList: true, subtree: true });
  const { stroke } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.stroke = function count(...given) {
    counts.redraws += 1;
    return stroke.apply(this, given);
  };
  window.drawCounts = counts;
}

/** Reads a trace: the time from each event to the frame that shows it, and the length of tasks. */
function read(trace) {
  const { traceEvents } = JSON.parse(trace);
  const marks = traceEvents.filter((one) => one.name === 'piece' && one.cat.includes('user_timing'));
  if (!marks.length) return { delays: [], parts: {}, busy: [], updates: 0, longest: 0 };
  const { pid, tid } = marks[0];
  const own = traceEvents.filter((one) => one.pid === pid);
  const main = own.filter((one) => one.tid === tid);
  const shown = new Map(own.filter((one) => one.name === 'AnimationFrame::Presentation').map((one) => [one.args.id, one.ts]));
  const frames = own.filter((one) => one.name === 'AnimationFrame' && one.ph === 'b').sort((a, b) => a.ts - b.ts);
  const fired = main.filter((one) => one.name === 'FireAnimationFrame').sort((a, b) => a.ts - b.ts);
  const delays = [];
  const [arrival, waiting, painting] = [[], [], []];
  for (const mark of marks) {
    const draw = fired.find((one) => one.ts >= mark.ts);
    const frame = draw && frames.findLast((one) => one.ts <= draw.ts);
    const at = frame && shown.get(frame.args.animation_frame_timing_info?.id ?? frame.args.id);
    const ages = JSON.parse(mark.args?.data?.detail ?? '[]');
    if (!(at > mark.ts)) continue;
    delays.push(...ages.map((age) => age + (at - mark.ts) / 1000));
    arrival.push(...ages);
    waiting.push((draw.ts - mark.ts) / 1000);
    painting.push((at - draw.ts) / 1000);
  }
  // The tasks that read a piece or draw a frame, and not those that have nothing to do with updates.
  // Their CPU time does not depend on what else the machine does.
  const tasks = main.filter((one) => one.ph === 'X' && /RunTask$/.test(one.name));
  const works = main.filter((one) => one.name === 'FireAnimationFrame' || one.name === 'piece');
  const busy = tasks.filter((task) => works.some((one) => one.ts >= task.ts && one.ts <= task.ts + task.dur)).map((task) => (task.tdur ?? task.dur) / 1000);
  return { delays, parts: { 'event to page': arrival, 'page to frame': waiting, 'frame to pixel': painting }, busy, updates: marks.length, longest: Math.max(0, ...tasks.map((task) => (task.tdur ?? task.dur) / 1000)) };
}

let traces = 0;
async function trace(browser, page, time) {
  await browser.startTracing(page, { categories: ['devtools.timeline', 'devtools.timeline.frame', 'disabled-by-default-devtools.timeline.frame', 'blink.user_timing', 'toplevel'] });
  await pause(time);
  const text = (await browser.stopTracing()).toString();
  if (process.env.LEVITY_PAGE_TRACE) fs.writeFileSync(`${process.env.LEVITY_PAGE_TRACE}-${traces += 1}.json`, text);
  return text;
}

async function heap(page) {
  const session = await page.context().newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  const { nodes } = await session.send('Memory.getDOMCounters');
  await session.detach();
  return [usedSize / 1e6, nodes];
}

async function main() {
  const work = path.join(place, 'work');
  fs.mkdirSync(work);
  const model = await modelServer(reply);
  const server = await start(binary, ['serve', 'http', '--offer', 'team', '--listen', '127.0.0.1:0', '--workspace', work,
    '--limit-calls', String(steps * 3), '--max-parallel', '16', '--model', modelOf(model)]);
  const browser = await launch();
  try {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    await context.addInitScript(markPieces);
    if (isShort) await context.addInitScript(countDraws);
    const page = await open(context, server.origin);
    const begun = Date.now();
    const id = await startRun(page, `Do ${steps} steps.`);
    await page.click('#tab-graph');
    await page.waitForSelector('.box.s-running', { timeout: 60_000 });
    const part = Number(process.env.LEVITY_PAGE_TIME || (isShort ? 1500 : 6000));
    const start = isShort && await page.evaluate(() => ({ ...window.drawCounts }));
    for (const [view, prepare] of [['graph', () => page.click('text=Show all')], ['near graph', async () => { for (let n = 0; n < 8; n += 1) await page.click('[aria-label="Zoom in"]'); }],
      ['chat', () => page.click('#tab-chat')]]) {
      await prepare();
      const found = read(await trace(browser, page, part));
      figure(`${view}: updates traced`, found.updates, '');
      figure(`${view}: events traced`, found.delays.length, '');
      figure(`${view}: event to pixel, median`, quantile(found.delays, 0.5), 'ms');
      figure(`${view}: event to pixel, p95`, quantile(found.delays, 0.95), 'ms', 50);
      for (const [part, times] of Object.entries(found.parts)) {
        figure(`${view}: ${part}, median`, quantile(times, 0.5), 'ms');
        figure(`${view}: ${part}, p95`, quantile(times, 0.95), 'ms');
      }
      figure(`${view}: task of an update, p95`, quantile(found.busy, 0.95), 'ms', 16);
      figure(`${view}: longest task`, found.longest, 'ms');
    }
    if (isShort) {
      const { rows, boxes, redraws } = await page.evaluate(() => window.drawCounts);
      figure('chat: created rows', rows, '', steps + 60);
      figure('graph: created boxes', boxes - start.boxes, '', 2 * steps);
      // One for each change of the zoom, and some for the whole graph.
      figure('graph: drawings of all edges', redraws - start.redraws, '', 20);
    }
    const [early] = await heap(page);
    await page.click('#tab-graph');
    await page.waitForSelector('.head .badge.s-answered', { timeout: 600_000 });
    const events = Number((await page.locator('.timeline output').textContent()).match(/of (\d+)/)[1]);
    figure('events of the run', events, '');
    figure('time of the run', (Date.now() - begun) / 1000, 's');
    const [late, nodes] = await heap(page);
    figure('memory of scripts during the run', early, 'MB');
    figure('memory of scripts at the end', late, 'MB', 64);
    figure('nodes of the document at the end', nodes, '', 20_000 / slow);
    assert.deepEqual(page.problems, []);
    await page.close();

    const times = [];
    for (let n = 0; n < 5; n += 1) {
      const fresh = await open(context, server.origin, `#token=${TOKEN}&run=${id}&tab=graph`);
      await fresh.waitForSelector('.box');
      times.push(await fresh.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now())))))); 
      const shown = await fresh.locator('.counts').textContent();
      assert.match(shown.replaceAll(',', ''), new RegExp(`${steps + 1} completed`));
      await fresh.close();
    }
    figure(`first paint of ${steps} steps, median of 5`, quantile(times, 0.5), 'ms', steps <= 1000 ? 1000 : undefined);
  } finally {
    await browser.close();
    await stop(server);
    model.closeAllConnections();
    model.close();
    await cleanUp();
  }
  assert.deepEqual(failures, []);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
