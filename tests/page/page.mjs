// Tests of the web page in a real browser: node page.mjs BINARY
//
// Starts `levity serve http` with a model server of its own, and drives Chromium. Each test prints a
// line; the first failure ends the program.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import zlib from 'node:zlib';

import { axe, cleanUp, launch, modelOf, modelServer, open as openPage, pause, place, requests, runTests, start, startRun, stop, TOKEN } from './harness.mjs';
import { HOSTILE } from './hostile.mjs';

const [binary] = process.argv.slice(2);
const work = path.join(place, 'work');

/** The goal chooses the reply. */
async function reply({ goal, results, isClosed }, { text, call }) {
  if (goal.includes('hostile')) {
    const hostile = HOSTILE[Number(goal.match(/\d+/)[0])];
    if (!results) call('write_file', { path: 'hostile.txt', content: hostile.slice(0, 2000) });
    else text(hostile);
  } else if (goal.includes('write a long') && !results) {
    call('write_file', { path: 'long.txt', content: `${'a'.repeat(70_000)}END` });
  } else if (goal.includes('write') && !results) {
    call('write_file', { path: 'note.txt', content: 'first' });
  } else if (goal.includes('slow')) {
    for (let n = 0; n < 60 && !isClosed(); n += 1) {
      text(`word${n} `);
      await pause(50);
    }
  } else text(`## Done\n\nThe answer to **${goal.slice(0, 40)}**.`);
}

let model = null;
let server = null;
async function startLevity(port = 0) {
  server = await start(binary, ['serve', 'http', '--listen', `127.0.0.1:${port}`, '--journal', path.join(place, 'runs'),
    '--workspace', work, '--ask', 'write_file', '--model', modelOf(model)]);
  return server.origin;
}

let origin = '';
const open = (context, hash) => openPage(context, origin, hash);
const tests = [];
const test = (name, run) => tests.push([name, run]);

const state = (page, text) => page.waitForSelector(`.head .badge:has-text("${text}")`, { timeout: 20_000 });
const words = (text) => (text.match(/word\d+/g) || []).map((word) => Number(word.slice(4)));
function inOrder(numbers) {
  numbers.forEach((number, index) => assert.equal(number, index, `words are lost or repeated: ${numbers}`));
}

test('page asks for a token, and takes it from the address', async ({ context }) => {
  const page = await open(context, '');
  await page.fill('.login input', 'wrong');
  await page.click('.login button');
  await page.waitForSelector('.login .problem:has-text("does not accept")');
  const other = await open(context);
  await other.waitForSelector('.start');
  assert.ok(!other.url().includes(TOKEN), 'the token stays in the address');
  assert.deepEqual(other.problems, []);
});

test('all files of the page have at most 80 KB compressed', async ({ page }) => {
  await page.waitForSelector('.start');
  const loaded = await page.evaluate(() => performance.getEntriesByType('resource').map((one) => one.name));
  const files = [`${origin}/`, ...loaded.filter((url) => url.includes('/page/'))];
  assert.ok(files.length > 15, `${files}`);
  const sizes = await Promise.all(files.map(async (url) => zlib.gzipSync(Buffer.from(await (await fetch(url)).arrayBuffer())).length));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  assert.ok(total <= 80_000, `${total} bytes`);
});

test('run starts, streams its text and ends', async ({ page }) => {
  await startRun(page, 'slow please');
  await page.waitForSelector('.reply .body:has-text("word3")');
  assert.ok(!(await page.locator('.reply .body').last().textContent()).includes('word59'), 'the text did not stream');
  await state(page, 'answered');
  await page.waitForSelector('.run[aria-current] .badge:has-text("answered")');
  inOrder(words(await page.locator('.reply .body').first().textContent()));
});

test('reload in the middle loses and repeats nothing', async ({ page }) => {
  await startRun(page, 'slow reload');
  await page.waitForSelector('.reply .body:has-text("word5")');
  await page.reload();
  await page.waitForSelector('.reply .body:has-text("word59")', { timeout: 20_000 });
  inOrder(words(await page.locator('.reply .body').first().textContent()));
});

