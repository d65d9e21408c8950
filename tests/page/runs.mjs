// Tests of the page with other kinds of runs and servers: node runs.mjs BINARY
//
// Teams and swarms, images and thinking, costs and sessions, runs that crashed, a proxy with a path,
// and the login of `levity ui`.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { axe, cleanUp, launch, modelOf, modelServer, open as openPage, pause, place, runTests, start, startRun, stop, TOKEN } from './harness.mjs';

const [binary] = process.argv.slice(2);
const work = path.join(place, 'work');
const journal = path.join(place, 'runs');

/** A plan with a step that runs once for each port, and one that runs a program. */
const PLAN = { steps: [
  { id: 'list', agent: 'Thinker', prompt: 'List the ports.', reads: [], writes: ['ports'] },
  { id: 'tide', agent: 'Thinker', prompt: 'Find the tide.', map: { over: 'ports', as: 'port' }, reads: [], writes: ['tides'] },
  { id: 'sum', agent: 'Coder', prompt: 'Add the heights.', reads: ['tides'], writes: ['total'] },
] };

const DELEGATIONS = { delegations: [
  { id: 'a', worker: 'coder', task: 'write a note for the swarm', depends_on: [], expected: 'a file' },
  { id: 'b', worker: 'researcher', task: 'find out more', depends_on: [], expected: 'facts' },
] };

