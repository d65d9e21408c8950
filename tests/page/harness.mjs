// What the tests of the page share: a model server, `levity serve http`, and Chromium.
//
// NODE_PATH names the folder with playwright-core and axe-core; CHROMIUM names the browser.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';

const require = createRequire(path.join(process.env.NODE_PATH, 'x.js'));
const { chromium } = require('playwright-core');

export const axe = () => fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
export const TOKEN = 'token-of-a-test-0123456789';
export const place = fs.mkdtempSync(path.join(os.tmpdir(), 'levity-page-'));
export const pause = (ms) => new Promise((resume) => setTimeout(resume, ms));

/**
 * A server with the API of an OpenAI-compatible model. `reply` gets a description of each request,
 * and functions that send text, thinking and calls.
 */
export function modelServer(reply) {
  const server = http.createServer(async (request, answer) => {
    let body = '';
    for await (const part of request) body += part;
    const { messages, model, tools = [] } = JSON.parse(body);
    answer.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const send = (delta, finish = null) => answer.write(`data: ${JSON.stringify({
      id: 'x', object: 'chat.completion.chunk', created: 0, model, choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`);
    const textOf = ({ content }) => (typeof content === 'string' ? content : (content || []).map((part) => part.text || '').join('\n'));
    const about = {
      model, messages, tools: tools.map((tool) => tool.function?.name),
      goal: textOf(messages.find((message) => message.role === 'user') || { content: '' }),
      system: textOf(messages.find((message) => message.role === 'system') || { content: '' }),
      // levity writes results as text for servers that seem to have no tool calls.
      results: messages.filter((message) => message.role === 'tool' || /<tool_response/.test(textOf(message))).length,
      isClosed: () => answer.destroyed,
    };
    let calls = 0;
    let words = 0;
    await reply(about, {
      text: (content) => {
        words += 1;
        send({ content });
      },
      think: (text) => send({ reasoning_content: text }),
      call: (name, args) => {
        send({ role: 'assistant', tool_calls: [{ index: calls, id: `c${messages.length}-${calls}`, type: 'function', function: { name, arguments: JSON.stringify(args) } }] });
        calls += 1;
      },
    });
    send({}, calls ? 'tool_calls' : 'stop');
    const usage = { prompt_tokens: Math.ceil(body.length / 4), completion_tokens: 10 + words, total_tokens: Math.ceil(body.length / 4) + 10 + words };
    answer.write(`data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 0, model, choices: [], usage })}\n\n`);
    answer.end('data: [DONE]\n\n');
  });
  return new Promise((ready) => server.listen(0, '127.0.0.1', () => ready(server)));
}

export const modelOf = (server, name = 'm') => `compatible:${name}@http://127.0.0.1:${server.address().port}/v1`;

const running = new Set();

/** Starts `levity` with these arguments, and returns the first line that it prints. */
export async function start(binary, args, env = {}) {
  const child = spawn(binary, args, { env: { PATH: process.env.PATH, HOME: place, LEVITY_TOKEN: TOKEN, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  running.add(child);
  const errors = [];
  child.stderr.on('data', (data) => errors.push(data));
  const lines = [];
  const reader = readline.createInterface({ input: child.stdout });
  reader.on('line', (line) => lines.push(line));
  const line = await new Promise((ready, failed) => {
    reader.once('line', ready);
    child.once('exit', (code) => failed(new Error(`levity ended with ${code}: ${Buffer.concat(errors)}`)));
  });
  child.removeAllListeners('exit');
  return { child, line, lines, origin: line.match(/http:\/\/[^/\s]+/)?.[0] };
}

export function stop(server, signal = 'SIGTERM') {
  running.delete(server.child);
  return new Promise((ended) => {
    if (server.child.exitCode !== null || server.child.signalCode !== null) ended();
    server.child.once('exit', ended);
    server.child.kill(signal);
  });
}

export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
      ...(process.getuid() === 0 ? ['--no-sandbox'] : [])] });
}

/** The addresses that all pages requested. */
export const requests = [];

/** Opens the page of a server; `page.problems` collects errors of its scripts. */
export async function open(context, origin, hash = `#token=${TOKEN}`) {
  const page = await context.newPage();
  page.problems = [];
  page.on('pageerror', (error) => page.problems.push(error.stack));
  page.on('console', (message) => message.type() === 'error' && !/Failed to load resource/.test(message.text()) && page.problems.push(message.text()));
  page.on('request', (request) => requests.push(request.url()));
  if (process.env.LEVITY_PAGE_FILES) await useFiles(page, process.env.LEVITY_PAGE_FILES);
  await page.goto(`${origin}/${hash}`);
  return page;
}

/** Serves the scripts and styles from a folder, to work on them without building levity. */
function useFiles(page, folder) {
  return page.route(/\/page\/[a-z]+\.(js|css)$/, (route) => {
    const name = new URL(route.request().url()).pathname.split('/').at(-1);
    route.fulfill({ body: fs.readFileSync(path.join(folder, name)), contentType: name.endsWith('.css') ? 'text/css' : 'text/javascript' });
  });
}

export async function startRun(page, goal) {
  const id = () => page.evaluate(() => document.querySelector('.of-run:not([hidden]) .facts-line code')?.textContent);
  const before = await id();
  await page.fill('.start textarea', goal);
  await page.click('.start button[type=submit]');
  await page.waitForFunction((last) => {
    const code = document.querySelector('.of-run:not([hidden]) .facts-line code');
    return code && code.textContent !== last;
  }, before);
  return id();
}

/** Ends everything that a test left. */
export async function cleanUp() {
  for (const child of running) child.kill('SIGKILL');
  fs.rmSync(place, { recursive: true, force: true });
}

/** Runs tests, each in a context of its own, and prints a line for each. The first failure ends. */
export async function runTests(tests, browser, prepare, only = process.env.ONLY) {
  let passed = 0;
  for (const [name, run] of tests.filter(([name]) => !only || name.includes(only))) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    context.setDefaultTimeout(20_000);
    const page = await prepare(context);
    const begun = Date.now();
    try {
      await run({ browser, context, page });
      assert.deepEqual(page.problems, []);
    } catch (error) {
      console.log(`FAILED ${name}`);
      await page.screenshot({ path: path.join(os.tmpdir(), 'levity-page-failure.png') });
      throw error;
    }
    await context.close();
    passed += 1;
    console.log(`ok ${name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
  }
  console.log(`${passed} passed, 0 failed`);
}