test('call is approved in the chat', async ({ page }) => {
  await startRun(page, 'write a note');
  await page.waitForSelector('.chat .ask');
  await page.click('.chat .ask >> text=Allow');
  await page.waitForSelector('.chat .ask', { state: 'detached' });
  await page.waitForSelector('.reply h4:has-text("Done")');
  assert.equal(fs.readFileSync(path.join(work, 'note.txt'), 'utf8'), 'first');
});

test('arguments are edited in the inbox', async ({ page }) => {
  await startRun(page, 'write another note');
  await page.waitForSelector('.top .waiting');
  await page.click('.top >> text=Questions');
  await page.click('dialog >> text=Edit arguments');
  await page.fill('dialog .editor', '{"path": "note.txt"');
  await page.click('dialog >> text=Allow with these arguments');
  await page.waitForSelector('dialog .problem:has-text("not valid JSON")');
  await page.fill('dialog .editor', '{"path": "note.txt", "content": "edited"}');
  await page.click('dialog >> text=Allow with these arguments');
  await page.waitForSelector('dialog .ask', { state: 'detached' });
  await page.click('dialog .close');
  await page.waitForSelector('.reply h4:has-text("Done")');
  assert.equal(fs.readFileSync(path.join(work, 'note.txt'), 'utf8'), 'edited');
});

test('edited arguments that break the schema are refused, and the question stays open', async ({ page }) => {
  await startRun(page, 'write and ask me');
  await page.waitForSelector('.chat .ask');
  await page.click('.chat .ask >> text=Edit arguments');
  await page.fill('.chat .editor', '{"path": 7}');
  await page.click('.chat .ask >> text=Allow with these arguments');
  await page.waitForSelector('.chat .ask .problem li:has-text("/path")');
  await page.waitForSelector('.chat .ask .problem li:has-text("content")');
  assert.equal(await page.locator('.chat .editor').inputValue(), '{"path": 7}');
  await page.fill('.chat .editor', '{"path": "note.txt", "content": "second"}');
  await page.keyboard.press('Control+Enter');
  await page.waitForSelector('.chat .ask', { state: 'detached' });
  await state(page, 'answered');
  assert.equal(fs.readFileSync(path.join(work, 'note.txt'), 'utf8'), 'second');
});

test('run is paused, resumed and cancelled', async ({ page }) => {
  page.on('dialog', (dialog) => dialog.accept());
  await startRun(page, 'write and wait');
  await page.waitForSelector('.chat .ask');
  await page.click('.controls >> text=Pause');
  await state(page, 'paused');
  await page.click('.controls >> text=Resume');
  await page.waitForSelector('.controls >> text=Pause');
  await page.click('.controls >> text=Cancel');
  await page.waitForSelector('.controls >> text=Delete run', { timeout: 20_000 });
});

test('scrubber shows the past, and a fork goes another way', async ({ page }) => {
  const first = await startRun(page, 'write for the fork');
  await page.waitForSelector('.chat .ask');
  await page.click('.chat .ask >> text=Allow');
  await page.waitForSelector('.reply h4:has-text("Done")');
  await page.waitForSelector('.controls >> text=Delete run');
  for (let n = 0; n < 40 && await page.locator('.reply h4').count(); n += 1) {
    await page.click('[aria-label="Previous event"]');
    await page.waitForTimeout(80);
  }
  assert.equal(await page.locator('.reply h4').count(), 0, 'the past has no answer');
  await page.click('.timeline >> text=Fork from here');
  await page.waitForFunction((id) => document.querySelector('.facts-line code')?.textContent !== id, first);
  await page.waitForSelector('.compare th:has-text("' + first + '")');
  if (await page.locator('.chat .ask').count()) await page.click('.chat .ask >> text=Allow');
  await page.waitForSelector('.reply h4:has-text("Done")', { timeout: 20_000 });
});

test('two pages show one run', async ({ context, page }) => {
  const id = await startRun(page, 'write for two');
  const other = await open(context, `#token=${TOKEN}&run=${id}`);
  await other.waitForSelector('.chat .ask');
  await page.click('.chat .ask >> text=Deny');
  await other.waitForSelector('.chat .ask', { state: 'detached' });
  await other.waitForSelector('.reply h4:has-text("Done")');
  assert.deepEqual(other.problems, []);
});