/** Returns the reply of an agent of a team or of a swarm: a text, or a call as a list. */
function groupReply({ goal, system, results, tools }) {
  if (/^# Planner/.test(system)) return JSON.stringify(PLAN);
  if (goal.includes('List the ports.')) return '{"ports": ["Dover", "Brest", "Oslo"]}';
  if (goal.includes('Find the tide.')) return '{"tides": 2}';
  if (goal.includes('Add the heights.')) return results || !tools.includes('run_python') ? '{"total": 6}' : ['run_python', { code: 'sum([2, 2, 2])' }];
  if (/^You lead a team/.test(system)) return goal.includes('# What is wanted\nA plan') ? JSON.stringify(DELEGATIONS) : 'The note is written.';
  if (goal.includes('for the swarm') && !results) return ['write_file', { path: 'swarm.txt', content: 'from a worker' }];
  return null;
}

async function reply(request, { text, think, call }) {
  const known = groupReply(request);
  if (known) return Array.isArray(known) ? call(...known) : text(known);
  const { goal, results, isClosed } = request;
  if (goal.includes('think')) {
    for (const word of ['First ', 'I ', 'compare.']) think(word);
    return text('It is *four*.');
  }
  if (goal.includes('many calls') && results < 90) {
    for (let n = results; n < results + 10; n += 1) call('write_file', { path: `calls/${n}.txt`, content: `${n}` });
    return undefined;
  }
  if (goal.includes('draw') && !results) return call('mcp_media_draw', {});
  if (goal.includes('artifacts') && !results) {
    call('write_file', { path: 'report.md', content: '# Tides\n\n| port | height |\n|---|---|\n| Dover | 6.8 |\n' });
    call('write_file', { path: 'data.json', content: '{"a":[1,2]}' });
    call('write_file', { path: 'table.csv', content: 'port,height\n"Dover, UK",6.8\n' });
    call('write_file', { path: 'evil.html', content: '<script>window.broken=1</script>' });
    return call('write_file', { path: 'evil.svg', content: '<svg xmlns="http://www.w3.org/2000/svg" onload="window.broken=1"/>' });
  }
  if (goal.includes('crash') && !results) {
    call('write_file', { path: 'crashed.txt', content: 'before' });
    return undefined;
  }
  if (goal.includes('crash')) {
    // The first process is killed while it waits; the second one gets the answer.
    for (let n = 0; n < 600 && !isClosed() && !fs.existsSync(path.join(place, 'go')); n += 1) await pause(50);
  }
  return text(`Done: ${goal.slice(0, 60)}`);
}

let model = null;
let main = null;
const tests = [];
const test = (name, run) => tests.push([name, run]);
const state = (page, text) => page.waitForSelector(`.head .badge:has-text("${text}")`, { timeout: 20_000 });

/** Runs a test with another server. */
async function withServer(args, env, run) {
  const server = await start(binary, args, env);
  try {
    return await run(server);
  } finally {
    await stop(server);
  }
}

test('thinking is folded', async ({ page }) => {
  await startRun(page, 'think about it');
  await page.waitForSelector('.reply em:has-text("four")');
  assert.equal(await page.locator('.thought[open]').count(), 0);
  await page.click('.thought summary');
  await page.waitForSelector('.thought .body:has-text("First I compare.")');
});

test('images of tools are shown', async ({ page }) => {
  await startRun(page, 'draw a square');
  await page.waitForSelector('.i-media img');
  assert.equal(await page.locator('.i-media img').evaluate((image) => image.naturalWidth), 48);
});

test('card of a call has arguments, result, files and duration', async ({ page }) => {
  await startRun(page, 'write artifacts');
  await state(page, 'answered');
  const card = page.locator('.call').first();
  assert.match(await card.locator('summary').textContent(), /write_file.*report\.md.*done.*(ms|s)/);
  await card.locator('summary').click();
  await card.locator('.args:has-text("Tides")').waitFor();
  assert.ok((await card.locator('.result').textContent()).length > 0);
  await page.waitForSelector('.changes:has-text("report.md")');
});

test('chat shows the newest items, and older ones when a person scrolls up', async ({ page }) => {
  await startRun(page, 'make many calls');
  await state(page, 'answered');
  await page.waitForSelector('.i-answer, .i-text');
  const first = () => page.locator('.chat .call .brief').first().textContent();
  const count = await page.locator('.chat .items > .item').count();
  assert.ok(count >= 50 && count <= 75, `${count} items`);
  const isAtEnd = () => page.evaluate(() => {
    const chat = document.querySelector('.chat');
    return chat.scrollHeight - chat.scrollTop - chat.clientHeight < 2;
  });
  assert.ok(await isAtEnd());
  const before = await first();
  for (let n = 0; n < 20 && await first() !== 'calls/0.txt'; n += 1) {
    await page.evaluate(() => { document.querySelector('.chat').scrollTop = 0; });
    await page.waitForTimeout(100);
  }
  assert.notEqual(before, 'calls/0.txt');
  assert.equal(await first(), 'calls/0.txt');
  assert.ok(await page.locator('.chat .items > .item').count() > 90);
  assert.ok(!await isAtEnd(), 'the chat stays where the person scrolled to');
  await page.click('.newest');
  await page.waitForTimeout(100);
  assert.ok(await isAtEnd());
});

test('artifacts have a preview that runs nothing', async ({ page }) => {
  await startRun(page, 'write artifacts again');
  await state(page, 'answered');
  await page.click('#tab-files');
  const open = (name) => page.click(`.file:has-text("${name}")`);
  await open('report.md');
  await page.waitForSelector('.preview td, .preview .problem');
  if (await page.locator('.preview .problem').count()) {
    // A server without access to the workspace: the preview is tested with the same answers.
    const types = { md: 'text/markdown', json: 'application/json', csv: 'text/csv', html: 'application/octet-stream', svg: 'application/octet-stream' };
    await page.route(/artifacts\/content/, (route) => {
      const name = new URL(route.request().url()).searchParams.get('path');
      route.fulfill({ body: fs.readFileSync(path.join(work, name)), contentType: types[name.split('.')[1]] });
    });
    await open('report.md');
  }
  await page.waitForSelector('.preview td:has-text("Dover")');
  await open('data.json');
  await page.waitForSelector('.preview pre:has-text("a")');
  await open('table.csv');
  await page.waitForSelector('.preview td:has-text("Dover, UK")');
  for (const name of ['evil.html', 'evil.svg']) {
    await open(name);
    await page.waitForSelector(`.preview h3:has-text("${name}")`);
    await page.waitForSelector('.preview .content:not(:has-text("Loading"))');
  }
  assert.equal(await page.evaluate(() => window.broken), undefined);
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('.preview >> text=Download')]);
  assert.equal(download.suggestedFilename(), 'evil.svg');
});

test('address shows the run: reload and the back button work', async ({ page }) => {
  const first = await startRun(page, 'number one');
  await state(page, 'answered');
  const second = await startRun(page, 'number two');
  await state(page, 'answered');
  await page.click('#tab-log');
  await page.reload();
  await page.waitForSelector(`.facts-line code:text-is("${second}")`);
  await page.waitForSelector('#tab-log[aria-selected=true]');
  await page.goBack();
  await page.waitForSelector('#tab-chat[aria-selected=true]');
  await page.goBack();
  await page.waitForSelector(`.facts-line code:text-is("${first}")`);
  await page.goForward();
  await page.waitForSelector(`.facts-line code:text-is("${second}")`);
  await page.click(`.run[href="#run=${first}"]`);
  await page.waitForSelector(`.facts-line code:text-is("${first}")`);
  await page.evaluate(() => { location.hash = '#run=no-such-run'; });
  await page.waitForSelector('main > .empty:has-text("no-such-run")');
  await page.waitForFunction(() => document.body.dataset.connection === 'connected');
});