test('page reconnects after the server was killed, and the run continues', async ({ page }) => {
  await startRun(page, 'write after a crash');
  await page.waitForSelector('.chat .ask');
  await stop(server, 'SIGKILL');
  await page.waitForFunction(() => document.body.dataset.connection === 'offline');
  await startLevity(new URL(origin).port);
  await page.waitForFunction(() => document.body.dataset.connection === 'connected', null, { timeout: 20_000 });
  await page.waitForSelector('.chat .ask', { timeout: 20_000 });
  await page.click('.chat .ask >> text=Allow');
  await page.waitForSelector('.reply h4:has-text("Done")', { timeout: 20_000 });
  assert.equal(await page.locator('.i-call').count(), 1, 'the call is there once');
});

test(`${HOSTILE.length} hostile texts run nothing and load nothing`, async ({ page }) => {
  requests.length = 0;
  for (let n = 0; n < HOSTILE.length; n += 1) {
    await startRun(page, `hostile ${n} ${HOSTILE[n].replaceAll('\0', '').slice(0, 300)}`);
    // levity asks again for a reply that is empty.
    for (let asked = 0; asked < 4; asked += 1) {
      await page.waitForSelector('.chat .ask, .controls button:has-text("Delete run")', { timeout: 20_000 });
      if (!await page.locator('.chat .ask').count()) break;
      const id = await page.locator('.chat .ask').first().getAttribute('data-ask');
      await page.click('.chat .ask >> text=Allow');
      await page.waitForSelector(`.chat .ask[data-ask="${id}"]`, { state: 'detached' });
    }
    await page.waitForSelector('.controls >> text=Delete run', { timeout: 20_000 });
    if (n % 8 === 0) for (const tab of ['graph', 'log', 'summary', 'chat']) await page.click(`#tab-${tab}`);
    const shape = await page.evaluate(() => [window.broken, document.documentElement.scrollWidth <= innerWidth + 1, document.querySelector('.top h1').textContent]);
    assert.deepEqual(shape, [undefined, true, 'levity'], HOSTILE[n].slice(0, 100));
  }
  const foreign = requests.filter((url) => !url.startsWith(origin) && !url.startsWith('data:'));
  assert.deepEqual(foreign, []);
});

test('question of a replaced run is not approved by a tab that did not draw', async ({ page }) => {
  const send = (method, route, body) => fetch(`${origin}/v1/${route}`, { method,
    headers: { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body) });
  const begin = async (goal) => {
    await send('POST', 'runs', { id: 'swap', goal });
    for (;;) {
      const { asks } = await (await send('GET', 'runs/swap/asks')).json();
      if (asks.length) return asks[0].id;
      await pause(20);
    }
  };
  const first = await begin('write a note');
  await page.click('.top >> text=Questions');
  await page.waitForSelector(`dialog .ask[data-ask="${first}"]`);
  // A hidden tab gets no frames.
  await page.evaluate(() => {
    window.held = [];
    window.realFrames = window.requestAnimationFrame;
    window.requestAnimationFrame = (draw) => window.held.push(draw);
  });
  await send('POST', 'runs/swap/cancel', {});
  for (;;) if ((await send('DELETE', 'runs/swap')).status === 204) break;
  const second = await begin('write a long note');
  assert.notEqual(first, second);
  await page.click(`dialog .ask[data-ask="${first}"] >> text=Allow`);
  await page.waitForSelector('dialog .problem:has-text("read its questions again")');
  assert.ok(!fs.existsSync(path.join(work, 'long.txt')));
  await page.evaluate(() => {
    window.requestAnimationFrame = window.realFrames;
    window.held.forEach((draw) => draw());
  });
  await page.waitForSelector(`dialog .ask[data-ask="${first}"]`, { state: 'detached' });
  await page.click(`dialog .ask[data-ask="${second}"] >> text=Deny`);
  await page.waitForSelector('dialog .ask', { state: 'detached' });
});