test('list of runs is filtered', async ({ page }) => {
  await startRun(page, 'a needle in the list');
  await state(page, 'answered');
  await page.fill('.filters input', 'needle');
  await page.waitForFunction(() => document.querySelectorAll('.side .run').length === 1);
  await page.selectOption('.filters select >> nth=0', 'failed');
  await page.waitForSelector('.side .empty:has-text("No match")');
  await page.selectOption('.filters select >> nth=0', 'answered');
  await page.waitForSelector('.side .run .badge:has-text("answered")');
});

test('costs are shown by day, model and agent', async ({ page }) => {
  await startRun(page, 'cost something');
  await state(page, 'answered');
  await page.click('.places >> text=Costs');
  await page.waitForSelector('.place h3:has-text("By model")');
  assert.match(await page.locator('.place:not([hidden]) .card').nth(1).textContent(), /Tokens[\d,]+/);
  await page.reload();
  await page.waitForSelector('.place h3:has-text("By day")');
  await page.evaluate(axe());
  assert.deepEqual((await page.evaluate(() => globalThis.axe.run())).violations.map((one) => one.id), []);
});

test('conversations are listed, read and continued', async ({ page }) => {
  await page.click('.places >> text=Sessions');
  await page.waitForSelector('.sessions >> text=Nothing is stored yet.');
  await page.evaluate((token) => fetch('v1/runs', { method: 'POST', headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ goal: 'remember me', conversation: 'talk' }) }), TOKEN);
  await page.waitForSelector('.side .run:has-text("remember me") .badge:has-text("answered")');
  await page.click('.segments >> text=Conversations');
  await page.click('.sessions .run:has-text("talk")');
  await page.waitForSelector('.detail .i-user:has-text("remember me")');
  await page.waitForSelector('.detail .reply:has-text("Done: remember me")');
  await page.evaluate(axe());
  assert.deepEqual((await page.evaluate(() => globalThis.axe.run())).violations.map((one) => one.id), []);
  await page.click('.detail >> text=Continue');
  await page.waitForSelector('.thread-of:has-text("talk")');
  await startRun(page, 'and me');
  await state(page, 'answered');
  await page.click('.places >> text=Sessions');
  await page.click('.sessions .run:has-text("talk")');
  await page.waitForSelector('.detail .i-user:has-text("and me")');
  await page.click('.segments >> text=Plans');
  await page.waitForSelector('.sessions >> text=Start it with --sessions');
});

test('model is chosen at the start and at the fork', async ({ page }) => {
  await startRun(page, 'with a model');
  await state(page, 'answered');
  if (await page.locator('.start select').isHidden()) return; // a server with one model
  const other = await page.locator('.start select option').last().textContent();
  await page.selectOption('.start select', other);
  const id = await startRun(page, 'with the other model');
  await state(page, 'answered');
  await page.click('.fork summary');
  await page.selectOption('.popup select', { index: 1 });
  await page.fill('.popup textarea', 'Be brief.');
  await page.click('.timeline >> text=Fork from here');
  await page.waitForSelector(`.compare th:has-text("${id}")`);
  await state(page, 'answered');
});

test('comparison shows two runs side by side', async ({ page }) => {
  const first = await startRun(page, 'compare one');
  await state(page, 'answered');
  await startRun(page, 'compare two');
  await state(page, 'answered');
  await page.click('.controls >> text=Compare with');
  await page.selectOption('.compare select', first);
  await page.waitForSelector('.compare tbody th:has-text("Duration")');
  const answers = await page.locator('.answers article').allTextContents();
  assert.match(answers.join('\n'), /compare two[\s\S]*compare one/);
  assert.deepEqual(await page.locator('.compare tbody tr:first-child .badge').allTextContents(), ['answered', 'answered']);
  await page.reload();
  await page.waitForSelector('.answers article');
  await page.click('.compare .close');
  await page.waitForSelector('.compare', { state: 'hidden' });
});