test('long call is approved only complete and confirmed', async ({ page }) => {
  await startRun(page, 'write a long note');
  await page.waitForSelector('.chat .ask .confirm input');
  assert.ok((await page.locator('.chat .ask').textContent()).includes('aEND'));
  const isDisabled = () => page.locator('.chat .ask button').evaluateAll((all) => all.map((one) => [one.textContent, one.disabled]).filter(([, off]) => off).map(([text]) => text));
  assert.deepEqual(await isDisabled(), ['Allow', 'Edit arguments', 'Allow with these arguments']);
  await page.check('.chat .ask .confirm input');
  assert.deepEqual(await isDisabled(), []);
  await page.click('.chat .ask button:text-is("Allow")');
  await page.waitForSelector('.chat .ask', { state: 'detached' });
  await page.waitForSelector('.reply h4:has-text("Done")');
  assert.equal(fs.statSync(path.join(work, 'long.txt')).size, 70_003);
});

test('large integers are shown and edited without rounding', async ({ page }) => {
  const text = '{"account":9007199254740993}';
  const [loading, shown, sent] = await page.evaluate(async (text) => {
    const { askForm } = await import(new URL('page/asks.js', document.baseURI));
    const send = window.fetch;
    const list = `{"asks":[{"id":"x:1:0","run":"x","reason":"","call":{"name":"pay","args":${text}},"args_text":${JSON.stringify(text)}}]}`;
    window.fetch = async () => new Response(list);
    let sent = null;
    const form = askForm({ id: 'x:1:0', run: 'x', reason: '', call: { name: 'pay', args: JSON.parse(text) } }, (ask, decision) => { sent = decision; });
    const button = (text) => [...form.querySelectorAll('button')].find((one) => one.textContent === text);
    const loading = button('Allow').disabled;
    await new Promise((resume) => setTimeout(resume, 100));
    window.fetch = send;
    const shown = form.textContent;
    button('Edit arguments').click();
    button('Allow with these arguments').click();
    return [loading, shown, sent];
  }, text);
  assert.deepEqual([loading, sent], [true, { decision: 'edit', argsText: text }]);
  assert.ok(shown.includes(text), shown);
});

test('Arguments of a call show characters that have no width or change the direction', async ({ page }) => {
  const shown = await page.evaluate(async () => {
    const { argumentsOf } = await import(new URL('page/asks.js', document.baseURI));
    const args = { 'na\u200bme': 'cp a\u202etxt.b \u{e0041}\u00ad\n\tnext é 漢 🌊', command: 'rm\u00a0x\u2066' };
    return argumentsOf(args).textContent;
  });
  for (const part of ['na\\u{200b}me', 'cp a\\u{202e}txt.b \\u{e0041}\\u{ad}\n\tnext é 漢 🌊', 'rm\\u{a0}x\\u{2066}']) assert.ok(shown.includes(part), JSON.stringify(shown));
});

test('Markdown of any text is formatted in linear time', async ({ page }) => {
  const times = await page.evaluate(async () => {
    const { markdown, showMarkdown } = await import(new URL('page/markdown.js', document.baseURI));
    const units = ['`', '``', '` ', '*', '**', '* ', '*a', '**a', '[', ']', '[a](', '![', '[](x ', '](', '(', 'http://', 'http://.', 'https://a ', '<http://', '#', '# ',
      '-', '- ', ' - ', '- a\n  - b\n', '1. ', '1.', '>', '> ', '|', '|-', '| - |\n', '|-|\n', 'a|b\n-|-\n', '```\n', '~~~', '\n', ' ', '\t', '\u2028', '# \u2028', '_', '\\', '`*[', '*[`](', '**`', '\r\n', '---', '- - '];
    const texts = units.map((unit) => unit.repeat(Math.ceil(65_536 / unit.length)));
    // Each of these made a regular expression go back over the whole text.
    texts.push(`# ${' '.repeat(65_000)}\u2028x`, `${'`'.repeat(30_000)}x${'`'.repeat(29_999)}`, `*${'a'.repeat(65_000)}`);
    const times = texts.map((text) => {
      const start = performance.now();
      markdown(text);
      return [text.slice(0, 12), Math.round(performance.now() - start)];
    });
    // A growing text costs no more than a few times as much as the whole.
    const parent = document.createElement('div');
    const long = 'A paragraph with `code` and **bold**.\n\n'.repeat(1500);
    const start = performance.now();
    for (let end = 0; end <= long.length; end += 200) showMarkdown(parent, long.slice(0, end));
    showMarkdown(parent, long);
    times.push(['growing', Math.round(performance.now() - start)]);
    return [times, parent.childElementCount, parent.querySelectorAll('strong').length];
  });
  assert.deepEqual(times.slice(1), [1500, 1500]);
  for (const [text, time] of times[0]) assert.ok(time < 1000, `${time} ms for ${JSON.stringify(text)}`);
});