test('run of a process that was killed is interrupted, and continues here', async ({ page }) => {
  const args = ['run', '--journal', journal, '--workspace', work, '--id', 'crashed', '--model', modelOf(model), 'crash in the middle'];
  const child = spawn(binary, args, { env: { PATH: process.env.PATH, HOME: place }, stdio: 'ignore' });
  const file = path.join(work, 'crashed.txt');
  for (let n = 0; n < 200 && !fs.existsSync(file); n += 1) await pause(50);
  assert.ok(fs.existsSync(file), 'the run made its call');
  await pause(300);
  child.kill('SIGKILL');
  await page.click('.side .run:has-text("crash")');
  await state(page, 'interrupted');
  await page.waitForSelector('.hint:has-text("Resume the run")');
  // The past of a crashed run can be seen.
  await page.focus('.timeline input[type=range]');
  await page.keyboard.press('Home');
  await page.waitForSelector('.timeline output:has-text("Event 1 of")');
  await page.click('.timeline .live');
  fs.writeFileSync(path.join(place, 'go'), '');
  await page.click('.controls >> text=Resume');
  await state(page, 'answered');
  await page.waitForSelector('.side .run[aria-current] .badge:has-text("answered")');
  assert.equal(await page.locator('.i-call').count(), 1, 'the call was made once');
});

test('team is shown as a graph, and its steps fold into the chat', async ({ context }) => {
  await withServer(['serve', 'http', '--offer', 'team', '--listen', '127.0.0.1:0', '--journal', path.join(place, 'team')], {}, async (server) => {
    const page = await openPage(context, server.origin);
    await startRun(page, 'Walk by the sea');
    await state(page, 'answered');
    await page.waitForSelector('.chat .call:has-text("answer") .badge:has-text("done")');
    await page.click('.chat .call:has-text("recall") > summary');
    await page.waitForSelector('.chat .call .work .item');
    await page.click('#tab-graph');
    await page.waitForSelector('.box.s-failed:has-text("second")');
    await page.waitForSelector('.box.s-completed:has-text("recall")');
    await page.fill('.graph input[type=search]', 'recall');
    await page.waitForSelector('.details h3:has-text("recall")');
    await page.waitForSelector('.details .label:has-text("Prompt")');
    await page.waitForSelector('.details .label:has-text("Output")');
    await page.waitForSelector('.details .label:has-text("Inputs")');
    await page.click('.details >> text=Show in the chat');
    await page.waitForSelector('.only:has-text("Only recall")');
    await page.click('.only >> text=Show everything');
    await page.click('#tab-graph');
    await page.click('text=Fold finished layers');
    await page.waitForSelector('.box.k-folded');
    await page.focus('.box.k-folded');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.box.k-folded', { state: 'detached' });
    await page.focus('.box[data-node$="/first"]');
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction(() => document.activeElement.dataset.node?.endsWith('/recall'));
    await page.keyboard.press('Enter');
    await page.waitForSelector('.details:focus h3:has-text("recall")');
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => document.activeElement.dataset.node?.endsWith('/recall'));
    await page.click('#tab-summary');
    await page.waitForSelector('.summary td:has-text("recall")');
    assert.deepEqual(page.problems, []);
    await page.close();
  });
});

test('swarm is shown with its workers', async ({ context }) => {
  await withServer(['serve', 'http', '--offer', 'swarm', '--listen', '127.0.0.1:0', '--journal', path.join(place, 'swarm')], {}, async (server) => {
    const page = await openPage(context, server.origin);
    await startRun(page, 'Explain leap years');
    await page.waitForSelector('.head .badge.s-answered', { timeout: 30_000 });
    await page.click('#tab-graph');
    await page.waitForSelector('.box.k-worker.s-completed');
    await page.click('.box.k-worker');
    await page.waitForSelector('.details dd:has-text("Worker")');
    assert.deepEqual(page.problems, []);
    await page.close();
  });
});

test('list has the goals of stored runs, without a request for each', async ({ context, page: first }) => {
  for (const goal of ['stored run one', 'stored run two', 'stored run three']) {
    await startRun(first, goal);
    await state(first, 'answered');
  }
  await withServer(['serve', 'http', '--listen', '127.0.0.1:0', '--journal', journal, '--model', modelOf(model)], {}, async (server) => {
    const asked = [];
    context.on('request', (request) => asked.push(request.url()));
    const page = await openPage(context, server.origin);
    // Ids of runs contain no space.
    await page.waitForFunction(() => {
      const goals = [...document.querySelectorAll('.side .run .goal')].map((one) => one.textContent);
      return goals.length >= 3 && goals.every((goal) => goal.includes(' '));
    });
    await page.waitForTimeout(300);
    const single = asked.filter((url) => url.startsWith(server.origin) && /\/v1\/runs\/[^/?]+$/.test(url));
    assert.deepEqual(single, []);
    assert.deepEqual(page.problems, []);
    await page.close();
  });
});

test('graph keeps what a person chose to see, when its room changes', async ({ context }) => {
  await withTeam(async (server) => {
    const page = await openPage(context, server.origin);
    await startRun(page, 'Add the tides');
    await state(page, 'answered');
    await page.click('#tab-graph');
    await page.waitForSelector('.box[data-node$="/tide"]');
    const places = () => page.evaluate(() => document.querySelector('.boxes').style.transform);
    await page.click('[aria-label="Zoom in"]');
    await page.waitForTimeout(100);
    const moved = await places();
    await page.setViewportSize({ width: 1280, height: 770 });
    await page.waitForTimeout(100);
    assert.equal(await places(), moved, 'a graph that a person moved stays where it is');
    await page.click('text=Show all');
    await page.setViewportSize({ width: 900, height: 600 });
    await page.waitForTimeout(100);
    const outside = await page.evaluate(() => {
      const stage = document.querySelector('.stage').getBoundingClientRect();
      return [...document.querySelectorAll('.box')].filter((box) => box.getBoundingClientRect().right > stage.right).length;
    });
    assert.equal(outside, 0, 'the whole graph stays in sight');
    assert.deepEqual(page.problems, []);
    await page.close();
  });
});

/** Calls `run` with a server of a team with Python, or without if the binary has no Python. */
async function withTeam(run) {
  const args = ['serve', 'http', '--offer', 'team', '--listen', '127.0.0.1:0', '--workspace', work, '--model', modelOf(model)];
  let isReached = false;
  const reach = (hasPython) => (server) => {
    isReached = true;
    return run(server, hasPython);
  };
  try {
    return await withServer([...args, '--python'], {}, reach(true));
  } catch (error) {
    if (isReached || !/python/.test(error.message)) throw error;
    console.log('  SKIPPED: programs in the graph, because this binary has no Python');
    return withServer(args, {}, reach(false));
  }
}

test('graph shows fan-outs, and agents and programs inside steps', async ({ context }) => {
  await withTeam(async (server, hasPython) => {
    const page = await openPage(context, server.origin);
    await startRun(page, 'Add the tides');
    await state(page, 'answered');
    await page.click('#tab-graph');
    await page.waitForSelector('.box[data-node$="/tide"]:has-text("3/3")');
    await page.click('.box[data-node$="/tide"]');
    await page.waitForSelector('.details dd:has-text("3 / 3")');
    await page.click('.details >> text=Show the steps inside');
    await page.waitForFunction(() => document.querySelectorAll('.boxes .box.k-item.s-completed').length === 3);
    await page.click('.box[data-node$="/tide#1"]');
    await page.waitForSelector('.details dd:has-text("Element")');
    await page.waitForSelector('.details pre:has-text("2")');
    await page.click('.details >> text=Show in the chat');
    await page.waitForSelector('.only');
    await page.waitForSelector('.chat .item');
    await page.click('#tab-graph');
    await page.click('.graph .bar >> text=Back to the whole run');
    await page.waitForSelector('.box[data-node$="/sum"]');
    if (hasPython) {
      await page.click('.box[data-node$="/sum"]');
      await page.waitForSelector('.details .calls:has-text("run_python")');
      await page.click('.details >> text=Show the steps inside');
      await page.waitForSelector('.box.k-program.s-completed:has-text("run_python")');
      await page.click('.graph .bar >> text=Back to the whole run');
    }
    await page.waitForSelector('.box[data-node$="/list"]');

    const [download] = await Promise.all([page.waitForEvent('download'), page.click('text=Save as SVG')]);
    assert.equal(download.suggestedFilename(), 'graph.svg');
    const id = await page.locator('.facts-line code').first().textContent();
    const served = await fetch(`${server.origin}/v1/runs/${id}/graph.svg`, { headers: { Authorization: `Bearer ${TOKEN}` } });
    const text = await served.text();
    assert.match(text, /^<svg[\s\S]*tide/);
    assert.equal(fs.readFileSync(await download.path(), 'utf8'), text);
    assert.deepEqual(page.problems, []);
    await page.close();
  });
});