test('Markdown is formatted', async ({ page }) => {
  const shown = await page.evaluate(async () => {
    const { markdown } = await import(new URL('page/markdown.js', document.baseURI));
    const html = (text) => markdown(text).map((node) => node.outerHTML ?? node).join('').replaceAll(' dir="auto"', '');
    return ['# A *b*', '**a `b`** *c* 2*3*4', '``a ` b`` `x', '- a\n- b\n  1. c\n- d', '> a\n> b', '```js\nlet a = `1`;\n```', '[a](https://x.y/z) https://x.y/z. [a](javascript:1)',
      '![a](https://x.y/z.png)', 'a|b\n-|-\n1|2', 'a\nb\n\nc', '* * *'].map(html);
  });
  assert.deepEqual(shown, [
    '<h3>A <em>b</em></h3>', '<p><strong>a <code>b</code></strong> <em>c</em> 2*3*4</p>', '<p><code>a ` b</code> `x</p>', '<ul><li>a</li><li>b<ol><li>c</li></ol></li><li>d</li></ul>',
    '<blockquote>a\nb</blockquote>', '<pre tabindex="0"><code>let a = `1`;</code></pre>',
    '<p><a href="https://x.y/z" target="_blank" rel="noopener noreferrer nofollow">a</a> <a href="https://x.y/z" target="_blank" rel="noopener noreferrer nofollow">https://x.y/z</a>. a (javascript:1)</p>',
    '<p>a</p>', '<div class="wide" tabindex="0" role="group"><table><thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table></div>',
    '<p>a\nb</p><p>c</p>', '<hr>']);
});

test('axe finds no violation, light and dark, in each view', async ({ browser }) => {
  for (const colorScheme of ['light', 'dark']) {
    const context = await browser.newContext({ bypassCSP: true, colorScheme, viewport: { width: 1280, height: 800 } });
    const page = await open(context);
    await startRun(page, 'write for axe');
    await page.waitForSelector('.chat .ask');
    const check = async (view) => {
      await page.evaluate(axe());
      const found = await page.evaluate(() => globalThis.axe.run());
      assert.deepEqual(found.violations.map((one) => `${one.id}: ${one.nodes[0].html}`), [], `${colorScheme}, ${view}`);
    };
    await page.evaluate(() => document.querySelectorAll('details').forEach((one) => { one.open = true; }));
    for (const tab of ['chat', 'graph', 'log', 'files', 'summary']) {
      await page.click(`#tab-${tab}`);
      await page.waitForTimeout(200);
      await check(tab);
    }
    await page.click('.top >> text=Questions');
    await check('inbox');
    await page.click('dialog >> text=Deny');
    await context.close();
  }
});

test('everything works with the keyboard alone', async ({ page }) => {
  await page.locator('.start textarea').focus();
  await page.keyboard.type('write by keyboard');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.chat .ask');
  await page.locator('#tab-chat').focus();
  await page.keyboard.press('ArrowRight');
  await page.waitForSelector('#tab-graph[aria-selected=true]');
  await page.keyboard.press('ArrowLeft');
  await page.waitForSelector('#tab-chat[aria-selected=true]');
  for (let n = 0; n < 60; n += 1) {
    const text = await page.evaluate(() => document.activeElement.textContent);
    if (text === 'Allow') break;
    await page.keyboard.press('Tab');
  }
  await page.keyboard.press('Enter');
  await page.waitForSelector('.reply h4:has-text("Done")');
});

async function main() {
  fs.mkdirSync(work);
  model = await modelServer(reply);
  origin = await startLevity();
  const browser = await launch();
  try {
    await runTests(tests, browser, (context) => open(context));
  } finally {
    await browser.close();
    await stop(server);
    model.closeAllConnections();
    model.close();
    await cleanUp();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