test('question of a worker of a swarm is answered in the inbox', async ({ context }) => {
  const args = ['serve', 'http', '--offer', 'swarm', '--listen', '127.0.0.1:0', '--workspace', work, '--ask', 'write_file', '--model', modelOf(model)];
  await withServer(args, {}, async (server) => {
    const page = await openPage(context, server.origin);
    await startRun(page, 'Write a note together');
    await page.waitForSelector('.top .waiting');
    await page.click('#tab-graph');
    await page.waitForSelector('.box.k-worker.s-waiting');
    await page.click('.top >> text=Questions');
    await page.waitForSelector('dialog .ask:has-text("Write a note together")');
    await page.waitForSelector('dialog .ask:has-text("swarm.txt")');
    await page.click('dialog >> text=Edit arguments');
    await page.fill('dialog .editor', '{"path": "swarm.txt", "content": "edited in the inbox"}');
    await page.click('dialog >> text=Allow with these arguments');
    await page.waitForSelector('dialog .ask', { state: 'detached' });
    await page.click('dialog .close');
    await state(page, 'answered');
    await page.waitForFunction(() => !document.querySelector('.box.s-waiting') && document.querySelectorAll('.box.k-worker.s-completed').length === 2);
    assert.equal(fs.readFileSync(path.join(work, 'swarm.txt'), 'utf8'), 'edited in the inbox');
    assert.deepEqual(page.problems, []);
    await page.close();
  });
});

test('page works behind a proxy that adds a path', async ({ context }) => {
  const target = new URL(main.origin);
  const proxy = http.createServer((request, answer) => {
    if (!request.url.startsWith('/tools/agents/')) return answer.writeHead(404).end();
    const forward = http.request({ host: target.hostname, port: target.port, method: request.method, path: request.url.slice('/tools/agents'.length), headers: { ...request.headers, host: target.host, origin: target.origin } }, (reply) => {
      answer.writeHead(reply.statusCode, reply.headers);
      reply.pipe(answer);
    });
    forward.on('error', () => answer.destroy());
    answer.on('close', () => forward.destroy());
    return request.pipe(forward);
  });
  await new Promise((ready) => proxy.listen(0, '127.0.0.1', ready));
  const origin = `http://127.0.0.1:${proxy.address().port}`;
  const asked = [];
  context.on('request', (request) => asked.push(request.url()));
  await context.pages()[0].close();
  const page = await openPage(context, `${origin}/tools/agents`);
  await startRun(page, 'through a proxy');
  await state(page, 'answered');
  await page.reload();
  await state(page, 'answered');
  assert.deepEqual(asked.filter((url) => !url.startsWith(`${origin}/tools/agents/`) && !/^(data|blob):/.test(url)), []);
  await page.close();
  proxy.closeAllConnections();
  proxy.close();
});

test('levity ui opens the page with a code that is valid once', async ({ context }) => {
  await withServer(['ui', '--journal', path.join(place, 'ui'), '--model', modelOf(model)], { LEVITY_TOKEN: undefined }, async (server) => {
    const link = await linkOf(server);
    const [origin, hash] = link.split('/#');
    const page = await openPage(context, origin, `#${hash}`);
    await page.waitForSelector('.start');
    assert.ok(!page.url().includes('code='), 'the code stays in the address');
    await startRun(page, 'from levity ui');
    await state(page, 'answered');
    await page.reload();
    await state(page, 'answered');
    const again = await (await page.context().browser().newContext()).newPage();
    await again.goto(link);
    await again.waitForSelector('.login, main:has-text("used before")');
    await again.close();
    await page.close();
  });
});

/** Returns the link that `levity ui` prints. */
async function linkOf({ line, lines }) {
  for (let n = 0; n < 100; n += 1) {
    const found = [line, ...lines].join('\n').match(/http:\/\/\S+#\S*code=\S+/);
    if (found) return found[0];
    await pause(50);
  }
  throw new Error(`levity ui prints no link: ${[line, ...lines]}`);
}

async function run() {
  fs.mkdirSync(work);
  model = await modelServer(reply);
  const config = path.join(place, 'mcp.json');
  fs.writeFileSync(config, JSON.stringify({ mcpServers: { media: { command: process.execPath, args: [path.join(path.dirname(fileURLToPath(import.meta.url)), 'media.mjs')] } } }));
  main = await start(binary, ['serve', 'http', '--listen', '127.0.0.1:0', '--journal', journal, '--workspace', work, '--memory', path.join(place, 'memory'), '--mcp', config,
    '--model', modelOf(model)]);
  const browser = await launch();
  try {
    await runTests(tests, browser, (context) => openPage(context, main.origin));
  } finally {
    await browser.close();
    await stop(main);
    model.closeAllConnections();
    model.close();
    await cleanUp();
  }
}

run().catch((error) => {
  console.error(error);
  process.exit(1);
});
